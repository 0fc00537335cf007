"""Minimum risk training, MRT (Shen et al. 2016): the expected reward among the candidates of a source."""

from typing import Literal

from pydantic import Field

from seqmixer.algorithms.groups import GroupLoss, GroupSettings
from seqmixer.losses import expected_risk


class RiskSettings(GroupSettings):
    """[algorithm] with name = "mrt"."""

    name: Literal["mrt"] = "mrt"
    alpha: float = Field(0.005, gt=0)
    """MRT: sharpness. Candidates count by p^alpha: near 0 all alike, at 1 by their probability."""


class ExpectedRisk(GroupLoss):
    """Candidates become more likely by how much their reward is above that expected among them."""

    Settings = RiskSettings
    label = "expected risk (MRT)"
    compare = staticmethod(expected_risk)
