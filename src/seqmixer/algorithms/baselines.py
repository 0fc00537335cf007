"""The reward expected at each step, which is subtracted from the reward (Sec. 3.2.1).

(h, r) -> (B, T): h (B, T, H) are the hidden states, r (B/k, k) the rewards, one row for each source that k sentences
were sampled for. A sentence's own reward must not enter what is expected of it, or Eq. 11 is biased.
The regressors do without r.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

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

    def forward(self, h: Tensor, r: Tensor | None = None) -> Tensor:
        return (normalize(h.detach(), dim=-1) * self.weight).sum(-1) + self.bias  # (B, T, H) x (H,) -> (B, T)


class StepBaseline(nn.Module):
    """The released baseline: a linear regressor of its own for each step."""

    def __init__(self, features: int, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length, features))
        self.bias = nn.Parameter(torch.full((length,), 0.01))

    def forward(self, h: Tensor, r: Tensor | None = None) -> Tensor:
        return (normalize(h.detach(), dim=-1) * self.weight).sum(-1) + self.bias  # (B, T, H) x (T, H) -> (B, T)


class LeaveOneOut(nn.Module):
    """The mean reward of the other sentences sampled for the same source; nothing is learnt."""

    def forward(self, h: Tensor, r: Tensor) -> Tensor:
        if r.shape[-1] < 2:
            raise ConfigError(f"leave-one-out compares 2 samples of a source or more, got {r.shape[-1]}; set samples")
        others = (r.sum(-1, keepdim=True) - r) / (r.shape[-1] - 1)  # (B/k, k)
        return others.reshape(-1, 1).expand(h.shape[:-1])  # (B, T)


Baseline = Literal["linear", "step", "leave-one-out"]
BASELINES: Mapping[Baseline, Callable[[int, int], nn.Module]] = {  # (H, T) -> a baseline
    "linear": lambda features, length: LinearBaseline(features),
    "step": StepBaseline,
    "leave-one-out": lambda features, length: LeaveOneOut(),
}
