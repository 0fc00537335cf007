"""Mixed Incremental Cross-Entropy Reinforce, MIXER (Sec. 3.2.2, Algorithm 1)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from seqmixer.algorithms.algorithm import AlgorithmSettings, Parts, require_epochs
from seqmixer.algorithms.baselines import BASELINES
from seqmixer.algorithms.prefix import Prefix
from seqmixer.algorithms.reinforce import Reinforce, ReinforceSettings
from seqmixer.types import Reward


class MixerSettings(ReinforceSettings):
    """[algorithm] with name = "mixer"."""

    annealed: ClassVar[bool] = True

    name: Literal["mixer"] = "mixer"  # type: ignore[assignment]
    xent_weight: float = Field(0.5, ge=0)
    """MIXER: weight of XENT in the mixed stages."""
    reinforce_weight: float = Field(0.5, ge=0)
    """MIXER: weight of REINFORCE. The released code sums over the batch: times the batch size is its scale."""
    overlap: bool = False
    """MIXER: train word s by both losses, as the released code does."""

    @model_validator(mode="after")
    def trains(self) -> Self:
        return require_epochs(self)


class Mixer(Reinforce):
    """XENT on the first s words, REINFORCE on the rest; s falls from T, where all is XENT, by Delta at each stage."""

    Settings: ClassVar[type[AlgorithmSettings]] = MixerSettings
    label: ClassVar[str] = "MIXER"

    def __init__(
        self,
        reward: Reward,
        baseline: nn.Module,
        length: int,
        forced: Sequence[int],
        *,
        xent_weight: float = 0.5,
        reinforce_weight: float = 0.5,
        overlap: bool = False,
        **rest: Any,
    ) -> None:
        super().__init__(
            reward, baseline, prefix=Prefix(length, forced, xent_weight, reinforce_weight, overlap), **rest
        )

    @classmethod
    def of(cls, settings: ReinforceSettings, parts: Parts) -> Self:
        assert isinstance(settings, MixerSettings)
        return cls(
            parts.reward,
            BASELINES[settings.baseline](parts.features, parts.length),
            parts.length,
            settings.schedule(parts.length),
            xent_weight=settings.xent_weight,
            reinforce_weight=settings.reinforce_weight,
            overlap=settings.overlap,
            generate=parts.generate,
            kl=settings.kl,
            samples=settings.samples,
        )
