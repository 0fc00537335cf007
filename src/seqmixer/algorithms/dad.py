"""Data as Demonstrator, DAD (Sec. 3.1.2), also known as scheduled sampling."""

from collections.abc import Sequence
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.algorithms.xent import XENT, reference_loss
from seqmixer.decoding import generate, greedy, sample
from seqmixer.schedules import at, exponential, inverse_sigmoid, linear, truth_probability
from seqmixer.types import EOS, Batch, Choose, Generate, Loss, SequenceModel, tally

ANNEALING = {"linear": linear, "exponential": exponential, "inverse-sigmoid": inverse_sigmoid}


class DadSettings(AlgorithmSettings):
    """[algorithm] with name = "dad"."""

    name: Literal["dad"] = "dad"
    annealing: Literal["linear", "exponential", "inverse-sigmoid"] = "linear"
    """DAD: how the probability of feeding the reference word falls."""
    annealing_k: float | None = Field(None, gt=0)
    """DAD: 1 - i/k, k^i or k/(k + exp(i/k)) in the i-th epoch after the XENT ones, from i = 0. Default, linear only: as
    many as these epochs are, so that all words are the model's own in the end."""
    truth_floor: float = Field(0.0, ge=0, le=1)
    """DAD: the probability of feeding the reference word never falls below this."""
    feed: Literal["sample", "greedy"] = "sample"
    """DAD: whether the model's own word is drawn or is its most likely one."""

    @model_validator(mode="after")
    def falls(self) -> Self:
        k = self.annealing_k
        if k is None and self.annealing != "linear":
            raise ValueError(f"algorithm.annealing_k is missing; algorithm.annealing = {self.annealing!r} needs it")
        if k is not None and self.annealing == "exponential" and k >= 1:
            raise ValueError(f"algorithm.annealing_k must be below 1 with exponential, got {k}")
        if k is not None and self.annealing == "inverse-sigmoid" and k < 1:
            raise ValueError(f"algorithm.annealing_k must be at least 1 with inverse-sigmoid, got {k}")
        return self

    @property
    def annealed(self) -> bool:
        return True

    def truth(self, epochs: int) -> list[float]:
        """The probability of feeding the reference word, by epoch."""
        k = self.annealing_k or max(epochs - self.xent_epochs, 1)
        return truth_probability(ANNEALING[self.annealing], k, self.xent_epochs, epochs, self.truth_floor)


class Dad(Algorithm):
    """XENT whose input is, by a coin per step, the reference word or the model's own; the target never changes.

    Gradients do not pass through the chosen words. The model's EOS is never fed: the reference has more
    words, and so must the sentence that is fed (the paper does not say; docs/deviations.md).
    """

    Settings = DadSettings
    label = "DAD"

    def __init__(self, truth: Sequence[float], choose: Choose = sample, generate: Generate = generate) -> None:
        super().__init__(generate=generate)
        self.truth = truth  # by epoch: the probability of feeding the reference word
        self.choose = choose

    @classmethod
    def of(cls, settings: DadSettings, parts: Parts) -> Self:
        choose = sample if settings.feed == "sample" else greedy
        return cls(settings.truth(parts.epochs), choose=choose, generate=parts.generate)

    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        fed, truth = batch.target, torch.ones_like(scheduled)
        if stage is not XENT:
            truth = scheduled
            keep = torch.rand(fed.shape, device=fed.device) < truth  # (B, T)
            fed = self.generate(model, batch.source, batch.target, keep, self.word)
        loss = reference_loss(model, batch, inputs=fed)
        return Loss(loss.value, {**loss.metrics, "truth": tally(truth)})

    def word(self, logits: Tensor) -> Tensor:
        """The model's own choice among words, without EOS.  (B, V) -> (B,)"""
        end = torch.arange(logits.shape[-1], device=logits.device) == EOS
        return self.choose(logits.masked_fill(end, -torch.inf))

    def stage(self, epoch: int) -> Stage:
        p = at(self.truth, epoch)
        return XENT if p == 1 else Stage("DAD, the model's own words fed more and more", "dad", p)
