"""What policy gradients have in common: a word becomes more likely by its reward less the one that was expected."""

from dataclasses import replace
from functools import cache
from typing import Any

from torch import Tensor, nn

from seqmixer.algorithms.algorithm import Candidates, Parts, Stage
from seqmixer.algorithms.baselines import BASELINES
from seqmixer.algorithms.sampled import Learnt, Sampled, SampledSettings
from seqmixer.decoding import generate
from seqmixer.losses import baseline_error, policy_gradient
from seqmixer.rewards import begin, of_prefixes
from seqmixer.types import Batch, Generate, Reward, SequenceModel


class PolicySettings(SampledSettings):
    """What all of them have. `baseline` is a setting, or fixed by the class."""

    shaped: bool = False
    """Policy gradients: reward each word by what it adds to the reward of the sentence so far. A Python function is
    then called for every prefix of a sentence."""


class PolicyGradient(Sampled):
    """Learns from the advantage of each word; a subclass says by which baseline, or by which objective."""

    def __init__(
        self, reward: Reward, baseline: nn.Module, generate: Generate = generate, shaped: bool = False, **rest: Any
    ) -> None:
        super().__init__(reward, generate=generate, **rest)
        self.baseline = baseline
        self.shaped = shaped

    @classmethod
    def arguments(cls, settings: Any, parts: Parts) -> dict[str, Any]:
        baseline = BASELINES[settings.baseline](parts)
        return super().arguments(settings, parts) | {"baseline": baseline}

    def collect(self, model: SequenceModel, batch: Batch, stage: Stage, scheduled: Tensor) -> Candidates | None:
        found = super().collect(model, batch, stage, scheduled)
        if found is None or not self.shaped:
            return found
        rollout = batch.repeat(found.k).rollout(found.words, self.start(scheduled))
        return replace(found, before=cache(begin(of_prefixes(self.reward), rollout)))

    def learn(self, batch: Batch, candidates: Candidates, h: Tensor, log_p: Tensor) -> Learnt:
        r_bar = self.baseline(h, candidates, batch)  # (Bk, T)
        learnt = self.improve(candidates, log_p, self.advantage(candidates, log_p, r_bar))
        error = baseline_error(r_bar, candidates.to_go(), candidates.generated)
        return learnt._replace(own=error, expected=r_bar if candidates.before is None else r_bar + candidates.before())

    def advantage(self, candidates: Candidates, log_p: Tensor, r_bar: Tensor) -> Tensor:
        """What a word is better by than was expected.  -> (Bk, T)"""
        return candidates.to_go() - self.drift(candidates, log_p) - r_bar

    def improve(self, candidates: Candidates, log_p: Tensor, advantage: Tensor) -> Learnt:
        """What makes the words more likely by their advantage: REINFORCE."""
        return Learnt(policy_gradient(log_p, advantage, candidates.generated))
