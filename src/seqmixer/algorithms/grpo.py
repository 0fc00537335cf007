"""Group relative policy optimisation, GRPO (Shao et al. 2024), and its variants: Dr. GRPO, GSPO."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import AlgorithmSettings, Candidates
from seqmixer.algorithms.clipped import ClippedGradient, ClippedSettings
from seqmixer.losses import sentence_ratio

Ratio = Literal["word", "sentence"]
EQUAL = 1e-5  # rewards of a source whose spread is below this share of them differ by rounding alone


class GrpoSettings(ClippedSettings):
    """[algorithm] with name = "grpo"."""

    baseline: ClassVar = "mean"

    name: Literal["grpo"] = "grpo"
    samples: int = Field(4, ge=2, le=1024)
    """How many sentences are sampled, and rewarded, for each source of a batch."""
    scale: bool = True
    """GRPO: divide advantages by the standard deviation of the rewards of their source. Off in Dr. GRPO."""
    by_length: bool = True
    """GRPO: divide the loss of a sentence by the number of its words. Off in Dr. GRPO."""
    ratio: Ratio = "word"
    """GRPO: what is clipped, the ratio of each word, or as in GSPO that of the sentence, the geometric mean of its
    words' ratios."""

    @classmethod
    def of_ratios(cls) -> Sequence[str]:
        return *super().of_ratios(), "ratio"


class Grpo(ClippedGradient):
    """The k samples of a source compete. GRPO, (3) and (4.1.2) of Shao et al., as a loss:

    L = sum_i 1/|w_i| sum_t - min(rho_it A_i, clip(rho_it, 1 - eps, 1 + eps) A_i)
    A_i = (r_i - mean(r)) / std(r)

    Dr. GRPO (Liu et al. 2025) has neither 1/|w_i| nor std(r). GSPO (Zheng et al. 2025), (5) and (7), clips one ratio of
    the sentence, (p(w_i) / p_old(w_i)) ^ (1/|w_i|), with a band of about 0.0003. The deviation is that over k - 1;
    where all rewards of a source are equal, A = 0. The KL term, which the papers add to the loss, is a part of the
    advantages (algorithms/reference.py says why), after their division.
    """

    Settings: ClassVar[type[AlgorithmSettings]] = GrpoSettings
    label: ClassVar[str] = "GRPO"

    def __init__(
        self, *given: Any, scale: bool = True, by_length: bool = True, ratio: Ratio = "word", **rest: Any
    ) -> None:
        super().__init__(*given, **rest)
        self.scale, self.by_length, self.ratio = scale, by_length, ratio

    def advantage(self, candidates: Candidates, log_p: Tensor, r_bar: Tensor) -> Tensor:
        better = candidates.to_go() - r_bar  # (Bk, T)
        if self.scale:
            r = candidates.reward().detach().view(-1, candidates.k, 1)  # (B, k, 1)
            spread = r.std(1, keepdim=True).expand_as(r).flatten(0, 1)  # (Bk, 1)
            equal = spread <= EQUAL * r.abs().amax(1, keepdim=True).expand_as(r).flatten(0, 1)
            better = torch.where(equal, 0, better / spread)
        return better - self.drift(candidates, log_p)

    def log_ratio(self, log_ratio: Tensor, mask: Tensor) -> Tensor:
        return sentence_ratio(log_ratio, mask) if self.ratio == "sentence" else log_ratio

    def weight(self, mask: Tensor) -> Tensor | float:
        return 1 / mask.sum(-1, keepdim=True).clamp(min=1) if self.by_length else 1.0
