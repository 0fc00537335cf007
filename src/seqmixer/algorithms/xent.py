"""Cross entropy training, XENT (Sec. 3.1.1): predict the next word of the reference from its words so far."""

from typing import Literal, Self

from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.decoding import shift
from seqmixer.losses import cross_entropy
from seqmixer.types import Batch, Loss, SequenceModel, tally


class XentSettings(AlgorithmSettings):
    """[algorithm] with name = "xent"."""

    name: Literal["xent"] = "xent"


class Xent(Algorithm):
    """Eq. 6 with the reference as input and as target."""

    Settings = XentSettings
    label = "XENT"

    @classmethod
    def of(cls, settings: XentSettings, parts: Parts) -> Self:
        return cls()

    def stage(self, epoch: int) -> Stage:
        return XENT

    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        return reference_loss(model, batch, inputs=batch.target)


XENT = Stage(Xent.label, program="xent")  # also the first stage of other algorithms


def reference_loss(model: SequenceModel, batch: Batch, inputs: Tensor) -> Loss:
    """Eq. 6 towards the reference, whatever words (B, T) were fed."""
    h = model.unroll(shift(inputs), model.encode(batch.source))  # (B, T, H)
    return word_loss(model.log_prob(h, batch.target), batch)


def word_loss(log_p: Tensor, batch: Batch) -> Loss:
    """Eq. 6 of given log p (B, T) of the reference, and the same per word for the log."""
    total = cross_entropy(log_p, batch.mask)
    return Loss(total / len(batch), {"xent": tally(total.detach(), batch.mask.sum())})
