"""Proximal policy optimisation, PPO (Schulman et al. 2017): several updates from each batch of samples."""

from typing import ClassVar, Literal

from pydantic import Field

from seqmixer.algorithms.algorithm import AlgorithmSettings
from seqmixer.algorithms.clipped import ClippedGradient, ClippedSettings
from seqmixer.algorithms.reinforce import BaselineSettings


class PpoSettings(ClippedSettings, BaselineSettings):
    """[algorithm] with name = "ppo"."""

    name: Literal["ppo"] = "ppo"
    updates: int = Field(4, ge=1, le=100)
    """Clipped ratios: how often the model is updated from one batch of samples."""


class Ppo(ClippedGradient):
    """The clipped surrogate (7), with the reward less the expected one as advantage.

    L = sum_t - min(rho_t A_t, clip(rho_t, 1 - eps, 1 + eps) A_t),   A_t = r - rbar_t

    With one update it is REINFORCE. Each update is of all samples of the batch: there are no smaller batches of them.
    The expected reward is trained in each update as well; there is no entropy term.
    """

    Settings: ClassVar[type[AlgorithmSettings]] = PpoSettings
    label: ClassVar[str] = "PPO"
