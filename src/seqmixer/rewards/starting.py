"""How rewards run: started before the scoring pass, collected after it, and replayed in captured steps if declared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from torch import Tensor

from seqmixer.kernels import overlapped, run_anew
from seqmixer.types import Reward, Rollout

Pending = Callable[[], Tensor]  # waits for the rewards that were begun.  -> (B,)
R = TypeVar("R", bound=Reward)

_replayable: WeakValueDictionary[int, Reward] = WeakValueDictionary()  # by identity: a wrapper is another reward


@dataclass(frozen=True)
class Startable:
    """A reward whose computation can be started first and collected later."""

    start: Callable[[Rollout], Pending]

    def __call__(self, rollout: Rollout) -> Tensor:
        return self.start(rollout)()


def replayable(reward: R) -> R:
    """Declare that a reward depends on the tensors of the rollout alone, through tensor operations.

    Then a training step that is captured on a CUDA device may replay it. All that Python adds stays as it was in the
    step that was captured: `rollout.meta`, a counter, a number drawn. So any other reward runs anew in every step,
    outside of a captured program.

    >>> @replayable
    ... def brevity(rollout: Rollout) -> Tensor:
    ...     return -(rollout.words > 2).sum(-1).float()
    >>> is_replayable(brevity), is_replayable(lambda rollout: brevity(rollout))
    (True, False)
    """
    _replayable[id(reward)] = reward
    return reward


def is_replayable(reward: Reward) -> bool:
    return _replayable.get(id(reward)) is reward


def combined(reward: R, parts: Iterable[Reward]) -> R:
    """A reward that is computed from other rewards is replayable if all of them are."""
    return replayable(reward) if all(map(is_replayable, parts)) else reward


def begin(reward: Reward, rollout: Rollout) -> Pending:
    """Start a reward. One that is not `Startable` runs when it is collected, or in parallel within a captured step.

    >>> import torch
    >>> pending = begin(lambda rollout: rollout.words.sum(-1), Rollout(torch.ones(2, 3), torch.ones(2, 1, 3)))
    >>> pending()
    tensor([3., 3.])
    """
    if not is_replayable(reward):
        run_anew("the reward is a Python function, which runs anew in every step")
    return (
        reward.start(rollout) if isinstance(reward, Startable) else overlapped(partial(reward, rollout), rollout.words)
    )
