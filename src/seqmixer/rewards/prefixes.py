"""The reward of every prefix of a sentence, from which each word is rewarded by what it adds (Wu et al. 2018)."""

from dataclasses import replace

import torch
from torch import Tensor

from seqmixer.rewards.starting import combined
from seqmixer.types import PAD, Reward, Rollout, repeat

ROWS = 16_384  # prefixes that are rewarded together, which bounds the memory that this takes


def of_prefixes(reward: Reward, rows: int = ROWS) -> Reward:
    """The reward of what stands before each word: of the first 0, 1, ... T - 1 words, without an end.  -> (B, T)

    Any reward of sentences will do. It is computed T times for each of them: built-in ones in a few calls on the
    device, a Python function word by word, which is slow.

    >>> from seqmixer.rewards.metric import METRICS
    >>> words = torch.tensor([[5, 6, 7, 2]])
    >>> of_prefixes(METRICS["rouge1"].reward)(Rollout(words, words.unsqueeze(1)))
    tensor([[0.0000, 0.3333, 0.6667, 1.0000]])
    """

    def every(rollout: Rollout) -> Tensor:
        steps = torch.arange(rollout.words.shape[1], device=rollout.words.device)  # (T,)
        some = max(1, rows // len(rollout.words))
        return torch.cat([reward(cut(rollout, n)).unflatten(0, (-1, len(n))) for n in steps.split(some)], 1)

    return combined(every, [reward])


def cut(rollout: Rollout, lengths: Tensor) -> Rollout:
    """Every sentence so many times in a row, cut after so many words.  (B, T), (n,) -> (B n, T)"""
    words, n = rollout.words, len(lengths)
    steps = torch.arange(words.shape[1], device=words.device)
    short = torch.where(steps < lengths.unsqueeze(-1), words.unsqueeze(1), PAD)  # (B, n, T)
    return replace(
        rollout,
        words=short.flatten(0, 1),
        references=repeat(rollout.references, n),
        source=None if rollout.source is None else repeat(rollout.source, n),
        meta=[meta for meta in rollout.meta for _ in range(n)],
    )
