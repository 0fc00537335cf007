"""From sampled sentences to the splits of a task."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from seqmixer.data.task import Task
from seqmixer.data.text import text_task
from seqmixer.data.toy.variants import Variants, draw

Item = TypeVar("Item")
Sizes = tuple[int, int, int]  # of train, valid and test


def cut(items: Sequence[Item], sizes: Sizes) -> tuple[Sequence[Item], Sequence[Item], Sequence[Item]]:
    """The first for training, the next for validation, the last for the test."""
    train, valid, test = sizes
    return items[:train], items[train : train + valid], items[train + valid : train + valid + test]


def longest(variants: Sequence[Variants]) -> int:
    """T: the words of the longest sentence that could be asked for, EOS included, so that nothing is cropped."""
    return 1 + max(len(text.split()) for each in variants for text in each)


def pairs(name: str, rng: random.Random, sources: Sequence[str], variants: Sequence[Variants], sizes: Sizes) -> Task:
    """A text task with one reference sampled per source, and all of its variants in `meta["variants"]`."""
    references = [draw(rng, each, 1) for each in variants]
    train, valid, test = zip(cut(sources, sizes), cut(references, sizes), strict=True)
    return with_column(text_task(name, train, valid, test, length=longest(variants)), "variants", variants)


def with_column(task: Task, name: str, values: Sequence[object]) -> Task:
    """The task with one more entry in the meta of every example; values in the order train, valid, test."""
    parts = cut(values, (len(task.train), len(task.valid), len(task.test)))
    train, valid, test = (
        replace(split, meta=[{**meta, name: value} for meta, value in zip(split.meta, part, strict=True)])
        for split, part in zip((task.train, task.valid, task.test), parts, strict=True)
    )
    return replace(task, train=train, valid=valid, test=test)
