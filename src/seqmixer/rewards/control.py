"""Controls: rewards that say nothing of a sentence. What training gains with them is not owed to the metric.

Choshen et al. (2020) gained about as much BLEU with a constant reward as with BLEU, without a baseline. Where rewards
are compared within the group of a source, a constant teaches nothing: there they are shuffled, so that their mean and
their spread stay as they are.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from seqmixer.rewards.starting import Pending, Startable, begin, combined, replayable
from seqmixer.types import Reward, Rollout


def constant(reward: Reward) -> Reward:
    """1 for every sentence; the reward itself is not computed."""
    return replayable(lambda rollout: torch.ones(len(rollout.words), device=rollout.words.device))


def shuffled_in_group(reward: Reward) -> Reward:
    """Each sentence has the reward of a random one of those for the same source, each reward once."""
    return shuffled(reward, lambda rollout: rollout.k)


def shuffled_in_batch(reward: Reward) -> Reward:
    """Each sentence has the reward of a random one of the batch, each reward once."""
    return shuffled(reward, lambda rollout: len(rollout.words))


def shuffled(reward: Reward, size: Callable[[Rollout], int]) -> Reward:
    """Rewards in a random order within each group of so many sentences in a row."""

    def start(rollout: Rollout) -> Pending:
        pending = begin(reward, rollout)

        def collect() -> Tensor:
            r = pending()  # (B,)
            group = torch.arange(len(r), device=r.device) // size(rollout)
            return r[(group + torch.rand(len(r), dtype=torch.double, device=r.device)).argsort()]

        return collect

    return combined(Startable(start), [reward])


Control = Literal["constant", "shuffled-in-group", "shuffled-in-batch"]
CONTROLS: Mapping[Control, Callable[[Reward], Reward]] = {
    "constant": constant,
    "shuffled-in-group": shuffled_in_group,
    "shuffled-in-batch": shuffled_in_batch,
}
