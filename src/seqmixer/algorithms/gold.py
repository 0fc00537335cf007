"""Learning from demonstrations, GOLD (Pang and He 2021): references, weighted by how the model itself sees them."""

from typing import Literal, Self

from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.algorithms.diagnostics import over
from seqmixer.algorithms.reference import fixed_log_prob, frozen
from seqmixer.algorithms.xent import word_loss
from seqmixer.decoding import shift
from seqmixer.errors import ConfigError
from seqmixer.losses import gold_weight, policy_gradient
from seqmixer.types import Batch, Loss, SequenceModel


class GoldSettings(AlgorithmSettings):
    """[algorithm] with name = "gold"."""

    name: Literal["gold"] = "gold"
    weight_floor: float = Field(0.2, ge=0, le=1)
    """GOLD: u. A word of a reference weighs as much as the model finds it probable, but no less than this."""
    reward_floor: float = Field(0.1, ge=0, le=1)
    """GOLD: c. A word's reward is its probability under the model that GOLD begins with, but no less than this. With 1
    all rewards are 1: GOLD-delta."""
    horizon: int = Field(5, ge=0, le=1000)
    """GOLD: so many words after a word are rewarded with it."""

    @property
    def holds_reference(self) -> bool:
        return self.reward_floor < 1


class Gold(Algorithm):
    """An off-policy policy gradient whose samples are the references. Nothing is sampled: start from an XENT model."""

    Settings = GoldSettings
    label = "GOLD"
    reference: SequenceModel | None  # the model that it begins with

    def __init__(self, weight_floor: float = 0.2, reward_floor: float = 0.1, horizon: int = 5) -> None:
        super().__init__()
        self.weight_floor, self.reward_floor, self.horizon = weight_floor, reward_floor, horizon
        self.register_module("reference", None)

    @classmethod
    def of(cls, settings: GoldSettings, parts: Parts) -> Self:
        return cls(settings.weight_floor, settings.reward_floor, settings.horizon)

    def set_reference(self, model: SequenceModel) -> None:
        if self.reward_floor < 1 and self.reference is None:
            self.reference = frozen(model)

    def stage(self, epoch: int) -> Stage:
        return Stage(self.label, "gold", sets_reference=True)

    def loss(
        self, model: SequenceModel, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor
    ) -> Loss:
        words, mask, log_q = batch.target, batch.mask, None
        if self.reward_floor < 1:
            if self.reference is None:
                raise ConfigError(f"{self.label} has no reference model yet; call set_reference(model) first")
            log_q = fixed_log_prob(self.reference, batch.source, words)  # (B, T)
        log_p = model.log_prob(model.unroll(shift(words), model.encode(batch.source)), words)  # (B, T)
        weight = gold_weight(log_p, log_q, mask, self.weight_floor, self.reward_floor, self.horizon)  # (B, T)
        metrics = {**word_loss(log_p, batch).metrics, "weight": over(weight, mask)}
        return Loss(policy_gradient(log_p, weight, mask) / len(batch), metrics)
