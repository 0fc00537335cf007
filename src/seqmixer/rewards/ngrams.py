"""The counting that all n-gram scores share, batched and exact, on whatever device the words are.

Rewards and reported scores are both made of these counts, so they cannot drift apart. The rules, as released by the
authors: nothing from the first EOS or PAD on is counted; an n-gram with UNK never matches; and of a sequence whose
first `start` words are forced, only n-grams that touch the rest count, in the hypothesis and in the reference alike.

Everything has a fixed shape and no GPU synchronisation, so that it can be captured in a CUDA graph.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqmixer.types import EOS, PAD, UNK

A_WORD, END = -1, -2  # words that no vocabulary has: what UNK and EOS become where they count like any other
_UNMATCHED, _OUTSIDE = -3, -4  # what is no word, in a hypothesis and in a reference


def inside(words: Tensor) -> Tensor:
    """True before the first EOS or PAD.  (..., T) -> (..., T)"""
    ended = (words == EOS) | (words == PAD)
    return ended.cumsum(-1) == 0


def lengths(words: Tensor) -> Tensor:
    """How many words stand before EOS, or before the sequence was cropped.  (..., T) -> (...)"""
    return inside(words).sum(-1)


def missing(references: Tensor) -> Tensor:
    """Which references are padding: all PAD. One that is just EOS is there, and empty.  (..., L) -> (...)"""
    return (references == PAD).all(-1)


def closest_length(words: Tensor, references: Tensor) -> Tensor:
    """Length of the reference nearest in length to the hypothesis, the shorter of two.  (B, T), (B, R, L) -> (B,)"""
    hypothesis, reference = lengths(words).unsqueeze(-1), lengths(references)  # (B, 1), (B, R)
    distance = 2 * (reference - hypothesis).abs() + (reference > hypothesis)  # (B, R) odd when longer: loses a tie
    nearest = distance.masked_fill(missing(references), torch.iinfo(distance.dtype).max).argmin(-1, keepdim=True)
    return reference.gather(-1, nearest).squeeze(-1)


def best(rows: Tensor, scores: Tensor, references: Tensor) -> Tensor:
    """The row of the reference with the highest score, the first of equals.  (B, R, S), (B, R), (B, R, L) -> (B, S)

    Scores are at least 0, so that a missing reference never wins against one that is there.
    """
    winner = scores.masked_fill(missing(references), -1).argmax(-1)  # (B,)
    return rows.gather(1, winner[:, None, None].expand(-1, 1, rows.shape[-1])).squeeze(1)


def total(words: Tensor, n: int, start: int | Tensor = 0) -> Tensor:
    """How many n-grams touch the part from `start` on, UNK or not.  (..., T) -> (...)"""
    before = start - n + 1  # n-grams that end before `start`
    before = before.clamp(min=0) if isinstance(before, Tensor) else max(before, 0)
    return (lengths(words) - n + 1 - before).clamp(min=0)


def total_known(words: Tensor, n: int, start: int | Tensor = 0) -> Tensor:
    """How many n-grams without UNK touch the part from `start` on.  (..., T) -> (...)"""
    word = _known(words)
    gram = word
    for k in range(1, n):
        gram = gram[..., :-1] & word[..., k:]  # (..., T - k)
    return _touching(gram, n, start).sum(-1)


def matched(words: Tensor, references: Tensor, order: int, start: int | Tensor = 0) -> list[Tensor]:
    """Which n-grams of the hypothesis each reference matches, for n = 1..order, clipped.

    A gram that stands r times in a reference matches its first r occurrences in the hypothesis. The clipped count
    of one reference is therefore `.sum(-1)`, and the count clipped by the maximum over references `.any(1).sum(-1)`.

    Args:
        words: (B, T) hypotheses.
        references: (B, R, L).
        order: the longest n.
        start: n-grams that lie wholly before this position do not count.

    Returns:
        order tensors, the n-th (B, R, G), G = T - n + 1: true where the gram matches.
    """
    own = _runs(same(words, words).tril(-1), order)  # only what stood before
    other = _runs(same(words.unsqueeze(1), references), order)
    matches = []
    for n in range(1, order + 1):
        earlier = _touching(own[n - 1], n, start).sum(-1)  # (B, G) times the gram stood before
        found = _touching(other[n - 1], n, start).sum(-1)  # (B, R, G) times it stands in the reference; 0 with UNK
        matches.append(_touching(earlier.unsqueeze(1) < found, n, start))
    return matches


def _touching(grams: Tensor, n: int, start: int | Tensor) -> Tensor:
    """False where the n-gram ends before `start`: the one at i covers i..i+n-1.  (..., G) -> (..., G)"""
    if isinstance(start, int) and start == 0:
        return grams
    return grams & (torch.arange(n, grams.shape[-1] + n, device=grams.device) > start)


def _known(words: Tensor) -> Tensor:
    return inside(words) & (words != UNK)


def same(a: Tensor, b: Tensor) -> Tensor:
    """Where word i of `a` is word j of `b`, and both count.  (..., T), (..., L) -> (..., T, L)"""
    a, b = a.masked_fill(~_known(a), _UNMATCHED), b.masked_fill(~inside(b), _OUTSIDE)  # one comparison is then enough
    return a.unsqueeze(-1) == b.unsqueeze(-2)


def _runs(same: Tensor, order: int) -> list[Tensor]:
    """An n-gram match is n word matches down a diagonal.  (..., T, L) -> order tensors (..., T - n + 1, L - n + 1)"""
    runs = [same]
    for k in range(1, order):
        runs.append(runs[-1][..., :-1, :-1] & same[..., k:, k:])
    return runs


def ranks(keys: Tensor) -> Tensor:
    """The place of each key among the different keys of its row, from 0.  (..., M) -> (..., M)

    >>> ranks(torch.tensor([[30, 10, 30, 20]]))
    tensor([[2, 0, 2, 1]])
    """
    ordered, order = keys.sort(-1)
    new = ordered[..., 1:] != ordered[..., :-1]
    rank = pad(new.cumsum(-1), (1, 0))[..., : keys.shape[-1]]  # (..., M) in sorted order; cut where M = 0
    return torch.empty_like(rank).scatter(-1, order, rank)


def together(words: Tensor, references: Tensor) -> Tensor:
    """Hypothesis and references as the sentences of one example.  (B, T), (B, R, L) -> (B, 1 + R, max(T, L))"""
    length = max(words.shape[1], references.shape[2])
    first = pad(words.unsqueeze(1), (0, length - words.shape[1]), value=PAD)
    rest = pad(references, (0, length - references.shape[2]), value=PAD)
    return torch.cat([first, rest], 1)
