"""[data] to a task."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from seqmixer.config import DataConfig, TextConfig
from seqmixer.data import (
    Pairs,
    Preprocessing,
    Split,
    Task,
    VocabLimits,
    Vocabs,
    captions_task,
    collector_paused,
    hold_out,
    learn_vocab,
    read_captions,
    read_columns,
    read_features,
    read_pairs,
    read_table,
    recoded,
    text_task,
    toy,
)
from seqmixer.data.files import one_line
from seqmixer.errors import DataError

WORDS = TextConfig()  # the data has words with spaces between


@collector_paused()
def build_task(
    config: DataConfig, vocabs: Vocabs | None = None, text: TextConfig = WORDS, sample: int | None = None
) -> Task:
    """The data, encoded with `vocabs` if given (those of a saved run, or of a pretrained model).

    With a `sample`, no more than the first so many examples of the training text are looked at.
    """
    gone = missing_files(config, text)
    if gone:
        raise DataError(f"no such files: {', '.join(map(str, gone))}; {elsewhere()}")
    folder = Path(config.folder)
    source_limits = VocabLimits(config.source_min_count, config.source_max_size)
    target_limits = VocabLimits(config.target_min_count, config.target_max_size)
    match config.task:
        case "toy-translation":
            task = toy.translation(config.seed)
        case "toy-summarization":
            task = toy.summarization(config.seed)
        case "toy-captioning":
            task = toy.captioning(config.seed)
        case "text" | "dataset":
            (sources, references), *others = read_splits(config)
            splits = [(sources and sources[:sample], references[:sample]), *others]
            if text.raw:
                splits = [in_lines(pairs) for pairs in splits]
                source, target = preprocessing(config, text)
                vocabs = vocabs or learn_vocabs(source, target, splits[0], source_limits, target_limits)
            task = text_task(
                config.task,
                *splits,
                length=config.length,
                source_limits=source_limits,
                target_limits=target_limits,
                vocabs=vocabs,
            )
        case "captions":
            images = read_captions(folder / config.captions)
            training = [image for image in images if image.split == "train"][:sample]
            images = training + [image for image in images if image.split != "train"]
            if text.raw and vocabs is None:
                captions = [one_line(caption) for image in training for caption in image.captions]
                vocabs = None, learn_vocab(preprocessing(config, text)[1], captions, target_limits, "captions")
            task = captions_task(
                "captions",
                images,
                read_features(folder / config.features),
                length=config.length,
                min_count=config.target_min_count,
                max_size=config.target_max_size,
                vocabs=vocabs,
                read=one_line if text.raw else None,
            )
        case _:
            assert_never(config.task)
    if vocabs is not None and vocabs != (task.source_vocab, task.target_vocab):
        task = recoded(task, vocabs, config.length)  # a built-in task in the words of a pretrained model
    return task if config.limit is None else replace(task, train=first(task.train, config.limit))


def preprocessing(config: DataConfig, text: TextConfig) -> tuple[Preprocessing | None, Preprocessing]:
    """What [text] says of the sources, None where they are no text, and of the targets."""

    def side(i: int) -> Preprocessing:
        language, model = (names[i] if names else None for names in (text.languages, text.models))
        place = Path(config.folder) / model if model else None
        return Preprocessing(text.normalise, language, text.case, text.subwords, place)

    return side(0) if config.source and config.task != "captions" else None, side(-1)


def learn_vocabs(
    source: Preprocessing | None,
    target: Preprocessing,
    train: Pairs,
    source_limits: VocabLimits,
    target_limits: VocabLimits,
) -> Vocabs:
    sources, references = train
    texts = [text for group in references for text in group]
    read = learn_vocab(source, sources, source_limits, "sources") if source and sources is not None else None
    return read, learn_vocab(target, texts, target_limits, "targets")


def in_lines(pairs: Pairs) -> Pairs:
    """Each text on one line."""
    sources, references = pairs
    groups = [[one_line(text) for text in group] for group in references]
    return None if sources is None else [one_line(text) for text in sources], groups


def missing_files(config: DataConfig, text: TextConfig = WORDS) -> list[Path]:
    """All missing files; reading would name the first of them only."""
    match config.task:
        case "text":
            names: Iterable[str] = (*config.train, *config.valid, *config.test)
        case "captions":
            names = (config.captions, config.features)
        case _:
            names = ()
    paths = [Path(config.folder) / name for name in dict.fromkeys([*names, *text.models])]
    return [path for path in paths if not path.exists()]


def elsewhere() -> str:
    """The advice on missing files: SEQMIXER_DATA may be set to another folder."""
    value = os.environ.get("SEQMIXER_DATA")
    variable = f"which is {value}" if value else "which is not set"
    return f"fix the names, or data.folder: its default is the variable SEQMIXER_DATA, {variable}"


def read_splits(config: DataConfig) -> list[Pairs]:
    """The text of train, valid and test; of those that have no files, drawn from train."""
    train = read_split(config, 0)
    if not any(config.held_out):
        return [train, read_split(config, 1), read_split(config, 2)]
    train, *drawn = hold_out(train, *config.held_out)
    return [train, *(drawn[i] if size else read_split(config, i + 1) for i, size in enumerate(config.held_out))]


def read_split(config: DataConfig, i: int) -> Pairs:
    """The text of the i-th of train, valid and test: files, or columns of a table or of a dataset."""
    folder, given = Path(config.folder), int(config.source)
    source, references = config.columns[0] if given and config.columns else None, config.columns[given:]
    if config.task == "dataset":
        return read_columns(folder / config.dataset, config.splits[i], source, references, config.skip_empty)
    files = [folder / name for name in (config.train, config.valid, config.test)[i]]
    if config.columns:
        return read_table(files[0], source, references, config.skip_empty, config.max_words)
    return read_pairs(files[0] if given else None, files[given:], config.skip_empty, config.max_words)


def first(split: Split, n: int) -> Split:
    return Split(split.sources[:n], split.references[:n], split.meta[:n])
