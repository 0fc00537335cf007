"""BLEU-4: the corpus score that is reported, and the sentence reward that is trained on (Sec. 4).

Statistics, then score (as sacreBLEU): a sentence is a row of ten counts, a corpus the sum of its rows.
"""

import torch
from torch import Tensor

from seqmixer.rewards import ngrams
from seqmixer.types import Rollout

ORDER = 4


def statistics(words: Tensor, references: Tensor, start: int = 0) -> Tensor:
    """Matches of order 1-4, n-grams of order 1-4, hypothesis length, reference length.  (B, T), (B, R, L) -> (B, 10)

    With several references a gram's matches are clipped by the reference that has it most often, and the reference
    length is the one closest to the hypothesis' length, the shorter of two.
    """
    matches = [paid.any(1).sum(-1) for paid in ngrams.matched(words, references, ORDER, start)]
    totals = [ngrams.total(words, n, start) for n in range(1, ORDER + 1)]
    sizes = [ngrams.lengths(words), ngrams.closest_length(words, references)]
    return torch.stack([*matches, *totals, *sizes], -1).float()  # (B, 10)


def corpus(rows: Tensor) -> Tensor:
    """BLEU in 0..100 from the rows of a corpus, unsmoothed: 0 when an order has no match.  (..., n, 10) -> (...)

    BLEU = 100 exp(mean_n log p_n) min(1, exp(1 - reference length / hypothesis length))
    """
    matches, totals, hypothesis, reference = _split(rows.sum(-2))
    log_precision = (matches / totals.clamp(min=1)).log().mean(-1)  # log 0 is -inf, and exp(-inf) is 0
    log_brevity = (1 - reference / hypothesis.clamp(min=1)).clamp(max=0)
    return 100 * (log_precision + log_brevity).exp()


def sentence_bleu(rollout: Rollout) -> Tensor:
    """The training reward of the authors' released code, in 0..1.  -> (B,)

    N = min(4, hypothesis length - s, reference length - s), and the reward is 0 where N < 1
    BLEU = exp(1/N sum_{n=1..N} log (matches_n + 1) / (total_n + 1)) b
    b = exp(1 - (reference length + 1) / hypothesis length) where the hypothesis is shorter than the reference, else 1

    s = rollout.start words were given: only n-grams that touch what comes after them count, while the lengths are
    those of whole sequences; EOS is part of neither. The release has one reference; several are counted as in
    `statistics`, by the maximum and by the closest length.

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


def _split(row: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(..., 10) -> matches (..., 4), totals (..., 4), hypothesis length (...), reference length (...)"""
    return row[..., :ORDER], row[..., ORDER : 2 * ORDER], row[..., 2 * ORDER], row[..., 2 * ORDER + 1]
