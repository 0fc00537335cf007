"""ROUGE-N recall: the share of the reference's n-grams that the hypothesis has (Sec. 4, summarization).

Statistics, then score, as for BLEU; but a corpus is the mean of its sentences, not a score of pooled counts.
"""

import torch
from torch import Tensor

from seqmixer.rewards import ngrams
from seqmixer.types import Rollout


def statistics(words: Tensor, references: Tensor, n: int, start: int = 0) -> Tensor:
    """Clipped matches, n-grams of the hypothesis, n-grams of the reference.  (B, T), (B, R, L) -> (B, 3)

    Reference n-grams with UNK are left out, as released: no hypothesis could match them. With several references the
    row is that of the reference with the highest recall, the first of equals.
    """
    rows = _per_reference(words, references, n, start)  # (B, R, 3)
    best = _recall(rows).argmax(1)[:, None, None].expand(-1, 1, 3)  # (B, 1, 3)
    return rows.gather(1, best).squeeze(1)


def corpus(rows: Tensor) -> Tensor:
    """Mean of the sentences' recalls, in 0..100, as ROUGE is reported.  (..., n, 3) -> (...)"""
    return 100 * _recall(rows).mean(-1)


def recall(rollout: Rollout, n: int) -> Tensor:
    """The training reward of the authors' released code, in 0..1, unsmoothed.  -> (B,)

    ROUGE-N = matches / n-grams of the reference, and 0 where fewer than n words follow the s = rollout.start given
    ones in the hypothesis or in the reference. Only n-grams that touch what comes after those s words count. The
    release has one reference; of several the best one pays.
    """
    rows = _per_reference(rollout.words, rollout.references, n, rollout.start)  # (B, R, 3)
    hypothesis = ngrams.lengths(rollout.words).unsqueeze(1)  # (B, 1)
    shorter = torch.minimum(hypothesis, ngrams.lengths(rollout.references))  # (B, R)
    return (_recall(rows) * (shorter - rollout.start >= n)).amax(1)


def rouge2_recall(rollout: Rollout) -> Tensor:
    """ROUGE-2 recall, the paper's reward for summarization.  -> (B,)

    >>> words = torch.tensor([[5, 6, 7, 2]])
    >>> reference = torch.tensor([[[4, 5, 6, 2]]])
    >>> rouge2_recall(Rollout(words, reference))
    tensor([0.5000])
    """
    return recall(rollout, 2)


def _per_reference(words: Tensor, references: Tensor, n: int, start: int) -> Tensor:
    """The row of `statistics` for each reference.  (B, T), (B, R, L) -> (B, R, 3)"""
    matches = ngrams.matched(words, references, n, start)[-1].sum(-1)  # (B, R)
    hypothesis = ngrams.total(words, n, start).unsqueeze(1).expand_as(matches)
    reference = ngrams.total_known(references, n, start)
    return torch.stack([matches, hypothesis, reference], -1).float()


def _recall(rows: Tensor) -> Tensor:
    """(..., 3) -> (...); 0 where the reference has no n-gram."""
    return rows[..., 0] / rows[..., 2].clamp(min=1)
