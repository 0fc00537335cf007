"""Batches: a function of split, seed and epoch alone, so that a resumed run sees what it would have seen."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from seqmixer.data.task import Split
from seqmixer.types import PAD, Batch

BUCKET = 50  # batches that are sorted by length together: little padding, and still a new mix each epoch


def batches(
    split: Split,
    batch_size: int,
    length: int,
    *,
    seed: int,
    epoch: int,
    shuffle: bool = True,
    skip: int = 0,
) -> Iterator[Batch]:
    """One epoch of a split, targets and references cropped at `length` words (T).

    Shuffled, sources of like length come together, and one reference of each example is drawn as the target (as the
    paper samples one caption of an image). Otherwise the order is the split's and the target the first reference.
    The first `skip` batches are left out.
    """
    rng = np.random.default_rng((seed, epoch))  # its own, not the global one
    order = _bucketed(split, batch_size, rng) if shuffle else _in_turn(np.arange(len(split)), batch_size)
    drawn = _drawn(split, rng) if shuffle else np.zeros(len(split), dtype=np.int64)
    for index in order[skip:]:
        yield _batch(split, index, drawn[index], length)


def batch_count(split: Split, batch_size: int) -> int:
    """How many batches an epoch has; the last may be smaller."""
    return -(-len(split) // batch_size)


def _bucketed(split: Split, batch_size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Random batches of examples of like source length, in random order."""
    order = rng.permutation(len(split))
    if not isinstance(split.sources, Tensor):
        lengths = np.array([len(source) for source in split.sources])
        buckets = _in_turn(order, BUCKET * batch_size)
        order = np.concatenate([bucket[np.argsort(lengths[bucket], kind="stable")] for bucket in buckets])
    groups = _in_turn(order, batch_size)
    return [groups[i] for i in rng.permutation(len(groups))]


def _in_turn(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[i : i + size] for i in range(0, len(order), size)]


def _drawn(split: Split, rng: np.random.Generator) -> np.ndarray:
    """Which reference each example learns from in this epoch. Drawn for all, so that `skip` changes nothing."""
    return rng.integers([len(references) for references in split.references])


def _batch(split: Split, index: np.ndarray, drawn: np.ndarray, length: int) -> Batch:
    groups = [split.references[i] for i in index]
    most = max(len(group) for group in groups)
    rows = chain.from_iterable([*group, *[[]] * (most - len(group))] for group in groups)
    return Batch(
        source=_source(split, index),
        target=_padded([group[j] for group, j in zip(groups, drawn, strict=True)], length),  # (B, T)
        references=_padded(list(rows), length).view(len(index), most, length),  # (B, R, T)
        meta=[split.meta[i] for i in index],
    )


def _source(split: Split, index: np.ndarray) -> Tensor:
    if isinstance(split.sources, Tensor):
        return split.sources[torch.from_numpy(index)]  # (B, D)
    rows = [split.sources[i] for i in index]
    return _padded(rows, max(len(row) for row in rows))  # (B, N); (B, 0) with no context


def _padded(rows: Sequence[list[int]], width: int) -> Tensor:
    """Rows of any length as one tensor, cropped or filled up with PAD.  -> (rows, width)"""
    lengths = np.array([min(len(row), width) for row in rows])
    words = np.full((len(rows), width), PAD, dtype=np.int64)
    words[np.arange(width) < lengths[:, None]] = np.fromiter(
        chain.from_iterable(row[:width] for row in rows), dtype=np.int64, count=lengths.sum()
    )
    return torch.from_numpy(words)
