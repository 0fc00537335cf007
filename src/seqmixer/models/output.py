"""What the output layer of every model has in common."""

import torch
from torch import Tensor

from seqmixer.types import BOS, PAD

NEVER = -1e4  # a logit of probability 0 in every float type, without the NaN that -inf brings to entropies


def not_written(vocab_size: int) -> Tensor:
    """What is added to the logits: nothing, but NEVER for PAD and BOS.  -> (V,)"""
    never = torch.zeros(vocab_size)
    never[[PAD, BOS]] = NEVER  # they stand around a sentence, never in it
    return never
