"""ROUGE-N: the n-grams that hypothesis and reference share (Sec. 4, summarization).

Statistics, then score, as for BLEU; but a corpus is the mean of its sentences, not a score of pooled counts.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from seqmixer.rewards import ngrams
from seqmixer.rewards.ngrams import best
from seqmixer.rewards.starting import replayable
from seqmixer.types import Rollout

Score = Callable[[Tensor], Tensor]  # (..., 3) rows -> (...) in 0..1: `recall` or `f1`


def recall(rows: Tensor) -> Tensor:
    """The share of the reference that the hypothesis has; 0 where there is nothing to share.  (..., 3) -> (...)"""
    return rows[..., 0] / rows[..., 2].clamp(min=1)


def f1(rows: Tensor) -> Tensor:
    """The harmonic mean of precision and recall, 2 matches / (hypothesis + reference).  (..., 3) -> (...)"""
    return 2 * rows[..., 0] / (rows[..., 1] + rows[..., 2]).clamp(min=1)


def statistics(words: Tensor, references: Tensor, n: int, score: Score, start: int | Tensor = 0) -> Tensor:
    """Clipped matches, n-grams of the hypothesis, n-grams of the reference.  (B, T), (B, R, L) -> (B, 3)

    Reference n-grams with UNK are skipped, as released: no hypothesis could match them. With several references the
    row is that of the reference with the highest `score`, the first of equals.

    >>> words = torch.tensor([[5, 6, 7, 2]])
    >>> row = statistics(words, torch.tensor([[[4, 5, 6, 9, 2]]]), 2, f1)
    >>> row, recall(row), f1(row)
    (tensor([[1., 2., 3.]]), tensor([0.3333]), tensor([0.4000]))
    """
    rows = _per_reference(words, references, n, start)  # (B, R, 3)
    return best(rows, score(rows), references)


def corpus(rows: Tensor, score: Score) -> Tensor:
    """Mean of the sentences' scores, in 0..100, as ROUGE is reported.  (..., n, 3) -> (...)"""
    return 100 * score(rows).mean(-1)


def released_recall(rollout: Rollout, n: int) -> Tensor:
    """The training reward of the authors' released code, in 0..1, unsmoothed.  -> (B,)

    ROUGE-N = matches / n-grams of the reference, and 0 where fewer than n words follow the s = rollout.start forced
    ones in the hypothesis or in the reference. Only n-grams that touch what comes after those s words count. The
    release has one reference; of several the best one counts.
    """
    rows = _per_reference(rollout.words, rollout.references, n, rollout.start)  # (B, R, 3)
    hypothesis = ngrams.lengths(rollout.words).unsqueeze(1)  # (B, 1)
    shorter = torch.minimum(hypothesis, ngrams.lengths(rollout.references))  # (B, R)
    return (recall(rows) * (shorter - rollout.start >= n)).amax(1)


@replayable
def rouge2_recall(rollout: Rollout) -> Tensor:
    """ROUGE-2 recall, the paper's reward for summarization.  -> (B,)

    >>> words = torch.tensor([[5, 6, 7, 2]])
    >>> reference = torch.tensor([[[4, 5, 6, 2]]])
    >>> rouge2_recall(Rollout(words, reference))
    tensor([0.5000])
    """
    return released_recall(rollout, 2)


def _per_reference(words: Tensor, references: Tensor, n: int, start: int | Tensor) -> Tensor:
    """The row of `statistics` for each reference.  (B, T), (B, R, L) -> (B, R, 3)"""
    matches = ngrams.matched(words, references, n, start)[-1].sum(-1)  # (B, R)
    hypothesis = ngrams.total(words, n, start).unsqueeze(1).expand_as(matches)
    reference = ngrams.total_known(references, n, start)
    return torch.stack([matches, hypothesis, reference], -1).float()
