"""Batches: a function of split, seed and epoch alone, so that a resumed run sees what it would have seen."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from seqmixer.data.table import Table
from seqmixer.data.task import Split
from seqmixer.types import Batch

BUCKET = 50  # batches that are sorted by length together: little padding, and still a new mix each epoch
STRIDE = 8  # sources are filled up to a multiple of so many words: few shapes, each of which is captured once


def batches(
    split: Split | Table, batch_size: int, length: int, *, seed: int, epoch: int, skip: int = 0
) -> Iterator[Batch]:
    """One epoch of training, targets and references cropped at `length` words (T), on the device of the table.

    Sources of like length come together, and one reference of each example is drawn as the target (as the paper samples
    one caption of an image). The first `skip` batches are skipped.
    """
    table = split if isinstance(split, Table) else Table.of(split)
    rng = np.random.default_rng((seed, epoch))  # its own, not the global one
    groups = _bucketed(_lengths(table.split), batch_size, rng)
    return _cut(table, groups[skip:], _drawn(table.split, rng), length)


def in_order(split: Split | Table, batch_size: int, length: int) -> Iterator[Batch]:
    """A split in its own order, with the first reference of each example as its target; else as `batches`."""
    table = split if isinstance(split, Table) else Table.of(split)
    every = np.arange(len(table.split))
    return _cut(table, _in_turn(every, batch_size), np.zeros_like(every), length)


def batch_count(split: Split, batch_size: int) -> int:
    """How many batches an epoch has; the last may be smaller."""
    return -(-len(split) // batch_size)


def _cut(table: Table, groups: list[np.ndarray], drawn: np.ndarray, length: int) -> Iterator[Batch]:
    """A batch of each group of examples, with the reference that was drawn for each example as its target."""
    if not groups:
        return
    order, lengths = np.concatenate(groups), _lengths(table.split)
    device = table.first.device
    sizes = [len(group) for group in groups]  # moved in one piece, split there
    indices = torch.from_numpy(order).to(device).split(sizes)
    targets = torch.from_numpy(drawn[order]).to(device).split(sizes)
    for group, index, target in zip(groups, indices, targets, strict=True):
        width = -(-int(lengths[group].max()) // STRIDE) * STRIDE
        yield replace(table.cut(index, target, width, length), meta=[table.split.meta[i] for i in group])


def _lengths(split: Split) -> np.ndarray:
    """Of the sources, in words; 0 for images."""
    if isinstance(split.sources, Tensor):
        return np.zeros(len(split), dtype=np.int64)
    return np.fromiter((len(source) for source in split.sources), dtype=np.int64, count=len(split))


def _bucketed(lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Random batches of examples of like source length, in random order."""
    order = rng.permutation(len(lengths))
    buckets = _in_turn(order, BUCKET * batch_size)
    order = np.concatenate([bucket[np.argsort(lengths[bucket], kind="stable")] for bucket in buckets])
    groups = _in_turn(order, batch_size)
    return [groups[i] for i in rng.permutation(len(groups))]


def _in_turn(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[i : i + size] for i in range(0, len(order), size)]


def _drawn(split: Split, rng: np.random.Generator) -> np.ndarray:
    """Which reference each example learns from in this epoch. Drawn for all, so that `skip` changes nothing."""
    return rng.integers([len(references) for references in split.references])
