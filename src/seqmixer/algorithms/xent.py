"""Cross entropy training, XENT (Sec. 3.1.1): predict the next word of the reference from its words so far."""

from typing import Literal, Self

from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.decoding import shift
from seqmixer.losses import cross_entropy, log_probs, smoothing_loss, unlikelihood_loss, words_of
from seqmixer.types import EOS, Batch, Loss, SequenceModel, tally


class XentSettings(AlgorithmSettings):
    """[algorithm] with name = "xent"."""

    name: Literal["xent"] = "xent"
    smoothing: float = Field(0.0, ge=0, lt=1)
    """XENT: label smoothing. So much of a target's probability is shared evenly among all words."""
    unlikelihood: float = Field(0.0, ge=0)
    """XENT: weight of unlikelihood, which makes words less likely that the sentence already has."""

    @property
    def holds_logits(self) -> bool:
        return self.smoothing > 0 or self.unlikelihood > 0


class Xent(Algorithm):
    """Eq. 6 with the reference as input and as target."""

    Settings = XentSettings
    label = "XENT"

    def __init__(self, smoothing: float = 0.0, unlikelihood: float = 0.0) -> None:
        super().__init__()
        self.smoothing, self.unlikelihood = smoothing, unlikelihood

    @classmethod
    def of(cls, settings: XentSettings, parts: Parts) -> Self:
        return cls(settings.smoothing, settings.unlikelihood)

    def stage(self, epoch: int) -> Stage:
        return XENT

    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        if not self.smoothing and not self.unlikelihood:
            return reference_loss(model, batch, inputs=batch.target)
        words, mask = batch.target, batch.mask
        h = model.unroll(shift(words), model.encode(batch.source))  # (B, T, H)
        log_p = log_probs(model.scores(h))  # (B, T, V)
        xent = word_loss(words_of(log_p, words), batch)
        smooth = smoothing_loss(log_p[..., EOS:], mask)  # PAD and BOS are never written
        unlikely = unlikelihood_loss(log_p, words, mask)
        extra = self.smoothing * smooth + self.unlikelihood * unlikely
        metrics = {**xent.metrics, "unlikelihood": tally(unlikely.detach(), mask.sum())}
        return Loss((1 - self.smoothing) * xent.value + extra / len(batch), metrics)


XENT = Stage(Xent.label, program="xent")  # also the first stage of other algorithms


def reference_loss(model: SequenceModel, batch: Batch, inputs: Tensor) -> Loss:
    """Eq. 6 towards the reference, whatever words (B, T) were fed."""
    h = model.unroll(shift(inputs), model.encode(batch.source))  # (B, T, H)
    return word_loss(model.log_prob(h, batch.target), batch)


def word_loss(log_p: Tensor, batch: Batch) -> Loss:
    """Eq. 6 of given log p (B, T) of the reference, and the same per word for the log."""
    total = cross_entropy(log_p, batch.mask)
    return Loss(total / len(batch), {"xent": tally(total.detach(), batch.mask.sum())})
