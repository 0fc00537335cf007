"""What is worth watching while a model is paid for its own words: most failures show here first."""

import torch
from torch import Tensor

from seqmixer.losses import entropy, masked_mean
from seqmixer.types import EOS, PAD, Batch


@torch.no_grad()
def measures(o: Tensor, words: Tensor, free: Tensor, r: Tensor, r_bar: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Means over what the model wrote: `free` (B, T) is true there; sentences it wrote nothing of do not count.

    reward, reward_spread   mean and deviation over the batch; spread 0 means nothing to learn from
    advantage               mean of r - rbar_t; far from 0 means the baseline lags behind
    baseline_error          mean of (r - rbar_t)^2; near reward_spread^2 means the baseline knows the mean only
    entropy                 nats per step; falling to 0 means the model has stopped exploring
    length_ratio            words written / words in the target; drifting from 1 means the reward pays for length
    cut                     share of sentences with no EOS before T; rising means the model no longer stops
    """
    own = free.any(-1)  # (B,)
    advantage = r.unsqueeze(-1) - r_bar  # (B, T)
    reward = masked_mean(r, own)
    return {
        "reward": reward,
        "reward_spread": masked_mean((r - reward).square(), own).sqrt(),
        "advantage": masked_mean(advantage, free),
        "baseline_error": masked_mean(advantage.square(), free),
        "entropy": masked_mean(entropy(o), free),
        "length_ratio": (words != PAD).sum() / batch.mask.sum(),
        "cut": masked_mean(((words != EOS) & (words != PAD))[:, -1].float(), own),
    }
