"""The reward expected at each step, which is subtracted from the reward (Sec. 3.2.1).

(h, candidates, batch) -> (Bk, T), from the hidden states (Bk, T, H) of the candidates, and where that is not enough
from them and the batch with a row for each. A sentence's own reward must not enter what is expected of it, or Eq. 11 is
biased.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from seqmixer.algorithms.algorithm import Candidates, Parts
from seqmixer.algorithms.critic import Critic
from seqmixer.errors import ConfigError


class LinearBaseline(nn.Module):
    """rbar_t: the reward expected at step t, a linear regressor of the hidden state (Sec. 3.2.1).

    "In order to prevent feedback loops, we do not backpropagate this error through the recurrent network." The state is
    brought to length 1 first: a step of the regressor's Adam then moves rbar as far whatever the size of the model. No
    matrix product, which autocast would take in bfloat16.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))
        self.bias = nn.Parameter(torch.tensor(0.01))  # as released

    def forward(self, h: Tensor, *given: object) -> Tensor:
        return (normalize(h.detach(), dim=-1) * self.weight).sum(-1) + self.bias  # (B, T, H) x (H,) -> (B, T)


class StepBaseline(nn.Module):
    """The released baseline: a linear regressor of its own for each step."""

    def __init__(self, features: int, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length, features))
        self.bias = nn.Parameter(torch.full((length,), 0.01))

    def forward(self, h: Tensor, *given: object) -> Tensor:
        return (normalize(h.detach(), dim=-1) * self.weight).sum(-1) + self.bias  # (B, T, H) x (T, H) -> (B, T)


class LeaveOneOut(nn.Module):
    """The mean reward of the other sentences sampled for the same source; nothing is learnt."""

    def forward(self, h: Tensor, candidates: Candidates, *given: object) -> Tensor:
        r = of_sources(candidates)  # (B, k, T or 1)
        if candidates.k < 2:
            raise ConfigError(f"leave-one-out compares 2 samples of a source or more, got {candidates.k}; set samples")
        return ((r.sum(1, keepdim=True) - r) / (candidates.k - 1)).flatten(0, 1).expand(h.shape[:-1])


class GroupMean(nn.Module):
    """The mean reward of all sentences sampled for the same source. Its own is among them: advantages are (k - 1) / k
    times those of leave-one-out."""

    def forward(self, h: Tensor, candidates: Candidates, *given: object) -> Tensor:
        r = of_sources(candidates)  # (B, k, T or 1)
        return r.mean(1, keepdim=True).expand_as(r).flatten(0, 1).expand(h.shape[:-1])


class GreedyReward(nn.Module):
    """The reward of the greedy sentence for the same source, of candidates that have one."""

    def forward(self, h: Tensor, candidates: Candidates, *given: object) -> Tensor:
        if candidates.greedy is None:
            raise ConfigError("the candidates have no greedy sentence to be compared with")
        return candidates.greedy.to_go().repeat_interleave(candidates.k, 0).expand(h.shape[:-1])


class NoBaseline(nn.Module):
    """Nothing is expected: all words of a sentence are made more likely by its reward."""

    def forward(self, h: Tensor, *given: object) -> Tensor:
        return h.new_zeros(h.shape[:-1])  # (B, T)


def of_sources(candidates: Candidates) -> Tensor:
    """The rewards to come, by source.  -> (B, k, T), or (B, k, 1)"""
    return candidates.to_go().unflatten(0, (-1, candidates.k))


Baseline = Literal["linear", "step", "leave-one-out", "critic", "none"]  # that a user may choose
BASELINES: Mapping[str, Callable[[Parts], nn.Module]] = {
    "linear": lambda parts: LinearBaseline(parts.features),
    "step": lambda parts: StepBaseline(parts.features, parts.length),
    "leave-one-out": lambda parts: LeaveOneOut(),
    "critic": lambda parts: Critic(parts.words, parts.features, parts.length),
    "none": lambda parts: NoBaseline(),
    "mean": lambda parts: GroupMean(),
    "greedy": lambda parts: GreedyReward(),
}
