"""Minimum risk training, MRT (Shen et al. 2016): the expected reward among the candidates of a source."""

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import AlgorithmSettings, Candidates
from seqmixer.algorithms.groups import GroupLoss, GroupSettings
from seqmixer.losses import expected_risk
from seqmixer.types import Reward


class RiskSettings(GroupSettings):
    """[algorithm] with name = "mrt"."""

    name: Literal["mrt"] = "mrt"
    alpha: float = Field(0.005, gt=0)
    """MRT: sharpness. Candidates count by p^alpha: near 0 all alike, at 1 by their probability."""


class ExpectedRisk(GroupLoss):
    """Candidates become more likely by how much their reward is above that expected among them."""

    Settings: ClassVar[type[AlgorithmSettings]] = RiskSettings
    label: ClassVar[str] = "expected risk (MRT)"

    def __init__(self, reward: Reward, *, alpha: float = 0.005, **rest: Any) -> None:
        super().__init__(reward, **rest)
        self.alpha = alpha

    def compare(self, candidates: Candidates, log_p: Tensor, r: Tensor, mask: Tensor) -> Tensor:
        return expected_risk(self.scores(candidates, log_p), r, mask, self.alpha)
