"""Data cards: the sizes, lengths, vocabulary and fingerprints of a data set, as JSON and as a page to read."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import tomli_w

from seqmixer import __version__
from seqmixer.data.cropping import coverage
from seqmixer.data.task import Split, Task
from seqmixer.data.vocab import SPECIALS

THRESHOLDS = (1, 2, 3, 5, 10)  # the paper keeps words seen 3 times


@dataclass(frozen=True)
class Origin:
    """Where a data set is from."""

    command: str
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by part of the corpus, by reason
    published: Mapping[str, int] = field(default_factory=dict)  # the sizes of splits in the paper
    settings: Mapping[str, Any] = field(default_factory=dict)  # the [data] table that reads it


@dataclass(frozen=True)
class Lengths:
    """Of sentences in words, EOS not counted."""

    mean: float
    median: int
    most: int  # 95 % have at most so many
    longest: int


@dataclass(frozen=True)
class SplitCard:
    examples: int
    references: int
    source: Lengths | None  # None: an image, or nothing
    target: Lengths
    covered: float  # share of the references that T steps hold, EOS included
    fingerprint: str  # of the text and the features, whatever the vocabulary


@dataclass(frozen=True)
class Known:
    """A vocabulary of the training text, and the words that it lacks."""

    min_count: int | None  # words seen so often are known; None: the vocabulary that is used
    words: int
    unknown: Mapping[str, float]  # by split: the share of running words that are read as UNK


@dataclass(frozen=True)
class Card:
    """Sizes, lengths, vocabulary and fingerprints of a data set."""

    name: str
    length: int  # T
    splits: Mapping[str, SplitCard]
    vocabulary: Mapping[str, Sequence[Known]]  # of the target, and of the source where it is text
    origin: Origin
    versions: Mapping[str, str]


def describe(task: Task, further: Mapping[str, Split], origin: Origin) -> Card:
    """The card of a task, and of further splits that are encoded with its vocabularies."""
    splits = {**task.splits, **further}
    unknown = {name: split.unknown_shares() for name, split in splits.items()}
    vocabulary = {}
    for side, texts, vocab in (("source", sources, task.source_vocab), ("target", references, task.target_vocab)):
        if vocab is not None:
            rows = known_words({name: counted(texts(split)) for name, split in splits.items()})
            used = Known(None, len(vocab) - len(SPECIALS), {name: shares[side] for name, shares in unknown.items()})
            vocabulary[side] = [*rows, used]
    return Card(
        name=task.name,
        length=task.length,
        splits={name: split_card(split, task) for name, split in splits.items()},
        vocabulary=vocabulary,
        origin=origin,
        versions={
            "seqmixer": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("numpy", "sacremoses")},
        },
    )


def split_card(split: Split, task: Task) -> SplitCard:
    return SplitCard(
        examples=len(split),
        references=sum(map(len, split.references)),
        source=lengths(sources(split)) if task.source_vocab is not None else None,
        target=lengths(references(split)),
        covered=coverage(split, task.length),
        fingerprint=split.fingerprint,
    )


def known_words(counts: Mapping[str, Counter[str]]) -> list[Known]:
    """For several thresholds, the vocabulary and the share of each split that it lacks."""
    train = counts["train"]
    rows = []
    for threshold in THRESHOLDS:
        words = {word for word, count in train.items() if count >= threshold} - set(SPECIALS)
        rows.append(Known(threshold, len(words), shares(counts, words)))
    return rows


def shares(counts: Mapping[str, Counter[str]], words: set[str]) -> dict[str, float]:
    """Of each split, the share of running words that is not among `words`."""
    return {
        name: sum(count for word, count in split.items() if word not in words) / split.total()
        for name, split in counts.items()
    }


def counted(sentences: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(sentence.split())
    return counts


def lengths(sentences: Iterable[str]) -> Lengths:
    words = np.array([len(sentence.split()) for sentence in sentences])
    median, most = np.quantile(words, [0.5, 0.95], method="inverted_cdf").tolist()
    return Lengths(float(words.mean()), median, most, int(words.max()))


def sources(split: Split) -> list[str]:
    return [meta["source"] for meta in split.meta]


def references(split: Split) -> list[str]:
    return [reference for meta in split.meta for reference in meta["references"]]


def as_json(card: Card) -> str:
    return json.dumps(asdict(card), indent=1, ensure_ascii=False)


def as_markdown(card: Card) -> str:
    """The card as a page."""
    return "\n".join(page(card)) + "\n"


def page(card: Card) -> Iterator[str]:
    yield f"# {card.name}"
    yield ""
    yield f"Made by `{card.origin.command}`, {', '.join(f'{name} {number}' for name, number in card.versions.items())}."
    yield ""
    yield from size_table(card)
    for side, rows in card.vocabulary.items():
        yield ""
        yield from vocabulary_table(side, rows)
    if card.origin.dropped:
        yield ""
        yield "Dropped:"
        yield ""
        yield from (f"- {part}: {listed(reasons)}" for part, reasons in card.origin.dropped.items())
    if card.origin.settings:
        yield ""
        yield "In a config:"
        yield ""
        yield f"```toml\n{tomli_w.dumps({'data': card.origin.settings}).strip()}\n```"


def size_table(card: Card) -> Iterator[str]:
    yield f"T = {card.length}. Lengths in words: mean, median, what 95 % do not exceed, longest."
    yield ""
    published = card.origin.published
    column, line = ("published | ", "--:|") if published else ("", "")
    yield f"| split | examples | {column}references | source | target | fit in T | fingerprint |"
    yield f"|---|--:|{line}--:|---|---|--:|---|"
    for name, split in card.splits.items():
        size = f"{published[name]:,}" if name in published else ""
        sizes = f"{split.examples:,} | {f'{size} | ' if published else ''}{split.references:,}"
        lengths = f"{spread(split.source)} | {spread(split.target)}"
        yield f"| {name} | {sizes} | {lengths} | {split.covered:.1%} | `{split.fingerprint}` |"


def vocabulary_table(side: str, rows: Sequence[Known]) -> Iterator[str]:
    splits = list(rows[0].unknown)
    yield f"| {side} words | known | {' | '.join(f'unknown in {split}' for split in splits)} |"
    yield f"|---|--:|{'--:|' * len(splits)}"
    for row in rows:
        label = "used here" if row.min_count is None else f"seen {row.min_count} times or more"
        unknown = " | ".join(f"{row.unknown[split]:.2%}" for split in splits)
        yield f"| {label} | {row.words:,} | {unknown} |"


def spread(lengths: Lengths | None) -> str:
    if lengths is None:
        return "-"
    return f"{lengths.mean:.1f}, {lengths.median}, {lengths.most}, {lengths.longest}"


def listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items()) or "nothing"
