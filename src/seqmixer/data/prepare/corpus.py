"""Corpora in preparation: pairs cleaned, tokenised and drawn into splits, with counts of what was dropped."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from torch import Tensor

from seqmixer.bars import watched
from seqmixer.data.captions import Captioned
from seqmixer.errors import DataError

Pair = tuple[str, str]  # a source and its target; words with one space between them
Dropped = Mapping[str, int]  # how many were dropped, by reason


@dataclass(frozen=True)
class TextCorpus:
    """Parallel text in splits: train, valid, test, and any further test set."""

    name: str
    suffixes: Pair  # of the source's and the target's files
    splits: Mapping[str, Sequence[Pair]]
    dropped: Mapping[str, Dropped]  # by split, or by the file that the splits are drawn from
    published: Mapping[str, int]  # what the paper gives as the size of a split

    def __post_init__(self) -> None:
        for split, pairs in self.splits.items():
            if not pairs:
                raise DataError(f"{self.name}: no pairs are left for {split}; dropped: {losses(self.dropped)}")


def losses(dropped: Mapping[str, Dropped]) -> str:
    """What was dropped, in words.

    >>> losses({"train": {"empty": 3, "too long": 1200}, "test": {}})
    '3 empty and 1,200 too long of train, nothing of test'
    """
    parts = {part: " and ".join(f"{count:,} {reason}" for reason, count in dropped[part].items()) for part in dropped}
    return ", ".join(f"{lost or 'nothing'} of {part}" for part, lost in parts.items())


@dataclass(frozen=True)
class CaptionCorpus:
    """Images with captions in splits, and the features of exactly these images."""

    name: str
    images: Sequence[Captioned]
    features: Tensor  # (n, D)
    quantised: bool  # whether they were kept as bytes, and shall be
    dropped: Mapping[str, Dropped]
    published: Mapping[str, int]


@dataclass(frozen=True)
class Limits:
    """The limits of a pair that is kept. Neither side may be empty."""

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
    """Why a pair is dropped; None if it is kept."""
    shorter, longer = sorted(len(side.split()) for side in pair)
    if shorter == 0:
        return "empty"
    if limits.max_words is not None and longer > limits.max_words:
        return "too long"
    if limits.ratio is not None and longer / shorter > limits.ratio:
        return "ratio"
    return None


def tokenised(lines: Iterable[str], language: str, label: str) -> list[str]:
    """Lines as lower-case words with one space between them, special characters escaped as Moses does.

    >>> tokenised(["It's 3,000 cats & dogs."], "en", "a line")
    ['it &apos;s 3,000 cats &amp; dogs .']
    """
    from sacremoses import MosesTokenizer

    require_known(language)
    tokenizer = MosesTokenizer(lang=language)
    return [" ".join(tokenizer.tokenize(line)).lower() for line in watched(list(lines), label)]


def require_known(language: str) -> None:
    """Refuse a language without Moses rules: Moses would read it as English."""
    if language not in languages():
        raise DataError(f"no Moses rules for the language {language!r}; known: {', '.join(languages())}")


@cache
def languages() -> tuple[str, ...]:
    from sacremoses.corpus import NonbreakingPrefixes

    return tuple(sorted(set(NonbreakingPrefixes().available_langs.values())))


def draw(total: int, sizes: Mapping[str, int], seed: int, what: str) -> dict[str, list[int]]:
    """For each name, so many of the numbers 0..total-1, drawn without replacement, then in order.

    >>> draw(10, {"valid": 2, "test": 3}, seed=1, what="pairs")
    {'valid': [4, 8], 'test': [0, 1, 7]}
    """
    wanted = sum(sizes.values())
    if wanted > total:
        parts = " and ".join(f"{size} for {name}" for name, size in sizes.items())
        raise DataError(f"{total} {what} are there, but {parts} were asked for; ask for fewer")
    order = np.random.default_rng(seed).permutation(total)
    samples, begin = {}, 0
    for name, size in sizes.items():
        samples[name] = sorted(order[begin : begin + size].tolist())
        begin += size
    return samples
