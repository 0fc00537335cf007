"""Measures of a model's samples for the log: most failures of sequence-level training show here first."""

from collections.abc import Mapping

import torch
from torch import Tensor

from seqmixer.parallel.ranks import ratio
from seqmixer.types import EOS, PAD, Batch, tally


@torch.no_grad()
def diagnostics(
    log_p: Tensor, words: Tensor, free: Tensor, r: Tensor, r_bar: Tensor | None, batch: Batch, samples: int = 1
) -> dict[str, Tensor]:
    """Of what the model wrote: `free` (B, T) is true there; sentences it wrote nothing of do not count.  -> tallies

    Where no reward is expected at each step (B, T), there is no advantage and no explained.

    reward, reward_spread   mean, and deviation over the batch; spread 0 means nothing to learn from
    advantage               mean of r - rbar_t; far from 0 means the baseline lags behind
    explained               share of the rewards' variance that the baseline takes off, by words: 1 - the sum of
                            (r - rbar_t)^2 / that of (r - mean)^2; at 0 or below it is no better than the mean,
                            at 1 nothing is left to learn from
    entropy                 nats per step, estimated by -log p of the sampled words; falling to 0 means the model has
                            stopped exploring
    length_ratio            words written / words in the target; drifting from 1 means the reward gives for length
    cut                     share of sentences with no EOS before T; rising means the model no longer stops
    own_words               share of the words that the model wrote; the rest was given
    distinct                share of the pairs of sentences that differ, each for another source; at 0 the model
                            writes the same for every one
    """
    own = free.any(-1)  # (B,)
    against = {} if r_bar is None else compared(r.unsqueeze(-1) - r_bar, r, free)
    return {
        "reward": over(r, own),
        "reward_spread": over(deviation(r, own).expand_as(r), own),
        **against,
        "entropy": over(-log_p, free),
        "length_ratio": tally((words != PAD).sum(), batch.mask.sum()),
        "cut": over(((words != EOS) & (words != PAD))[:, -1], own),
        "own_words": over(free, words != PAD),
        "distinct": distinct(words, own, samples),
    }


def compared(advantage: Tensor, r: Tensor, free: Tensor) -> dict[str, Tensor]:
    """What is left of the rewards (B,) once those expected are taken off, (B, T)."""
    return {"advantage": over(advantage, free), "explained": explained(advantage, r, free)}


def over(values: Tensor, mask: Tensor) -> Tensor:
    """The tally of values where `mask` is true."""
    return tally(torch.where(mask, values, 0).sum(), mask.sum())


def deviation(r: Tensor, own: Tensor) -> Tensor:
    """Of the rewards (B,) where `own` is true, in the batch of all processes.  -> ()"""
    return ratio(*scatter(r, own)).sqrt()


def scatter(values: Tensor, mask: Tensor) -> Tensor:
    """The tally of squared distances to the mean, where `mask` is true; the mean is that of all processes.  -> (2,)"""
    return over((values - ratio(*over(values, mask))).square(), mask)


def explained(advantage: Tensor, r: Tensor, free: Tensor) -> Tensor:
    """How much of the variance of r (B,) about its mean over the words is not left in the advantage (B, T).  -> (2,)"""
    there, _ = scatter(r.unsqueeze(-1).expand_as(advantage), free)  # ()
    left, _ = over(advantage.square(), free)  # ()
    return tally(there - left, there)


def distinct(words: Tensor, own: Tensor, samples: int = 1) -> Tensor:
    """The share of the pairs of sentences (B, T), each for another source, that differ, where `own` (B,) is true.

    So many samples in a row are for one source. Equal sentences are counted by their hashes of 64 bits, in the time
    that sorting takes.  -> (2,), a tally over the pairs of one rank
    """
    sentence, n = hashed(words), own.sum()  # (B,), ()
    rows, mine = sentence.view(-1, samples), own.view(-1, samples)  # (B/k, k)
    same_source = mine.unsqueeze(1) & mine.unsqueeze(2)  # (B/k, k, k), each sentence beside itself as well
    same = same_source & (rows.unsqueeze(1) == rows.unsqueeze(2))
    pairs = (n * n - same_source.sum()) // 2
    equal = equal_pairs(sentence, own) + (n - same.sum()) // 2
    return tally(pairs - equal, pairs)


def equal_pairs(keys: Tensor, mask: Tensor) -> Tensor:
    """How many pairs of equal keys (B,) there are where the mask is true.  -> ()"""
    keys, order = keys.sort()
    mask = mask[order]
    before = mask.cumsum(0) - mask.long()  # (B,) counted ones that stand before each
    first = torch.searchsorted(keys, keys)  # (B,) where the run of its key begins
    return ((before - before[first]) * mask).sum()


def hashed(rows: Tensor) -> Tensor:
    """A number of 64 bits for each row of integers, equal where rows are (SplitMix64's mixing).  (B, T) -> (B,)"""
    place = torch.arange(1, rows.shape[-1] + 1, device=rows.device)
    mixed = rows + place * -0x61C8864680B583EB  # (B, T) int64, which wraps
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        mixed = (mixed ^ (mixed >> shift)) * factor
    return (mixed ^ (mixed >> 31)).sum(-1)


def symptoms(means: Mapping[str, float]) -> list[str]:
    """What the diagnostics of an epoch say of its health, in plain words; nothing where all is well.

    Only where the model wrote most of the words: the few it writes in the first stages of MIXER are mostly certain.

    >>> well = {"own_words": 1.0, "reward_spread": 0.2, "entropy": 0.7, "cut": 0.1, "length_ratio": 1.2, "distinct": 1}
    >>> symptoms(well | {"cut": 0.9})
    ['90 % of the sentences do not end before T: does the reward have a length penalty? Add one, such as length']
    """
    if means.get("own_words", 0.0) < 0.5:
        return []
    found = []
    if means["reward_spread"] < 1e-6:
        found.append("every sentence has the same reward, so there is nothing to learn from: look at the reward")
    if means.get("explained", 0.0) > 0.98:
        found.append(
            f"{100 * means['explained']:.0f} % of what rewards differ by is expected, so there is little to learn "
            "from: are the sentences for one source all alike? Lower training.rl_lr, or stop earlier"
        )
    if means["entropy"] < 0.02:
        found.append(
            f"the model no longer explores (entropy {means['entropy']:.3f}): lower training.rl_lr, or stop earlier"
        )
    if means.get("distinct", 1.0) < 0.1:  # batches of one sentence have no pairs
        found.append(
            f"{100 * (1 - means['distinct']):.0f} % of the pairs of sentences are equal, whatever the source: begin "
            "again with a lower training.rl_lr, or set algorithm.kl"
        )
    if means["cut"] > 0.5:
        found.append(
            f"{100 * means['cut']:.0f} % of the sentences do not end before T: does the reward have a length "
            "penalty? Add one, such as length"
        )
    if not 0.5 < means["length_ratio"] < 1.5:
        times = f"{means['length_ratio']:.2f} times"
        found.append(f"sentences have {times} the words of their references: what does the reward favour?")
    return found
