"""REINFORCE leave-one-out, RLOO (Kool et al. 2019; Ahmadian et al. 2024): samples of a source against one another."""

from typing import ClassVar, Literal

from pydantic import Field

from seqmixer.algorithms.algorithm import AlgorithmSettings
from seqmixer.algorithms.policy import PolicyGradient, PolicySettings


class RlooSettings(PolicySettings):
    """[algorithm] with name = "rloo"."""

    baseline: ClassVar = "leave-one-out"

    name: Literal["rloo"] = "rloo"
    samples: int = Field(4, ge=2, le=1024)
    """How many sentences are sampled, and rewarded, for each source of a batch."""


class Rloo(PolicyGradient):
    """Eq. 11, where the mean reward of the other samples of a source is expected of each: unbiased, nothing to learn.

    dL/do_t = (r_i - 1/(k-1) sum_{j != i} r_j) (p(w | ...) - 1(w_i,t))
    """

    Settings: ClassVar[type[AlgorithmSettings]] = RlooSettings
    label: ClassVar[str] = "RLOO"
