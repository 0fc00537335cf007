"""What algorithms have in common that learn from sentences which the model samples: collect, score, learn."""

from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator
from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.algorithms.diagnostics import diagnostics, over
from seqmixer.algorithms.prefix import Prefix, steps
from seqmixer.algorithms.reference import divergence, drift_to_go, fixed_log_prob, frozen
from seqmixer.algorithms.xent import XENT, reference_loss
from seqmixer.decoding import generate, read, sample, shift
from seqmixer.errors import ConfigError
from seqmixer.rewards import begin
from seqmixer.types import PAD, Batch, Generate, Loss, Reward, SequenceModel

WITH_ANNEAL = ("xent_weight", "reinforce_weight", "overlap")


class SampledSettings(AlgorithmSettings):
    """What all of them have."""

    rewarded: ClassVar[bool] = True

    samples: int = Field(1, ge=1, le=1024)
    """How many sentences are sampled, and rewarded, for each source of a batch."""
    kl: float = Field(0.0, ge=0)
    """Weight of the KL term: the penalty, in units of reward, for each nat of drift from the model as it was before the
    RL stages."""
    anneal: bool = False
    """Begin as MIXER does, with the references: the first s words of a sentence are given and learnt by XENT, what the
    model writes after them is rewarded, and s falls by delta in each stage."""
    xent_weight: float = Field(0.5, ge=0)
    """anneal: weight of XENT, on the first s words."""
    reinforce_weight: float = Field(0.5, ge=0)
    """anneal: weight of what is learnt from the rest, in MIXER by REINFORCE. The released code sums over the batch:
    times the batch size is its scale."""
    overlap: bool = False
    """anneal: train word s by both losses, as the released code does."""

    @classmethod
    def unread(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        if values.get("anneal", cls.model_fields["anneal"].default):
            return {}
        return dict.fromkeys(WITH_ANNEAL, "is read with algorithm.anneal = true alone; remove it, or set that")

    @model_validator(mode="after")
    def trains(self) -> Self:
        if self.anneal:
            self.require_epochs()
        return self

    @property
    def annealed(self) -> bool:
        return self.anneal

    @property
    def sentences(self) -> int:
        return self.samples

    @property
    def holds_reference(self) -> bool:
        return self.kl > 0

    def prefix(self, length: int) -> Prefix | None:
        """The words that are given; None: all of a sentence is the model's own."""
        weights = self.xent_weight, self.reinforce_weight
        return Prefix(length, self.schedule(length), *weights, self.overlap) if self.anneal else None


class Learnt(NamedTuple):
    """What is learnt from candidates, summed over the batch."""

    value: Tensor  # () the objective
    metrics: Mapping[str, Tensor] = {}  # each a tally, beside those that all of them log
    own: Tensor | float = 0.0  # () the loss of the algorithm's own parameters, such as the baseline's
    expected: Tensor | None = None  # (Bk, T) the reward expected at each step, for the log


class Sampled(Algorithm):
    """Samples k sentences for each source after a teacher-forced prefix; a subclass says what is learnt from them."""

    objective: ClassVar[str | None] = None  # the label of what is learnt after the prefix, where it is another
    reward: Reward
    reference: SequenceModel | None  # a frozen copy of the model

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

    @classmethod
    def of(cls, settings: Any, parts: Parts) -> Self:
        return cls(parts.reward, **cls.arguments(settings, parts))

    @classmethod
    def arguments(cls, settings: Any, parts: Parts) -> dict[str, Any]:
        """What the constructor is given: what its settings add to those of all, by their names, and what all have."""
        names = type(settings).model_fields.keys() - SampledSettings.model_fields.keys()
        common = {"samples": settings.samples, "kl": settings.kl, "prefix": settings.prefix(parts.length)}
        return {name: getattr(settings, name) for name in names} | common | {"generate": parts.generate}

    @property
    def holds_reference(self) -> bool:
        """Whether a frozen copy of the model is the reference of its candidates."""
        return self.kl > 0

    def set_reference(self, model: SequenceModel) -> None:
        if self.holds_reference and self.reference is None:
            self.reference = frozen(model)

    def stage(self, epoch: int) -> Stage:
        if self.prefix is None:
            return Stage(self.label, self.label, rewarded=True)
        s = self.prefix.words(epoch)
        if s is None:
            return XENT
        label = f"{self.label}, XENT on the first s = {s} words, {self.objective or self.label} on the rest"
        return Stage(label, self.label, s, rewarded=True)

    def collect(self, model: SequenceModel, batch: Batch, stage: Stage, scheduled: Tensor) -> Candidates | None:
        if stage is XENT:
            return None
        source, batch = batch.source, batch.repeat(self.samples)
        start = self.start(scheduled)
        forced = (steps(batch) < start).expand_as(batch.target)  # (Bk, T)
        words = self.write(model, source, batch.target, forced)  # w_1..w_s w^g_{s+1}..w^g_T: (Bk, T)
        reward = cache(begin(self.reward, batch.rollout(words, start, self.samples)))
        return Candidates(words, ~forced & (words != PAD), self.samples, reward, self.log_ref(source, words))

    def start(self, scheduled: Tensor) -> int | Tensor:
        """The first step of which the model writes the word."""
        return self.prefix.start(scheduled.long()) if self.prefix else 0

    def write(self, model: SequenceModel, source: Tensor, given: Tensor, forced: Tensor) -> Tensor:
        """The candidates: k sentences for each source, the given ones at the forced steps.  -> (Bk, T)"""
        return self.generate(model, source, given, forced, sample)

    def log_ref(self, source: Tensor, words: Tensor) -> Tensor | None:
        """log p of the candidates under the reference, where one is held.  -> (Bk, T)"""
        if not self.holds_reference:
            return None
        if self.reference is None:
            raise ConfigError(f"{self.label} has no reference model yet; call set_reference(model) first")
        return fixed_log_prob(self.reference, source, words)

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
        metrics = {**self.diagnostics(batch, candidates, log_p, learnt.expected), **learnt.metrics}
        return Loss((value + learnt.own) / len(batch), metrics)

    @abstractmethod
    def learn(self, batch: Batch, candidates: Candidates, h: Tensor, log_p: Tensor) -> Learnt:
        """What is learnt from the candidates, given their hidden states (Bk, T, H) and log p (Bk, T) with gradient.

        The KL term is a part of the rewards: see `drift` and `worth`.
        """

    def drift(self, candidates: Candidates, log_p: Tensor) -> Tensor:
        """What the KL term takes off the reward of each step, a constant.  -> (Bk, T), or () without such a term

        Candidates that are learnt from several times keep the drift of the model that sampled them.
        """
        if candidates.log_ref is None:
            return log_p.new_zeros(())
        sampled = log_p if candidates.log_p is None else candidates.log_p
        return self.kl * drift_to_go(sampled, candidates.log_ref, candidates.generated)

    def worth(self, candidates: Candidates, log_p: Tensor) -> Tensor:
        """The rewards of the sentences for each source, less what the KL term takes off, as constants.  -> (B, k)"""
        r = candidates.reward().detach().view(-1, candidates.k)
        if candidates.log_ref is None:
            return r
        return r - self.kl * candidates.sentences(log_p.detach() - candidates.log_ref)

    def diagnostics(
        self, batch: Batch, candidates: Candidates, log_p: Tensor, r_bar: Tensor | None
    ) -> dict[str, Tensor]:
        """What all of them log of their candidates."""
        words, generated, log_ref = candidates.words, candidates.generated, candidates.log_ref
        found = diagnostics(log_p, words, generated, candidates.reward(), r_bar, batch, candidates.k)
        if log_ref is None:
            return found
        return found | {"kl": over(divergence(log_p, log_ref, generated), generated.any(-1))}
