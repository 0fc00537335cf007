"""What algorithms have in common that learn from sentences which the model samples: collect, score, learn."""

from abc import abstractmethod
from functools import cache
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Stage
from seqmixer.algorithms.prefix import Prefix, steps
from seqmixer.algorithms.reference import frozen, reference_log_prob
from seqmixer.algorithms.xent import XENT, reference_loss
from seqmixer.decoding import generate, read, sample, shift
from seqmixer.errors import ConfigError
from seqmixer.rewards import begin
from seqmixer.types import PAD, Batch, Generate, Loss, Reward, SequenceModel


class SampledSettings(AlgorithmSettings):
    """What all of them have."""

    rewarded: ClassVar[bool] = True

    samples: int = Field(1, ge=1, le=1024)
    """How many sentences are sampled, and rewarded, for each source of a batch."""
    kl: float = Field(0.0, ge=0)
    """What each nat costs that the model drifts from what it was before its samples were rewarded, in units of
    reward."""

    @property
    def sentences(self) -> int:
        return self.samples


class Learnt(NamedTuple):
    """What is learnt from candidates, summed over the batch."""

    value: Tensor  # () the objective
    metrics: dict[str, Tensor]  # each a tally
    own: Tensor | float = 0.0  # () the loss of the algorithm's own parameters, such as the baseline's


class Sampled(Algorithm):
    """Samples k sentences for each source after a teacher-forced prefix; a subclass says what is learnt from them."""

    objective: ClassVar[str]  # what is learnt from the words after the prefix
    reward: Reward
    reference: SequenceModel | None  # of the KL term

    def __init__(
        self,
        reward: Reward,
        *,
        samples: int = 1,
        prefix: Prefix | None = None,
        kl: float = 0.0,
        generate: Generate = generate,
    ) -> None:
        super().__init__(generate)
        self.reward = reward
        self.samples = samples  # k
        self.prefix = prefix  # None: all words are the model's own
        self.kl = kl  # beta: what a nat of drift from the reference costs, in units of reward
        self.register_module("reference", None)

    def set_reference(self, model: SequenceModel) -> None:
        if self.kl and self.reference is None:
            self.reference = frozen(model)

    def stage(self, epoch: int) -> Stage:
        if self.prefix is None:
            return Stage(self.label, self.label, rewarded=True)
        s = self.prefix.words(epoch)
        if s is None:
            return XENT
        label = f"{self.label}, XENT on the first s = {s} words, {self.objective} on the rest"
        return Stage(label, self.label, s, rewarded=True)

    def collect(self, model: SequenceModel, batch: Batch, stage: Stage, scheduled: Tensor) -> Candidates | None:
        if stage is XENT:
            return None
        source, batch = batch.source, batch.repeat(self.samples)
        start = self.prefix.start(scheduled.long()) if self.prefix else torch.zeros_like(scheduled).long()  # ()
        forced = (steps(batch) < start).expand_as(batch.target)  # (Bk, T)
        words = self.generate(model, source, batch.target, forced, sample)  # w_1..w_s w^g_{s+1}..w^g_T: (Bk, T)
        reward = cache(begin(self.reward, batch.rollout(words, start if self.prefix else 0)))
        return Candidates(words, ~forced & (words != PAD), self.samples, reward, self.log_ref(source, words))

    def log_ref(self, source: Tensor, words: Tensor) -> Tensor | None:
        """log p of the candidates under the reference of the KL term, if there is one.  -> (Bk, T)"""
        if not self.kl:
            return None
        if self.reference is None:
            raise ConfigError(f"kl = {self.kl:g}, but there is no reference model; call set_reference(model) first")
        return reference_log_prob(self.reference, source, words)

    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        if candidates is None:
            return reference_loss(model, batch, inputs=batch.target)
        words, source, batch = candidates.words, batch.source, batch.repeat(candidates.k)
        h = model.unroll(shift(words), read(model, source, len(words)))  # (Bk, T, H)
        log_p = model.log_prob(h, words)  # (Bk, T)
        learnt = self.learn(batch, candidates, h, log_p)
        value = learnt.value
        if self.prefix:
            xent = self.prefix.xent(model, h, log_p, batch, scheduled.long())
            value = self.prefix.xent_weight * xent + self.prefix.weight * value
        return Loss((value + learnt.own) / len(batch), learnt.metrics)

    @abstractmethod
    def learn(self, batch: Batch, candidates: Candidates, h: Tensor, log_p: Tensor) -> Learnt:
        """What is learnt from the candidates, given their hidden states (Bk, T, H) and log p (Bk, T) with gradient."""
