"""What algorithms have in common that compare the candidates of a source with one another, by a loss of losses/groups.

Equal sentences are one candidate. Each loss is given the candidates' scores: log p of the words that the model wrote,
by the length of the sentence where length_penalty says so.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import Candidates, Stage
from seqmixer.algorithms.diagnostics import hashed, over
from seqmixer.algorithms.prefix import Prefix
from seqmixer.algorithms.sampled import Learnt, Sampled, SampledSettings
from seqmixer.algorithms.xent import reference_loss
from seqmixer.decoding import fast, generate
from seqmixer.types import Batch, Generate, Loss, Reward, SequenceModel

Origin = Literal["sample", "distinct", "beam"]


class GroupSettings(SampledSettings):
    """What all of them have."""

    samples: int = Field(4, ge=2, le=1024)
    """How many candidates each source of a batch has; all are rewarded."""
    candidates: Origin = "sample"
    """Losses of candidates: they are sampled; or sampled without replacement, so that none is there twice; or those of
    a beam."""
    with_reference: bool = False
    """Losses of candidates: the reference takes the place of the last candidate. It mostly ruins the gain."""
    length_penalty: float = Field(0.0, ge=0)
    """Losses of candidates: a sentence's score is log p / length^length_penalty. 1: the mean of its words."""
    token_weight: float = Field(0.0, ge=0)
    """Losses of candidates: weight of XENT on the reference, beside what is learnt from the candidates."""


class GroupLoss(Sampled):
    """Learns from the candidates of each source as a set; a subclass says by which loss, and its settings are `own`."""

    compare: ClassVar[Callable[..., Tensor]]  # scores, rewards and mask, each (B, k), and the settings -> (B,)

    def __init__(
        self,
        reward: Reward,
        *,
        samples: int,
        candidates: Origin = "sample",
        with_reference: bool = False,
        length_penalty: float = 0.0,
        token_weight: float = 0.0,
        prefix: Prefix | None = None,
        kl: float = 0.0,
        generate: Generate = generate,
        **own: float,
    ) -> None:
        super().__init__(reward, samples=samples, prefix=prefix, kl=kl, generate=generate)
        self.own = own
        self.origin = candidates
        self.with_reference = with_reference
        self.length_penalty = length_penalty
        self.token_weight = token_weight

    def write(self, model: SequenceModel, source: Tensor, given: Tensor, forced: Tensor) -> Tensor:
        if self.origin == "sample":
            words = super().write(model, source, given, forced)
        else:
            words = self.search(model, source, given[:: self.samples], forced[:: self.samples])
        if not self.with_reference:
            return words
        last = torch.arange(1, len(words) + 1, device=words.device) % self.samples == 0  # (Bk,)
        return torch.where(last.unsqueeze(-1), given, words)

    def search(self, model: SequenceModel, source: Tensor, given: Tensor, forced: Tensor) -> Tensor:
        """The k candidates of a beam; where there are fewer sentences, the first takes the other places.  -> (Bk, T)"""
        found = fast.beam_search(
            model, source, given.shape[1], self.samples, given=given, keep=forced, stochastic=self.origin == "distinct"
        )
        missing = found.log_prob.unsqueeze(-1) == -torch.inf  # (B, k, 1)
        return torch.where(missing, found.words[:, :1], found.words).flatten(0, 1)

    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        loss = super().loss(model, batch, candidates, stage, scheduled)
        if candidates is None or not self.token_weight:
            return loss
        xent = reference_loss(model, batch, inputs=batch.target)
        return Loss(loss.value + self.token_weight * xent.value, {**loss.metrics, **xent.metrics})

    def learn(self, batch: Batch, candidates: Candidates, h: Tensor, log_p: Tensor) -> Learnt:
        k, mask = candidates.k, different(candidates)  # (B, k)
        value = self.compare(self.scores(candidates, log_p), self.worth(candidates, log_p), mask, **self.own).sum()
        return Learnt(k * value, {"copies": over((~mask).float(), candidates.generated.view(*mask.shape, -1).any(-1))})

    def scores(self, candidates: Candidates, log_p: Tensor) -> Tensor:
        """By which the candidates are compared, given log p of their words.  (Bk, T) -> (B, k)"""
        total = candidates.sentences(log_p)
        if not self.length_penalty:
            return total
        return total / candidates.sentences(torch.ones_like(log_p)).clamp(min=1) ** self.length_penalty


def different(candidates: Candidates) -> Tensor:
    """False on copies of an earlier candidate for the same source.  -> (B, k)"""
    sentence = hashed(candidates.words).view(-1, candidates.k)
    same = sentence.unsqueeze(2) == sentence.unsqueeze(1)  # (B, k, k)
    return ~same.tril(-1).any(-1)
