"""How far a hypothesis is from its reference: edit distance, exact match, and length.

Each is a row per sentence; a corpus is the mean of its sentences.
"""

import torch
from torch import Tensor

from seqmixer.rewards import ngrams
from seqmixer.rewards.ngrams import best
from seqmixer.types import UNK


def statistics(words: Tensor, references: Tensor) -> Tensor:
    """Edit distance, hypothesis length, reference length.  (B, T), (B, R, L) -> (B, 3)

    UNK matches nothing, so that each costs an edit. With several references the row is that of the most similar one,
    the first of equals.

    >>> row = statistics(torch.tensor([[5, 6, 7, 2]]), torch.tensor([[[5, 7, 8, 9, 2]]]))
    >>> row, similarity(row)
    (tensor([[3., 3., 4.]]), tensor([0.2500]))
    """
    apart = distance(words, references)  # (B, R)
    hypothesis = ngrams.lengths(words).unsqueeze(1).expand_as(apart)
    rows = torch.stack([apart, hypothesis, ngrams.lengths(references)], -1).float()  # (B, R, 3)
    return best(rows, similarity(rows), references)


def distance(words: Tensor, references: Tensor) -> Tensor:
    """Words to insert, delete or replace to make each reference (Levenshtein).  (B, T), (B, R, L) -> (B, R)

    d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + [w_i != r_j])

    With e[i, j] = d[i, j] - j the second term is e[i, j - 1] alone, so that row i is made at once of row i - 1, as a
    running minimum. After the end of the hypothesis a row repeats the last one.
    """
    same = ngrams.same(words.unsqueeze(1), references)  # (B, R, T, L)
    e = same.new_zeros((*same.shape[:2], same.shape[3] + 1), dtype=torch.int32)  # (B, R, L + 1)
    written = ngrams.inside(words)  # (B, T)
    for written_i, same_i in zip(written.unbind(1), same.unbind(2), strict=True):  # (B,), (B, R, L)
        deleted = e + written_i[:, None, None]  # (B, R, L + 1)
        replaced = e[..., :-1] - same_i.int()  # (B, R, L)
        e = torch.cat([deleted[..., :1], torch.minimum(deleted[..., 1:], replaced)], -1).cummin(-1).values
    reference = ngrams.lengths(references)  # (B, R)
    return e.gather(-1, reference.unsqueeze(-1)).squeeze(-1) + reference


def similarity(rows: Tensor) -> Tensor:
    """1 - distance / length of the longer, in 0..1; 1 where both are empty.  (..., 3) -> (...)"""
    return 1 - rows[..., 0] / torch.maximum(rows[..., 1], rows[..., 2]).clamp(min=1)


def corpus(rows: Tensor) -> Tensor:
    """Mean of the sentences' similarities, in 0..100.  (..., n, 3) -> (...)"""
    return 100 * similarity(rows).mean(-1)


def exact(words: Tensor, references: Tensor) -> Tensor:
    """1 where the hypothesis is one of its references, word for word, else 0.  (B, T), (B, R, L) -> (B, 1)

    UNK matches nothing: a sentence with UNK is never exact.
    """
    length = min(words.shape[-1], references.shape[-1])
    known = ngrams.inside(words) & (words != UNK)  # (B, T)
    same = (words[:, None, :length] == references[..., :length]) & known[:, None, :length]  # (B, R, length)
    right = same.sum(-1)  # (B, R)
    equal = (right == ngrams.lengths(words).unsqueeze(1)) & (right == ngrams.lengths(references))
    return (equal & ~ngrams.missing(references)).any(-1, keepdim=True).float()


def exact_corpus(rows: Tensor) -> Tensor:
    """The share of exact sentences, in 0..100.  (..., n, 1) -> (...)"""
    return 100 * rows[..., 0].mean(-1)


def lengths(words: Tensor, references: Tensor) -> Tensor:
    """Hypothesis length, and that of the reference with the best `length_ratio`.  (B, T), (B, R, L) -> (B, 2)"""
    reference = ngrams.lengths(references)  # (B, R)
    rows = torch.stack([ngrams.lengths(words).unsqueeze(1).expand_as(reference), reference], -1).float()  # (B, R, 2)
    return best(rows, length_ratio(rows), references)


def length_ratio(rows: Tensor) -> Tensor:
    """Shorter / longer length, in 0..1; 1 where both are empty.  (..., 2) -> (...)"""
    shorter, longer = rows.amin(-1), rows.amax(-1)
    return torch.where(longer > 0, shorter / longer.clamp(min=1), 1.0)


def length_corpus(rows: Tensor) -> Tensor:
    """Mean of the sentences' length ratios, in 0..100: too long here does not make up for too short there."""
    return 100 * length_ratio(rows).mean(-1)
