"""Which pairs are kept, as Moses' clean-corpus-n decides it, with a count of those that are not."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from seqmixer.data.prepare.corpus import Pair


@dataclass(frozen=True)
class Limits:
    """What a pair must be to stay. Neither side may be empty."""

    max_words: int | None = None  # on either side
    ratio: float | None = None  # between the longer side and the shorter, in words
    once: bool = False  # a pair that came before is dropped


ANY = Limits()


def clean(pairs: Iterable[Pair], limits: Limits) -> tuple[list[Pair], dict[str, int]]:
    """The pairs within the limits, and how many were dropped for which reason.

    >>> clean([("ein haus", "a house"), ("", "nothing"), ("ja", "yes i do")], Limits(max_words=50, ratio=1.5))
    ([('ein haus', 'a house')], {'empty': 1, 'ratio': 1})
    """
    kept: list[Pair] = []
    seen: set[Pair] = set()
    dropped: Counter[str] = Counter()
    for pair in pairs:
        reason = fault(pair, limits) or ("repeated" if limits.once and pair in seen else None)
        if reason:
            dropped[reason] += 1
            continue
        kept.append(pair)
        if limits.once:
            seen.add(pair)
    return kept, dict(sorted(dropped.items()))


def fault(pair: Pair, limits: Limits) -> str | None:
    """Why a pair cannot stay; None if it can."""
    shorter, longer = sorted(len(side.split()) for side in pair)
    if shorter == 0:
        return "empty"
    if limits.max_words is not None and longer > limits.max_words:
        return "too long"
    if limits.ratio is not None and longer / shorter > limits.ratio:
        return "ratio"
    return None
