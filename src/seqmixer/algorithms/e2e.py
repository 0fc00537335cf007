"""End-to-end back-propagation, E2E (Sec. 3.1.3): feed the k best words at once and differentiate through them."""

from collections.abc import Sequence
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.algorithms.xent import word_loss
from seqmixer.decoding import shift
from seqmixer.losses import log_prob
from seqmixer.schedules import at, falling_words
from seqmixer.types import Batch, Loss, SequenceModel


class E2ESettings(AlgorithmSettings):
    """[algorithm] with name = "e2e"."""

    name: Literal["e2e"] = "e2e"
    annealing: Literal["linear", "stages"] = "linear"
    """E2E: s falls evenly from T to 1 over all epochs after the XENT ones; or in MIXER's stages, by delta after every
    mixed_epochs."""
    k: int = Field(5, ge=1)
    """E2E: how many of its best words the model is fed."""

    @model_validator(mode="after")
    def trains(self) -> Self:
        self.require_epochs()
        return self

    @property
    def annealed(self) -> bool:
        return True

    @property
    def holds_logits(self) -> bool:
        return True

    def forced(self, length: int, epochs: int) -> list[int]:
        """s by epoch."""
        if self.annealing == "stages":
            return self.schedule(length)
        return falling_words(length, self.xent_epochs, epochs)


class E2E(Algorithm):
    """The reference is fed for the first s steps, then the mixture of Eq. 8; the loss is XENT at every step."""

    Settings = E2ESettings
    label = "E2E"

    def __init__(self, forced: Sequence[int], k: int) -> None:
        super().__init__()
        self.forced = forced  # by epoch: s, the number of steps fed with the reference, the first of them with BOS
        self.k = k

    @classmethod
    def of(cls, settings: E2ESettings, parts: Parts) -> Self:
        return cls(settings.forced(parts.length, parts.epochs), settings.k)

    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        s = int(stage.scheduled)
        context = model.encode(batch.source)
        state = model.start(context)
        given = model.embed(shift(batch.target))  # (B, T, E)
        x, scores = given[:, 0], []
        for t in range(batch.target.shape[1]):
            if 0 < t < s:
                x = given[:, t]
            h, state = model.step(x, state, context)
            scores.append(model.scores(h))
            if t + 1 >= s:
                x = mixture(model, scores[-1], self.k)
        return word_loss(log_prob(torch.stack(scores, 1), batch.target), batch)

    def stage(self, epoch: int) -> Stage:
        s = at(self.forced, epoch)
        return Stage(f"E2E, reference fed for s = {s} steps, then {self.k}-max", f"e2e, s = {s}", s)


def mixture(model: SequenceModel, scores: Tensor, k: int) -> Tensor:
    """Eq. 8:  {i_j, v_j} = k-max p_theta(w);  x = sum_j v_j M_i 1(i_j), the v summing to one.  (B, V) -> (B, E)"""
    top, i = scores.topk(min(k, scores.shape[-1]), -1)  # (B, k)
    v = top.softmax(-1)  # the k largest probabilities, re-normalised, are the softmax of the k largest scores
    return (v.unsqueeze(-1) * model.embed(i)).sum(1)  # (B, k, 1) x (B, k, E) -> (B, E)
