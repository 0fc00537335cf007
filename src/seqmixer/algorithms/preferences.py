"""Preferences: the best and the worst candidate of a source, by DPO (Rafailov et al. 2023) or CPO (Xu et al. 2024)."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import Candidates
from seqmixer.algorithms.groups import GroupLoss, GroupSettings
from seqmixer.losses import contrastive_preference, preference


class PreferenceSettings(GroupSettings):
    """[algorithm] with name = "cpo"."""

    name: Literal["cpo"] = "cpo"
    beta: float = Field(0.1, gt=0)
    """Preferences: sharpness. A pair teaches until the log of its ratio is well above 1 / beta."""


class DpoSettings(PreferenceSettings):
    """[algorithm] with name = "dpo"."""

    name: Literal["dpo"] = "dpo"  # type: ignore[assignment]

    @property
    def holds_reference(self) -> bool:
        return True


class Dpo(GroupLoss):
    """The best candidate becomes more likely than the worst, beyond what a frozen copy of the model says of them."""

    Settings = DpoSettings
    label = "DPO"
    compare = staticmethod(preference)

    @property
    def holds_reference(self) -> bool:
        return True

    def scores(self, candidates: Candidates, log_p: Tensor) -> Tensor:
        assert candidates.log_ref is not None
        return super().scores(candidates, log_p - candidates.log_ref)


class Cpo(GroupLoss):
    """DPO without the copy, and XENT on the best candidate."""

    Settings = PreferenceSettings
    label = "CPO"
    compare = staticmethod(contrastive_preference)
