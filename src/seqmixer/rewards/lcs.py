"""ROUGE-L: the longest common subsequence of hypothesis and reference (Lin, 2004).

A row is one of ROUGE-N's with words for n-grams, so that `rouge.recall`, `rouge.f1` and `rouge.corpus` score it.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqmixer.rewards import ngrams
from seqmixer.rewards.ngrams import best
from seqmixer.rewards.rouge import Score


def statistics(words: Tensor, references: Tensor, score: Score) -> Tensor:
    """Words in common order, words of the hypothesis, words of the reference.  (B, T), (B, R, L) -> (B, 3)

    UNK in a reference does not count, as in ROUGE-N. With several references the row is that of the reference with the
    highest `score`, the first of equals; `rouge_score` takes the one with the highest F1.

    >>> from seqmixer.rewards.rouge import f1
    >>> words = torch.tensor([[5, 9, 6, 7, 2]])
    >>> statistics(words, torch.tensor([[[4, 5, 6, 7, 8, 2]]]), f1)
    tensor([[3., 4., 5.]])
    """
    common = longest(words, references)  # (B, R)
    hypothesis = ngrams.lengths(words).unsqueeze(1).expand_as(common)
    reference = ngrams.total_known(references, 1)
    rows = torch.stack([common, hypothesis, reference], -1).float()  # (B, R, 3)
    return best(rows, score(rows), references)


def longest(words: Tensor, references: Tensor) -> Tensor:
    """Length of the longest common subsequence with each reference.  (B, T), (B, R, L) -> (B, R)

    c[i, j] = max(c[i - 1, j], c[i, j - 1], c[i - 1, j - 1] + [w_i = r_j])

    Row i is made at once of row i - 1: its second term is a running maximum.
    """
    same = ngrams.same(words.unsqueeze(1), references)  # (B, R, T, L)
    c = same.new_zeros((*same.shape[:2], same.shape[3] + 1), dtype=torch.int32)  # (B, R, L + 1)
    for same_i in same.unbind(2):  # (B, R, L)
        c = pad(torch.maximum(c[..., 1:], c[..., :-1] + same_i).cummax(-1).values, (1, 0))
    return c[..., -1]
