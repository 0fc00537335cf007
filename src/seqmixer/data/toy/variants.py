"""Weighted sets of sentences: every right answer to one source, with its probability.

The built-in tasks are written with these few functions, so the true distribution of references is known. The best
possible output can then be computed instead of guessed (`best_outputs`).
"""

import random
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from seqmixer.data.task import Split
from seqmixer.errors import DataError

Variants = dict[str, float]  # sentence -> probability; sums to 1
Source = TypeVar("Source", bound=Hashable)
Score = Callable[[Sequence[str], Sequence[str]], Sequence[float]]  # hypotheses, a reference for each -> scores


def fixed(text: str) -> Variants:
    """The one sentence that is certain."""
    return {text: 1.0}


def evenly(*texts: str) -> Variants:
    """Synonyms, all equally likely."""
    return {text: 1 / len(texts) for text in texts}


def mix(*weighted: tuple[float, Variants]) -> Variants:
    """One of several sets, chosen with these probabilities.

    >>> mix((0.6, evenly("a", "b")), (0.4, fixed("c")))
    {'a': 0.3, 'b': 0.3, 'c': 0.4}
    """
    mixed: Variants = {}
    for weight, variants in weighted:
        for text, probability in variants.items():
            mixed[text] = mixed.get(text, 0.0) + weight * probability
    return mixed


def chain(*parts: Variants) -> Variants:
    """A sentence of independent parts, one after the other; an empty part leaves no trace.

    >>> chain(evenly("big", ""), fixed("cat"))
    {'big cat': 0.5, 'cat': 0.5}
    """
    sentences = fixed("")
    for part in parts:
        extended = [(p, {f"{head} {tail}".strip(): q for tail, q in part.items()}) for head, p in sentences.items()]
        sentences = mix(*extended)
    return sentences


def draw(rng: random.Random, variants: Variants, count: int) -> list[str]:
    """Sample `count` references independently."""
    return rng.choices(list(variants), list(variants.values()), k=count)


def distinct(rng: random.Random, invent: Callable[[random.Random], Source], count: int) -> list[Source]:
    """Invent `count` different things, so that no split can share a source with another."""
    found: dict[Source, None] = {}
    for _ in range(50 * count):
        if len(found) == count:
            break
        found[invent(rng)] = None
    if len(found) < count:
        raise DataError(
            f"toy task: asked for {count} different sources, but the grammar gave only {len(found)} in {50 * count} "
            "attempts; ask for fewer training, validation or test examples"
        )
    return list(found)


def best_outputs(split: Split, score: Score) -> list[str]:
    """What an ideal predictor would write: for each source the variant with the highest expected score.

    best = argmax_i sum_j p_j score(v_i, v_j) over the variants v of the source, with their true probabilities p.

    The search is over grammatical sentences and maximises the mean of sentence scores. So this is no upper bound: a
    metric that can be gamed, such as ROUGE recall, gives a higher reward to some ungrammatical sentences, and the
    references drawn for one split, or a corpus score that is not a mean, may favour other outputs a little.

    One reference is expected at a time: where a task has several per source, the expectation over single references
    stands in for that over sets of them. `score` may depend on which words are equal but not on how they are spelt, as
    BLEU and ROUGE do: sources whose variants differ only in their words share one computation.
    """
    known: dict[Hashable, int] = {}
    outputs = []
    for meta in split.meta:
        variants: Variants = meta["variants"]
        key = _pattern(variants)
        if key not in known:
            known[key] = _best(variants, score)
        outputs.append(list(variants)[known[key]])
    return outputs


def expected_score(hypothesis: str, variants: Variants, score: Score) -> float:
    """sum_j p_j score(hypothesis, v_j)."""
    scores = score([hypothesis] * len(variants), list(variants))
    return sum(probability * value for probability, value in zip(variants.values(), scores, strict=True))


def _best(variants: Variants, score: Score) -> int:
    # Rounded, so that among equally good variants the first is taken whatever the order of the sums.
    expected = [round(expected_score(hypothesis, variants, score), 6) for hypothesis in variants]
    return max(range(len(expected)), key=expected.__getitem__)


def _pattern(variants: Variants) -> Hashable:
    """The variants with each word replaced by the order of its first appearance: equal where only words differ."""
    number: dict[str, int] = {}
    return tuple(
        (tuple(number.setdefault(word, len(number)) for word in text.split()), round(probability, 9))
        for text, probability in variants.items()
    )
