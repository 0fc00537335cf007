"""REINFORCE (Sec. 3.2.1): sample a sentence, make its words more likely if its reward beat the expected one."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from seqmixer.algorithms.algorithm import AlgorithmSettings
from seqmixer.algorithms.baselines import Baseline
from seqmixer.algorithms.policy import PolicyGradient, PolicySettings


class BaselineSettings(PolicySettings):
    """A choice of baseline."""

    baseline: Baseline = "linear"
    """Expected reward: one linear regressor of the hidden state; one for each step (as released); the mean reward of
    the other sentences sampled for the same source, with samples of 2 or more; a critic, a network of its
    own; or none."""

    @model_validator(mode="after")
    def compares(self) -> Self:
        if self.baseline == "leave-one-out" and self.samples < 2:
            got = f"got algorithm.samples = {self.samples}"
            raise ValueError(f"algorithm.baseline = 'leave-one-out' needs algorithm.samples of 2 or more; {got}")
        return self


class ReinforceSettings(BaselineSettings):
    """[algorithm] with name = "reinforce"."""

    name: Literal["reinforce"] = "reinforce"


class Reinforce(PolicyGradient):
    """Eqs. 9-11 on complete sentences. From a random model it does not train (Sec. 4.4): start from an XENT one."""

    Settings: ClassVar[type[AlgorithmSettings]] = ReinforceSettings
    label: ClassVar[str] = "REINFORCE"
