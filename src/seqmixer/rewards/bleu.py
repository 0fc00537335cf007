"""BLEU: the corpus score that is reported, and sentence scores to train on (Sec. 4).

Statistics, then score (as sacreBLEU): a sentence is a row of ten counts, a corpus the sum of its rows. Smoothing is a
function of counts, defined as in sacreBLEU (after Chen and Cherry, 2014).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from seqmixer.rewards import ngrams
from seqmixer.rewards.starting import replayable
from seqmixer.types import Rollout

ORDER = 4

Smoothing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (..., order) matches, totals -> what is divided by what


def statistics(words: Tensor, references: Tensor, start: int | Tensor = 0, order: int = ORDER) -> Tensor:
    """Matches of order 1-4, n-grams of order 1-4, hypothesis length, reference length.  (B, T), (B, R, L) -> (B, 10)

    With several references a gram's matches are clipped by the reference that has it most often, and the reference
    length is the one closest to the hypothesis' length, the shorter of two.
    """
    matches = [counted.any(1).sum(-1) for counted in ngrams.matched(words, references, order, start)]
    totals = [ngrams.total(words, n, start) for n in range(1, order + 1)]
    sizes = [ngrams.lengths(words), ngrams.closest_length(words, references)]
    return torch.stack([*matches, *totals, *sizes], -1).float()  # (B, 2 order + 2)


def unsmoothed(matches: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
    """An order without a match makes the score 0."""
    return matches, totals


def halving(matches: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
    """The first order without a match has 1/2, the next 1/4, ...: "exp" in sacreBLEU, as NIST's mteval-v13a."""
    halved = 0.5 ** (matches == 0).cumsum(-1)  # (..., order)
    return torch.where(matches > 0, matches, halved), totals


def score(rows: Tensor, smoothing: Smoothing = unsmoothed, effective_order: bool = False) -> Tensor:
    """BLEU of each row in 0..1, a sentence's or a corpus' sum; 0 where no word matches.  (..., 10) -> (...)

    BLEU = exp(mean_n log p_n) min(1, exp(1 - reference length / hypothesis length))

    The mean is over all orders, and p_n = 0 where there is no n-gram; with `effective_order` only over the orders that
    the hypothesis is long enough to have.

    >>> words = torch.tensor([[5, 6, 7, 2]])
    >>> rows = statistics(words, words.unsqueeze(1))
    >>> score(rows), score(rows, effective_order=True)
    (tensor([0.]), tensor([1.]))
    """
    matches, totals, hypothesis, reference = _split(rows)
    above, below = smoothing(matches, totals)  # (..., order)
    there = below > 0
    log_p = (above / torch.where(there, below, 1)).log()  # log 0 is -inf, and exp(-inf) is 0
    log_p = torch.where(there, log_p, 0 if effective_order else -math.inf)
    orders = there.sum(-1).clamp(min=1) if effective_order else matches.shape[-1]
    log_brevity = (1 - reference / hypothesis.clamp(min=1)).clamp(max=0)
    return (log_p.sum(-1) / orders + log_brevity).exp() * (matches > 0).any(-1)


def corpus(rows: Tensor, smoothing: Smoothing = unsmoothed, effective_order: bool = False) -> Tensor:
    """BLEU in 0..100 from the rows of a corpus: the score of their sum.  (..., n, 10) -> (...)"""
    return 100 * score(rows.sum(-2), smoothing, effective_order)


def of_sentences(rows: Tensor) -> Tensor:
    """Each sentence's BLEU in 0..100, as sacreBLEU's `sentence_bleu` has it.  (..., 10) -> (...)"""
    return 100 * score(rows, halving, effective_order=True)


def mean_of_sentences(rows: Tensor) -> Tensor:
    """(..., n, 10) -> (...)"""
    return of_sentences(rows).mean(-1)


@replayable
def sentence_bleu(rollout: Rollout) -> Tensor:
    """The training reward of the authors' released code, in 0..1.  -> (B,)

    N = min(4, hypothesis length - s, reference length - s), and the reward is 0 where N < 1
    BLEU = exp(1/N sum_{n=1..N} log (matches_n + 1) / (total_n + 1)) b
    b = exp(1 - (reference length + 1) / hypothesis length) where the hypothesis is shorter than the reference, else 1

    The first s = rollout.start words are forced: only n-grams that touch what comes after them count, while the lengths
    are those of the sequences with them; EOS is part of neither. The release has one reference; several are counted as
    in `statistics`, by the maximum and by the closest length.

    >>> words = torch.tensor([[5, 6, 7, 2], [5, 2, 0, 0]])
    >>> reference = torch.tensor([[[5, 6, 7, 2]], [[5, 6, 7, 2]]])
    >>> sentence_bleu(Rollout(words, reference))
    tensor([1.0000, 0.0498])
    """
    matches, totals, hypothesis, reference = _split(statistics(rollout.words, rollout.references, rollout.start))
    orders = torch.arange(1, ORDER + 1, device=matches.device)
    highest = (torch.minimum(hypothesis, reference) - rollout.start).clamp(max=ORDER)  # (B,) N
    used = orders <= highest.unsqueeze(-1)  # (B, 4)
    log_precision = (((matches + 1) / (totals + 1)).log() * used).sum(-1) / highest.clamp(min=1)  # (B,)
    too_short = 1 - (reference + 1) / hypothesis.clamp(min=1)  # (B,)
    log_brevity = torch.where(hypothesis < reference, too_short, 0)
    return (log_precision + log_brevity).exp() * (highest > 0)


@replayable
def best_sentence_bleu(rollout: Rollout) -> Tensor:
    """The highest `sentence_bleu` over the references: of captions "the maximum [...] across the five" (Sec. 4.3).

    >>> words = torch.tensor([[5, 6, 7, 2]])
    >>> best_sentence_bleu(Rollout(words, torch.tensor([[[8, 6, 7, 2], [5, 6, 7, 2]]])))
    tensor([1.])
    """
    count = rollout.references.shape[1]
    words = rollout.words.unsqueeze(1).expand(-1, count, -1).flatten(0, 1)  # (B R, T)
    each = sentence_bleu(Rollout(words, rollout.references.flatten(0, 1).unsqueeze(1), rollout.start))  # (B R,)
    return each.unflatten(0, (-1, count)).amax(-1)  # (B,)


def best_row(words: Tensor, references: Tensor) -> Tensor:
    """(B, T), (B, R, L) -> (B, 1)"""
    return best_sentence_bleu(Rollout(words, references)).unsqueeze(-1)


def mean_of_best(rows: Tensor) -> Tensor:
    """(..., n, 1) -> (...) in 0..100"""
    return 100 * rows[..., 0].mean(-1)


def _split(row: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(..., 10) -> matches (..., 4), totals (..., 4), hypothesis length (...), reference length (...)"""
    order = row.shape[-1] // 2 - 1
    return row[..., :order], row[..., order : 2 * order], row[..., -2], row[..., -1]
