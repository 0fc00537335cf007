"""[data] to a task."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from seqmixer.config import DataConfig
from seqmixer.data import (
    Pairs,
    Split,
    Task,
    VocabLimits,
    Vocabs,
    captions_task,
    collector_paused,
    read_captions,
    read_columns,
    read_features,
    read_pairs,
    recoded,
    text_task,
    toy,
)
from seqmixer.errors import DataError


@collector_paused()
def build_task(config: DataConfig, vocabs: Vocabs | None = None) -> Task:
    """The data, encoded with `vocabs` if given (those of a saved run, or of a pretrained model)."""
    gone = missing_files(config)
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
            task = text_task(
                config.task,
                *(read_split(config, i) for i in range(3)),
                length=config.length,
                source_limits=source_limits,
                target_limits=target_limits,
                vocabs=vocabs,
            )
        case "captions":
            task = captions_task(
                "captions",
                read_captions(folder / config.captions),
                read_features(folder / config.features),
                length=config.length,
                min_count=config.target_min_count,
                max_size=config.target_max_size,
                vocabs=vocabs,
            )
        case _:
            assert_never(config.task)
    if vocabs is not None and vocabs != (task.source_vocab, task.target_vocab):
        task = recoded(task, vocabs, config.length)  # a built-in task in the words of a pretrained model
    return task if config.limit is None else replace(task, train=first(task.train, config.limit))


def missing_files(config: DataConfig) -> list[Path]:
    """All files that are named and not there, where reading would name the first."""
    match config.task:
        case "text":
            names: Iterable[str] = (*config.train, *config.valid, *config.test)
        case "captions":
            names = (config.captions, config.features)
        case _:
            names = ()
    paths = [Path(config.folder) / name for name in dict.fromkeys(names)]
    return [path for path in paths if not path.exists()]


def elsewhere() -> str:
    """What to do about files that are not there: the variable may point away from those of the current folder."""
    value = os.environ.get("SEQMIXER_DATA")
    variable = f"which is {value}" if value else "which is not set"
    return f"fix the names, or data.folder: its default is the variable SEQMIXER_DATA, {variable}"


def read_split(config: DataConfig, i: int) -> Pairs:
    """The text of the i-th of train, valid and test: files, or columns of a dataset."""
    folder, given = Path(config.folder), int(config.source)
    if config.task == "dataset":
        source, path = config.columns[0] if given else None, folder / config.dataset
        return read_columns(path, config.splits[i], source, config.columns[given:], config.skip_empty)
    files = [folder / name for name in (config.train, config.valid, config.test)[i]]
    return read_pairs(files[0] if given else None, files[given:], config.skip_empty, config.max_words)


def first(split: Split, n: int) -> Split:
    return Split(split.sources[:n], split.references[:n], split.meta[:n])
