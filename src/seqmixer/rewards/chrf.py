"""chrF and chrF++ (Popović 2015, 2017), as sacreBLEU has them: F2 of character n-grams, without white space.

Statistics, then score: a sentence is a row of [hypothesis, reference, match] counts for n = 1..6, a corpus the sum of
its rows. UNK is one character, a different one each time. The sequence is scored with its forced words.

A sentence has room for as many characters as its words could have at most, so the cost grows with the longest word of
the vocabulary.
"""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqmixer.rewards.characters import CharacterTable, Units
from seqmixer.rewards.metric import Metric, counting, uncounted
from seqmixer.rewards.ngrams import best, ranks

CHARACTERS = 6  # the longest n-gram of characters
WORDS = 2  # the longest n-gram of words in chrF++
BETA = 2  # recall counts so many times as much as precision
BITS = 63  # of an int64 that is not negative
RIGHT = 1 << 31  # counts of two sides in one number: the left below, the right above


def statistics(words: Tensor, references: Tensor, table: CharacterTable, word_order: int) -> Tensor:
    """[hypothesis, reference, match] n-grams of 1..6 characters, then of 1..word_order words.

    (B, T), (B, R, L) -> (B, 3 * (6 + word_order))

    With several references the row is that of the reference with the highest score, the first of equals. The table
    must be on the device of the words.
    """
    rows = _counts(words, references, table.characters, CHARACTERS)  # (B, R, 18)
    if word_order > 0:
        rows = torch.cat([rows, _counts(words, references, table.tokens, word_order)], -1)
    return best(rows, _f(rows), references)


def corpus(rows: Tensor) -> Tensor:
    """chrF in 0..100 from the rows of a corpus.  (..., n, S) -> (...)"""
    return 100 * _f(rows.sum(-2))


KINDS = (("chrf", "chrF", 0), ("chrf++", "chrF++", WORDS))  # name, label, the longest n-gram of words
CHRF = {  # for counts that are there; `chrf_metric` counts
    name: Metric(
        name,
        uncounted,
        corpus,
        f"chrf|nc:{CHARACTERS}|nw:{words}|beta:{BETA}|space:no|eff:yes|unk:never-matches|refs:best",
        size=3 * (CHARACTERS + words),
        label=label,
    )
    for name, label, words in KINDS
}


def chrf_metric(table: CharacterTable, name: str = "chrf") -> Metric:
    """chrF; or "chrf++", to which n-grams of one and two words count too: not for pieces of words.

    The table is copied once to each device that words come from.

    >>> from seqmixer.types import Rollout
    >>> metric = chrf_metric(CharacterTable.build(["<pad>", "<s>", "</s>", "<unk>", "cat", "cats", "dog"]))
    >>> metric.reward(Rollout(torch.tensor([[5, 2], [6, 2]]), torch.tensor([[[4, 2]], [[4, 2]]])))
    tensor([0.8984, 0.0000])
    """
    metric, on = CHRF[name], cache(table.to)
    order = metric.size // 3 - CHARACTERS
    return replace(metric, statistics=counting(lambda words, refs: statistics(words, refs, on(words.device), order)))


def _f(rows: Tensor) -> Tensor:
    """F = (1 + beta^2) p r / (beta^2 p + r) of the mean precision and recall.  (..., 3 * orders) -> (...) in 0..1

    The means are over the orders that both sides have. They are summed one by one, as sacreBLEU does, so that of two
    references with the same score the same one is chosen.
    """
    p = r = used = torch.zeros_like(rows[..., 0])
    for row in rows.unflatten(-1, (-1, 3)).unbind(-2):
        hypothesis, reference, match = row.unbind(-1)
        both = (hypothesis > 0) & (reference > 0)
        p = p + torch.where(both, match / hypothesis, 0)
        r = r + torch.where(both, match / reference, 0)
        used = used + both
    p, r = p / used.clamp(min=1), r / used.clamp(min=1)
    return torch.where(p + r > 0, (1 + BETA**2) * p * r / (BETA**2 * p + r), 0)


def _counts(words: Tensor, references: Tensor, units: Units, order: int) -> Tensor:
    """The row of `statistics` for each reference and one kind of units.  (B, T), (B, R, L) -> (B, R, 3 * order)

    The hypothesis' n-grams are not counted where the reference has none of that order, as in sacreBLEU.
    """
    several, kinds = references.shape[1], units.kinds + words.shape[1] + references.shape[2]
    hypothesis = units.spell(words, 0).unsqueeze(1).expand(-1, several, -1)  # (B, R, M)
    reference = units.spell(references, words.shape[1])  # (B, R, N)
    match = _matches(hypothesis, reference, order, kinds)  # (B, R, order)
    shorter = torch.arange(order, device=words.device)  # n - 1: a sentence has as many n-grams less than units
    left, right = (((side > 0).sum(-1, keepdim=True) - shorter).clamp(min=0) for side in (hypothesis, reference))
    return torch.stack([left * (right > 0), right, match], -1).flatten(-2).float()


def _matches(hypothesis: Tensor, reference: Tensor, order: int, kinds: int) -> Tensor:
    """How many n-grams match, clipped, for n = 1..order.  (..., M), (..., N) -> (..., order)

    The windows of `order` units of both sides are sorted together. Equal n-grams are then neighbours, for every n,
    and a gram that stands h times on one side and r times on the other matches min(h, r) times.

    Args:
        kinds: no id of a unit is above this.
    """
    gap = (0, order - 1)  # windows reach over the end, where there is nothing
    units = torch.cat([pad(hypothesis, gap), pad(reference, gap)], -1)  # (..., W)
    place = _windows(units, order, kinds).argsort(-1)  # (..., W)
    units = pad(units, gap)
    side = torch.where(place < hypothesis.shape[-1], 1, RIGHT)  # (..., W) what an n-gram adds to the count of its group
    same = torch.ones_like(place[..., 1:], dtype=torch.bool)  # (..., W - 1)
    matches = []
    for n in range(order):
        unit = units.gather(-1, place + n)  # (..., W) the last of each n-gram; 0: there is none
        same = same & (unit[..., 1:] == unit[..., :-1])
        group = pad((~same).cumsum(-1), (1, 0))  # (..., W)
        count = torch.zeros_like(group).scatter_add(-1, group, side * (unit > 0))
        matches.append(torch.minimum(count % RIGHT, count // RIGHT).sum(-1))
    return torch.stack(matches, -1)


def _windows(units: Tensor, order: int, kinds: int) -> Tensor:
    """Keys whose order is that of the windows of `order` units, read unit by unit.  (..., W) -> (..., W)

    A window is one number where it fits an int64 (six characters of an alphabet of 1,023); where not, it is a pair of
    half windows (three characters, of all that Unicode has).
    """
    bits = kinds.bit_length()
    if order * bits <= BITS:
        return _packed(units, order, bits)
    half = ranks(_packed(units, order // 2, bits))
    return half * half.shape[-1] + _from(half, order // 2)


def _packed(units: Tensor, order: int, bits: int) -> Tensor:
    """(..., W) -> (..., W)"""
    key = units
    for n in range(1, order):
        key = (key << bits) | _from(units, n)
    return key


def _from(x: Tensor, n: int) -> Tensor:
    """x[i + n] at i, and 0 past the end.  (..., W) -> (..., W)"""
    return pad(x, (0, n))[..., n:]
