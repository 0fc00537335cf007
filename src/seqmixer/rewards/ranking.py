"""Ids that are equal exactly where things are equal, made by sorting within each row of a batch: nothing is hashed.

Everything has a fixed shape and asks the device no question, so that a CUDA graph can hold it.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqmixer.types import PAD


def ranks(keys: Tensor) -> Tensor:
    """The place of each key among the different keys of its row, from 0.  (..., M) -> (..., M)

    >>> ranks(torch.tensor([[30, 10, 30, 20]]))
    tensor([[2, 0, 2, 1]])
    """
    ordered, order = keys.sort(-1)
    new = ordered[..., 1:] != ordered[..., :-1]
    rank = pad(new.cumsum(-1), (1, 0))[..., : keys.shape[-1]]  # (..., M) in sorted order; cut where M = 0
    return torch.empty_like(rank).scatter(-1, order, rank)


def together(words: Tensor, references: Tensor) -> Tensor:
    """Hypothesis and references as the sentences of one example.  (B, T), (B, R, L) -> (B, 1 + R, max(T, L))"""
    length = max(words.shape[1], references.shape[2])
    first = pad(words.unsqueeze(1), (0, length - words.shape[1]), value=PAD)
    rest = pad(references, (0, length - references.shape[2]), value=PAD)
    return torch.cat([first, rest], 1)
