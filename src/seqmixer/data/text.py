"""Parallel text: one source file and one or more reference files, aligned line by line; or text with no source."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

from seqmixer.data.cropping import length_covering
from seqmixer.data.files import read_utf8, split_lines
from seqmixer.data.task import Deferred, Split, Task
from seqmixer.data.vocab import Vocab, VocabLimits, Vocabulary
from seqmixer.errors import DataError

Pairs = tuple[Sequence[str] | None, Sequence[Sequence[str]]]  # n sources, or None; the references of each
Vocabs = tuple[Vocabulary | None, Vocabulary]  # of the source, None where there is no text; of the target

EVERY_WORD = VocabLimits()
LETTERS = 20  # a word of a line may have, on average


def read_lines(path: Path, max_words: int, allow_empty: bool = False) -> list[str]:
    """The sentences of a UTF-8 file, plain or .gz, none longer than `max_words` words."""
    lines = split_lines(read_utf8(path))
    if not lines:
        raise DataError(f"{path}: no sentences; the file is empty")
    for number, line in enumerate(lines, 1):
        if not allow_empty and not line.strip():
            raise DataError(f"{path}:{number}: empty line; drop the pair or set data.skip_empty = true")
        require_short(line, f"{path}:{number}", max_words)
    return lines


def require_short(line: str, where: str, max_words: int) -> None:
    """Refuse a line that is no sentence: some steps take a time that grows with the square of its length."""
    if len(line) <= 2 * max_words:  # more words need more letters
        return
    if (words := len(line.split())) > max_words:
        got = f"{words} words, more than data.max_words = {max_words}"
    elif len(line) > LETTERS * max_words:
        got = f"{len(line)} characters, more than {LETTERS} times data.max_words = {max_words}"
    else:
        return
    raise DataError(f"{where}: {got}; shorten or drop the line, or raise the setting")


def read_pairs(source: Path | None, references: Sequence[Path], skip_empty: bool, max_words: int) -> Pairs:
    """The aligned sentences of a source file and its reference files. With `skip_empty`, only those with no empty side.

    Source None: text to model by itself, with nothing given.
    """
    paths = [*([] if source is None else [source]), *references]
    columns = [read_lines(path, max_words, allow_empty=skip_empty) for path in paths]
    for path, column in zip(paths[1:], columns[1:], strict=True):
        if len(column) != len(columns[0]):
            raise DataError(
                f"{paths[0]} has {len(columns[0])} lines but {path} has {len(column)}; parallel files need equal counts"
            )
    rows = [row for row in zip(*columns, strict=True) if all(line.strip() for line in row)]
    if source is None:
        return None, [list(row) for row in rows]
    return [row[0] for row in rows], [list(row[1:]) for row in rows]


def hold_out(pairs: Pairs, valid: int, test: int) -> tuple[Pairs, Pairs, Pairs]:
    """Draw so many pairs for validation and test; the rest is for training.

    Pairs with one source (with none, of one text), but for case and spaces, stay together: no source of the test is one
    of training. Which are drawn depends on the text alone, so that more data of the same kind moves few of them.

    >>> texts = ["ein Hund", "eine Katze", "Ein  Hund", "ein Haus"]
    >>> train, valid, test = hold_out((texts, [["a dog"], ["a cat"], ["one dog"], ["a house"]]), valid=1, test=1)
    >>> train, valid
    ((['ein Hund', 'Ein  Hund'], [['a dog'], ['one dog']]), (['eine Katze'], [['a cat']]))
    """
    sources, references = pairs
    same: dict[str, list[int]] = {}
    for i, text in enumerate(sources if sources is not None else [group[0] for group in references]):
        same.setdefault(" ".join(text.casefold().split()), []).append(i)
    drawn: dict[str, list[int]] = {"test": [], "valid": [], "train": []}
    sizes = {"test": test, "valid": valid, "train": len(references)}
    for text in sorted(same, key=lambda text: hashlib.sha256(text.encode()).digest()):
        place = next(name for name, chosen in drawn.items() if len(chosen) + len(same[text]) <= sizes[name])
        drawn[place] += same[text]
    short = [name for name in ("valid", "test") if len(drawn[name]) < sizes[name]]
    if short or not drawn["train"]:
        what = f"{len(same)} different texts to train on do not give {valid} for validation and {test} for the test"
        raise DataError(f"{what}; lower data.held_out")

    def part(name: str) -> Pairs:
        rows = sorted(drawn[name])
        return None if sources is None else [sources[i] for i in rows], [references[i] for i in rows]

    return part("train"), part("valid"), part("test")


def encode_split(
    sources: Sequence[str] | None,
    references: Sequence[Sequence[str]],
    source_vocab: Vocabulary | None,
    target_vocab: Vocabulary,
) -> Split:
    """Words to ids. With nothing given (sources and source_vocab None) every source is the empty list, without EOS."""
    if sources is not None and source_vocab is None:
        raise DataError(
            "there is source text but no source vocabulary; the vocabularies belong to another kind of task"
        )
    if sources is None and source_vocab is not None:
        raise DataError(
            "there is a source vocabulary but no source text; the vocabularies belong to another kind of task"
        )
    if sources is None or source_vocab is None:
        texts: Sequence[str] = [""] * len(references)
        ids: Sequence[list[int]] = [[] for _ in references]
    else:
        texts = sources
        ids = Deferred(len(sources), partial(source_vocab.encode_all, sources))
    return Split(
        sources=ids,
        references=encoded_groups(references, target_vocab),
        meta=[{"source": text, "references": list(group)} for text, group in zip(texts, references, strict=True)],
    )


def encoded_groups(groups: Sequence[Sequence[str]], vocab: Vocabulary) -> Deferred[list[list[int]]]:
    """The ids of the references of each example."""

    def make() -> list[list[list[int]]]:
        encoded = iter(vocab.encode_all(list(chain.from_iterable(groups))))
        return [list(islice(encoded, len(group))) for group in groups]

    return Deferred(len(groups), make)


def text_task(
    name: str,
    train: Pairs,
    valid: Pairs,
    test: Pairs,
    *,
    length: int | None,
    source_limits: VocabLimits = EVERY_WORD,
    target_limits: VocabLimits = EVERY_WORD,
    vocabs: Vocabs | None = None,
) -> Task:
    """Vocabularies of the training text (or `vocabs`, those of a saved run), and the three splits encoded with them.

    `length` is T; None takes the smallest that holds 95 % of the training references.
    """
    for split, (_, references) in (("train", train), ("valid", valid), ("test", test)):
        if not references:
            raise DataError(f"{name}: the {split} split is empty")
    source_vocab, target_vocab = vocabs or build_vocabs(train, source_limits, target_limits)
    train_split, valid_split, test_split = (
        encode_split(*pairs, source_vocab, target_vocab) for pairs in (train, valid, test)
    )
    chosen = length_covering(train_split) if length is None else length
    return Task(name, train_split, valid_split, test_split, source_vocab, target_vocab, chosen)


def recoded(task: Task, vocabs: Vocabs, length: int | None) -> Task:
    """The same text in the words of other vocabularies; `length` as for `text_task`."""
    source_vocab, target_vocab = vocabs

    def again(split: Split) -> Split:
        sources = None if source_vocab is None else [str(meta["source"]) for meta in split.meta]
        encoded = encode_split(sources, [meta["references"] for meta in split.meta], source_vocab, target_vocab)
        return replace(encoded, meta=split.meta)

    train, valid, test = (again(split) for split in task.splits.values())
    chosen = length_covering(train) if length is None else length
    return Task(task.name, train, valid, test, source_vocab, target_vocab, chosen)


def build_vocabs(train: Pairs, source_limits: VocabLimits, target_limits: VocabLimits) -> Vocabs:
    """Separate vocabularies of the sources and of all references; None for sources that are not there."""
    sources, references = train
    target_vocab = Vocab.build(chain.from_iterable(references), target_limits.min_count, target_limits.max_size)
    if sources is None:
        return None, target_vocab
    return Vocab.build(sources, source_limits.min_count, source_limits.max_size), target_vocab
