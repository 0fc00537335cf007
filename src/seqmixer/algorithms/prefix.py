"""The teacher-forced prefix: the first s words are the reference's and trained with XENT (Sec. 3.2.2, Algorithm 1).

s falls from T, where all is XENT. Whatever is learnt from the rest of a sentence can be annealed so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmixer.losses import cross_entropy
from seqmixer.schedules import at
from seqmixer.types import Batch, SequenceModel


@dataclass(frozen=True)
class Prefix:
    """How many words are forced, by epoch, and what the losses of both parts weigh."""

    length: int  # T
    forced: Sequence[int]  # by epoch: s
    xent_weight: float = 0.5
    weight: float = 1.0  # of what is learnt from the rest
    overlap: bool = False  # as released: word s is generated, and trained by both losses

    def words(self, epoch: int) -> int | None:
        """s in an epoch; None where all of the sentence is forced."""
        s = at(self.forced, epoch)
        return s if s < self.length else None

    def start(self, s: Tensor) -> Tensor:
        """The first word that the model generates.  () -> ()"""
        return (s - 1).clamp(min=0) if self.overlap else s

    def xent(self, model: SequenceModel, h: Tensor, log_p: Tensor, batch: Batch, s: Tensor) -> Tensor:
        """Eq. 6 over the first s words.  (B, T, H), (B, T) of the words that were fed -> ()"""
        taught = model.log_prob(h, batch.target) if self.overlap else log_p  # word s may be the model's
        return cross_entropy(taught, (steps(batch) < s) & batch.mask)


def steps(batch: Batch) -> Tensor:
    """0, 1, ... T - 1.  (T,)"""
    return torch.arange(batch.target.shape[1], device=batch.target.device)
