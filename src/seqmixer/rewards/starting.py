"""Rewards that take their time: begun before the scoring pass, collected after it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from seqmixer.kernels import aside
from seqmixer.types import Reward, Rollout

Pending = Callable[[], Tensor]  # waits for the rewards that were begun.  -> (B,)


@dataclass(frozen=True)
class Startable:
    """A reward like any other, whose work may also be begun first and collected later."""

    start: Callable[[Rollout], Pending]

    def __call__(self, rollout: Rollout) -> Tensor:
        return self.start(rollout)()


def begin(reward: Reward, rollout: Rollout) -> Pending:
    """Begin a reward that can be begun; another is computed when it is collected, or beside what is done until then.

    >>> import torch
    >>> pending = begin(lambda rollout: rollout.words.sum(-1), Rollout(torch.ones(2, 3), torch.ones(2, 1, 3)))
    >>> pending()
    tensor([3., 3.])
    """
    return reward.start(rollout) if isinstance(reward, Startable) else aside(partial(reward, rollout), rollout.words)
