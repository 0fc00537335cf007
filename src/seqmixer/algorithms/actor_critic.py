"""Actor-critic (Bahdanau et al. 2017): a second network, the critic, learns the value of each word."""

from copy import deepcopy
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from seqmixer.algorithms.algorithm import AlgorithmSettings, Candidates, Stage
from seqmixer.algorithms.critic import Critic
from seqmixer.algorithms.policy import PolicyGradient, PolicySettings
from seqmixer.algorithms.sampled import Learnt
from seqmixer.losses import baseline_error, differences
from seqmixer.types import Batch, Reward, SequenceModel


class ActorCriticSettings(PolicySettings):
    """[algorithm] with name = "actor-critic"."""

    baseline: ClassVar = "critic"

    name: Literal["actor-critic"] = "actor-critic"
    shaped: bool = True
    """Policy gradients: reward each word by what it adds to the reward of the sentence so far. A Python function is
    then called for every prefix of a sentence."""
    trace: float = Field(0.9, ge=0, le=1)
    """Actor-critic: lambda. At 1 a word's value is the reward that came after it, at 0 its own reward and what the
    critic expects after it, as in the paper."""
    critic_delay: float = Field(0.99, ge=0, lt=1)
    """Actor-critic: how much of the delayed critic, whose values the critic learns from, stays in each update."""


class ActorCritic(PolicyGradient):
    """Words become more likely by their advantage: their value less the one that the critic expected before them.

    delta_t = r_t + V_{t+1} - V_t,   A_t = delta_t + lambda delta_{t+1} + lambda^2 delta_{t+2} + ...
    V_t learns  V'_t + A'_t,         where ' is by a delayed copy of the critic

    As in the paper, r_t is what word t adds to the reward, and the critic reads the reference. What differs: the critic
    values prefixes, V_t, where the paper's has a value Q of every word of the vocabulary that could follow; and the
    sampled word alone is learnt from, where the paper sums over all of them, Algorithm 1. So no (B, T, V) is held.
    Lambda is 0 there. There is no epoch for the critic alone, no delayed actor, and no penalty on values.
    """

    Settings: ClassVar[type[AlgorithmSettings]] = ActorCriticSettings
    label: ClassVar[str] = "actor-critic"

    def __init__(
        self, reward: Reward, baseline: Critic, *given: Any, trace: float = 0.9, critic_delay: float = 0.99, **rest: Any
    ) -> None:
        super().__init__(reward, baseline, *given, **rest)
        self.trace, self.critic_delay = trace, critic_delay
        self.delayed = deepcopy(baseline).requires_grad_(False)

    def collect(self, model: SequenceModel, batch: Batch, stage: Stage, scheduled: Tensor) -> Candidates | None:
        found = super().collect(model, batch, stage, scheduled)
        if found is not None:
            self.follow()
        return found

    @torch.no_grad()
    def follow(self) -> None:
        """The delayed critic moves towards the critic."""
        for old, new in zip(self.delayed.parameters(), self.baseline.parameters(), strict=True):
            old.lerp_(new, 1 - self.critic_delay)

    def learn(self, batch: Batch, candidates: Candidates, h: Tensor, log_p: Tensor) -> Learnt:
        g, mask = candidates.to_go(), candidates.generated
        v, delayed = self.baseline(h, candidates, batch), self.delayed(h, candidates, batch)  # (Bk, T)
        advantage = differences(g, v, mask, self.trace) - self.drift(candidates, log_p)
        learnt = self.improve(candidates, log_p, advantage)
        error = baseline_error(v, delayed + differences(g, delayed, mask, self.trace), mask)
        return learnt._replace(own=error, expected=v if candidates.before is None else v + candidates.before())
