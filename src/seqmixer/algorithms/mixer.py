"""Mixed Incremental Cross-Entropy Reinforce, MIXER (Sec. 3.2.2, Algorithm 1)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from seqmixer.algorithms.algorithm import AlgorithmSettings, Parts
from seqmixer.algorithms.prefix import Prefix
from seqmixer.algorithms.reinforce import BaselineSettings, Reinforce
from seqmixer.types import Reward


class MixerSettings(BaselineSettings):
    """[algorithm] with name = "mixer"."""

    name: Literal["mixer"] = "mixer"
    anneal: Literal[True] = Field(True, exclude=True)  # never in a file, from which another algorithm could take it


class Mixer(Reinforce):
    """REINFORCE, annealed: XENT on the first s words; s falls from T, where all is XENT, by Delta at each stage."""

    Settings: ClassVar[type[AlgorithmSettings]] = MixerSettings
    label: ClassVar[str] = "MIXER"
    objective: ClassVar[str | None] = Reinforce.label

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
    def arguments(cls, settings: Any, parts: Parts) -> dict[str, Any]:
        made = super().arguments(settings, parts)
        names = ("xent_weight", "reinforce_weight", "overlap")
        del made["prefix"]  # the constructor makes it
        schedule = {"length": parts.length, "forced": settings.schedule(parts.length)}
        return made | schedule | {name: getattr(settings, name) for name in names}
