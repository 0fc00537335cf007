"""Which of several references counts."""

from torch import Tensor

from seqmixer.rewards import ngrams


def best(rows: Tensor, scores: Tensor, references: Tensor) -> Tensor:
    """The row of the reference with the highest score, the first of equals.  (B, R, S), (B, R), (B, R, L) -> (B, S)

    Scores are at least 0, so that a missing reference never wins against one that is there.
    """
    winner = scores.masked_fill(ngrams.missing(references), -1).argmax(-1)  # (B,)
    return rows.gather(1, winner[:, None, None].expand(-1, 1, rows.shape[-1])).squeeze(1)


def shortest_length(words: Tensor, references: Tensor) -> Tensor:
    """Length of the shortest reference; the other choice is `ngrams.closest_length`.  (B, T), (B, R, L) -> (B,)"""
    missing = ngrams.missing(references)  # (B, R)
    return ngrams.lengths(references).masked_fill(missing, references.shape[-1]).amin(-1)
