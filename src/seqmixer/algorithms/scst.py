"""Self-critical sequence training, SCST (Rennie et al. 2017): a sample against what greedy search would write."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from seqmixer.algorithms.algorithm import AlgorithmSettings, Candidates, Stage
from seqmixer.algorithms.policy import PolicyGradient, PolicySettings
from seqmixer.decoding import greedy, sample
from seqmixer.types import Batch, SequenceModel


class ScstSettings(PolicySettings):
    """[algorithm] with name = "scst"."""

    baseline: ClassVar = "greedy"

    name: Literal["scst"] = "scst"


class Scst(PolicyGradient):
    """Eq. 11, where the reward of the greedy sentence is expected of every sample of its source; (8) and (9) there.

    dL/do_t = (r(w) - r(greedy)) (p(w | ...) - 1(w_t))

    The k samples of a source share one greedy sentence. It is decoded in the same pass, as the last of k + 1, and
    rewarded with them; nothing is learnt from it. Where the first s words are given, they are given to it as well.
    """

    Settings: ClassVar[type[AlgorithmSettings]] = ScstSettings
    label: ClassVar[str] = "SCST"

    def __init__(self, *given: Any, samples: int = 1, **rest: Any) -> None:
        super().__init__(*given, samples=samples + 1, **rest)

    def collect(self, model: SequenceModel, batch: Batch, stage: Stage, scheduled: Tensor) -> Candidates | None:
        every = super().collect(model, batch, stage, scheduled)
        return every and replace(every.take(slice(-1)), greedy=every.take(slice(-1, None)))

    def write(self, model: SequenceModel, source: Tensor, given: Tensor, forced: Tensor) -> Tensor:
        return self.generate(model, source, given, forced, self.choose)

    def choose(self, logits: Tensor) -> Tensor:
        """Sampled words, and the most likely one for the last sentence of each source.  (B (k+1), V) -> (B (k+1),)"""
        words = sample(logits).unflatten(0, (-1, self.samples))
        words[:, -1] = greedy(logits.unflatten(0, (-1, self.samples))[:, -1])
        return words.flatten()
