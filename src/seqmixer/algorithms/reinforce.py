"""REINFORCE (Sec. 3.2.1): sample a sentence, make its words more likely if its reward beat the expected one."""

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator
from torch import Tensor, nn

from seqmixer.algorithms.algorithm import AlgorithmSettings, Candidates, Parts
from seqmixer.algorithms.baselines import BASELINES, Baseline
from seqmixer.algorithms.prefix import Prefix
from seqmixer.algorithms.sampled import Learnt, Sampled, SampledSettings
from seqmixer.decoding import generate
from seqmixer.losses import baseline_error, policy_gradient
from seqmixer.types import Batch, Generate, Reward


class ReinforceSettings(SampledSettings):
    """[algorithm] with name = "reinforce"."""

    name: Literal["reinforce"] = "reinforce"
    baseline: Baseline = "linear"
    """Expected reward: one linear regressor of the hidden state; one for each step (as released); or the mean reward of
    the other sentences sampled for the same source, with samples of 2 or more."""

    @model_validator(mode="after")
    def compares(self) -> Self:
        if self.baseline == "leave-one-out" and self.samples < 2:
            got = f"got algorithm.samples = {self.samples}"
            raise ValueError(f"algorithm.baseline = 'leave-one-out' needs algorithm.samples of 2 or more; {got}")
        return self


class Reinforce(Sampled):
    """Eqs. 9-11 on whole sentences. From a random model it does not train (Sec. 4.4): start from an XENT one."""

    Settings: ClassVar[type[AlgorithmSettings]] = ReinforceSettings
    label: ClassVar[str] = "REINFORCE"

    def __init__(
        self,
        reward: Reward,
        baseline: nn.Module,
        generate: Generate = generate,
        kl: float = 0.0,
        samples: int = 1,
        prefix: Prefix | None = None,
    ) -> None:
        super().__init__(reward, samples=samples, prefix=prefix, kl=kl, generate=generate)
        self.baseline = baseline

    @classmethod
    def arguments(cls, settings: Any, parts: Parts) -> dict[str, Any]:
        baseline = BASELINES[settings.baseline](parts.features, parts.length)
        return super().arguments(settings, parts) | {"baseline": baseline}

    def learn(self, batch: Batch, candidates: Candidates, h: Tensor, log_p: Tensor) -> Learnt:
        drift, r = self.drift(candidates, log_p), candidates.reward()  # (Bk, T), (Bk,)
        r_bar = self.baseline(h, r.view(-1, candidates.k))  # (Bk, T)
        value = policy_gradient(log_p, r.unsqueeze(-1) - drift - r_bar, candidates.generated)
        return Learnt(value, own=baseline_error(r_bar, r, candidates.generated), expected=r_bar)
