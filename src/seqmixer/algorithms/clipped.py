"""What algorithms have in common that learn from the same candidates several times, by clipped ratios of probabilities.

The first update of a batch starts at the model that sampled, where every ratio is 1 and the gradient is REINFORCE's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import Candidates, Stage
from seqmixer.algorithms.diagnostics import over
from seqmixer.algorithms.policy import PolicyGradient, PolicySettings
from seqmixer.algorithms.reference import fixed_log_prob
from seqmixer.algorithms.sampled import Learnt
from seqmixer.losses import clipped_ratio
from seqmixer.types import Batch, SequenceModel


class ClippedSettings(PolicySettings):
    """What all of them have."""

    updates: int = Field(1, ge=1, le=100)
    """Clipped ratios: how often the model is updated from one batch of samples."""
    clip: float = Field(0.2, gt=0, lt=1)
    """Clipped ratios: a word, or a sentence, teaches no more once it is so much more or less likely than it was when it
    was sampled, as a share."""
    clip_high: float | None = Field(None, gt=0)
    """Clipped ratios: how much more likely, where that is to be another share than how much less. Default: clip."""

    @classmethod
    def unread(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        if values.get("updates", cls.model_fields["updates"].default) > 1:
            return super().unread(values)
        why = "is read with algorithm.updates of 2 or more: in the first update every ratio is 1; remove it"
        return {**super().unread(values), **dict.fromkeys(cls.of_ratios(), why)}

    @classmethod
    def of_ratios(cls) -> Sequence[str]:
        """The settings of ratios that are not 1."""
        return "clip", "clip_high"

    @property
    def learns_again(self) -> bool:
        return self.updates > 1


class ClippedGradient(PolicyGradient):
    """Policy gradients with PPO's clipped surrogate."""

    def __init__(
        self, *given: Any, updates: int = 1, clip: float = 0.2, clip_high: float | None = None, **rest: Any
    ) -> None:
        super().__init__(*given, **rest)
        self.updates = updates
        self.low, self.high = clip, clip if clip_high is None else clip_high

    def collect(self, model: SequenceModel, batch: Batch, stage: Stage, scheduled: Tensor) -> Candidates | None:
        found = super().collect(model, batch, stage, scheduled)
        if found is None or self.updates == 1:
            return found
        return replace(found, log_p=fixed_log_prob(model, batch.source, found.words))

    def improve(self, candidates: Candidates, log_p: Tensor, advantage: Tensor) -> Learnt:
        mask, before = candidates.generated, candidates.log_p
        log_ratio = self.log_ratio(log_p - (log_p.detach() if before is None else before), mask)  # (Bk, T)
        value = (clipped_ratio(log_ratio, advantage, mask, self.low, self.high) * self.weight(mask)).sum()
        if before is None:
            return Learnt(value)
        up, down = log_ratio > math.log1p(self.high), log_ratio < math.log1p(-self.low)
        return Learnt(value, {"clipped": over(torch.where(advantage > 0, up, down).float(), mask)})

    def log_ratio(self, log_ratio: Tensor, mask: Tensor) -> Tensor:
        """The log of the ratio that is clipped, from that of each word.  (Bk, T), (Bk, T) -> (Bk, T)"""
        return log_ratio

    def weight(self, mask: Tensor) -> Tensor | float:
        """What each sentence counts.  (Bk, T) -> (Bk, 1)"""
        return 1.0
