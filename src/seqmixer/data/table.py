"""A split as a few tensors on a device, from which batches are indexed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmixer.data.task import Split
from seqmixer.types import PAD, Batch


@dataclass(frozen=True)
class Rows:
    """Rows of words of any length, one after the other."""

    words: Tensor  # all rows, then one PAD
    first: Tensor  # (n,) where a row begins
    length: Tensor  # (n,)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], device: Any) -> "Rows":
        lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        words = np.fromiter(chain(chain.from_iterable(rows), [PAD]), dtype=np.int64, count=int(lengths.sum()) + 1)
        parts = (words, lengths.cumsum() - lengths, lengths)
        return cls(*(torch.from_numpy(part).to(device) for part in parts))

    def cut(self, index: Tensor, width: int) -> Tensor:
        """Some rows, cropped at `width` words or filled up with PAD.  (...,) -> (..., width)"""
        place = torch.arange(width, device=index.device)
        length = self.length[index].unsqueeze(-1)  # (..., 1)
        at = self.first[index].unsqueeze(-1) + torch.minimum(place, length)  # behind a row stands another, or PAD
        return self.words[at].masked_fill(place >= length, PAD)


@dataclass(frozen=True)
class Table:
    """A split as tensors. Its batches have few different shapes: R is the most references that an example has."""

    split: Split
    sources: Rows | Tensor  # or (n, D) image features
    references: Rows  # of all examples, one after the other
    first: Tensor  # (n,) where an example's references begin
    count: Tensor  # (n,) how many it has
    most: int  # R

    @classmethod
    def of(cls, split: Split, device: Any = "cpu") -> "Table":
        counts = np.array([len(references) for references in split.references], dtype=np.int64)
        return cls(
            split=split,
            sources=split.sources.to(device) if isinstance(split.sources, Tensor) else Rows.of(split.sources, device),
            references=Rows.of(list(chain.from_iterable(split.references)), device),
            first=torch.from_numpy(counts.cumsum() - counts).to(device),
            count=torch.from_numpy(counts).to(device),
            most=int(counts.max(initial=1)),
        )

    def cut(self, index: Tensor, drawn: Tensor, width: int, length: int) -> Batch:
        """A batch: sources `width` words wide, targets and references cropped at `length` words.

        Args:
            index: (B,) examples.
            drawn: (B,) which reference of each is its target.
        """
        number = torch.arange(self.most, device=index.device)  # (R,)
        first = self.first[index]  # (B,)
        target = self.references.cut(first + drawn, length)  # (B, T)
        if self.most == 1:
            references = target.unsqueeze(1)
        else:
            there = number < self.count[index].unsqueeze(-1)  # (B, R)
            every = first.unsqueeze(-1) + torch.where(there, number, 0)
            references = self.references.cut(every, length).masked_fill(~there.unsqueeze(-1), PAD)
        source = self.sources.cut(index, width) if isinstance(self.sources, Rows) else self.sources[index]
        return Batch(source, target, references)
