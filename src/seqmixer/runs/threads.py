"""The CPU threads of a run: measured at its start where they are not set, since a busy machine may want fewer."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median

import torch

from seqmixer.build import first
from seqmixer.config import Config, TrainingConfig
from seqmixer.data import Task, in_order
from seqmixer.decoding import fast, free, sample, shift
from seqmixer.kernels import plain
from seqmixer.losses import cross_entropy
from seqmixer.parallel import ranks
from seqmixer.storage.identity import read_config
from seqmixer.training import device
from seqmixer.types import Batch, SequenceModel

SECONDS = 1.0  # for all measurements, unless a step takes longer
BLOCK = 0.1  # seconds of steps between two changes of the number, which cost some time themselves
NEAR = 1.1  # times the shortest: fewer threads leave room for others
FAR = 1.5  # times the shortest: fewer threads need not be tried


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """So many of them in the block, None for as many as there are; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def as_begun(config: Config, folder: Path) -> Config:
    """The config with the threads that the run in `folder` began with: with others it might end with other bits."""
    if config.training.threads is None and (folder / "config.toml").is_file():
        return with_threads(config, read_config(folder).training.threads)
    return with_threads(config, config.training.threads)


def with_threads(config: Config, count: int | None) -> Config:
    """From here on, also in the config."""
    if count is not None:
        torch.set_num_threads(count)
    return config.model_copy(update={"training": config.training.model_copy(update={"threads": count})})


def measured(model: SequenceModel, task: Task, settings: TrainingConfig, samples: bool) -> dict[int, float]:
    """Seconds of a step by the number of threads: as many as torch takes, half of them, 1. Empty: there is no choice.

    A step is forward and backward on a real batch, and sampling where the run does; no weight and no generator changes.
    """
    most = torch.get_num_threads()
    if settings.threads is not None or most == 1 or ranks.many() or device(settings.device).type != "cpu":
        return {}
    count = min(settings.batch_size, len(task.train))
    (one,), (batch,) = (in_order(first(task.train, n), n, task.length) for n in (1, count))

    def step(batch: Batch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bfloat16"):
            if samples:
                fast.generate(model, batch.source, *free(batch.source, task.length), sample)
            h = model.unroll(shift(batch.target), model.encode(batch.source))  # (B, T, H)
            loss = cross_entropy(model.log_prob(h, batch.target), batch.mask)
        loss.backward()
        model.zero_grad(set_to_none=True)

    with torch.random.fork_rng(devices=[]), nullcontext() if settings.fast else plain():
        model.train()
        with threads(1):  # never slow; where others use the cores, a step of many threads may take 50 times as long
            step(one)
        return timed(partial(step, batch), sorted({most, max(1, most // 2), 1}, reverse=True))


def timed(step: Callable[[], None], counts: list[int]) -> dict[int, float]:
    """Seconds of a step with each number, the median of some blocks: in turn, so that a disturbance meets all."""
    began, blocks = time.perf_counter(), dict[int, list[float]]()
    while not blocks or time.perf_counter() - began < SECONDS:
        for count in list(blocks) or counts:
            with threads(count):
                blocks.setdefault(count, []).append(block(step))
            if len(blocks[count]) == 1 and blocks[count][0] > FAR * min(min(blocks.values())):
                break
    return {count: median(found) for count, found in blocks.items()}


def block(step: Callable[[], None]) -> float:
    """Seconds of a step, the mean of as many as fit."""
    began, steps = time.perf_counter(), 0
    while not steps or time.perf_counter() - began < BLOCK:
        step()
        steps += 1
    return (time.perf_counter() - began) / steps


def fewest(seconds: Mapping[int, float]) -> int:
    """The fewest threads that are about as fast as the fastest.

    >>> fewest({8: 0.10, 4: 0.09, 1: 0.2}), fewest({2: 0.10, 1: 0.105})
    (4, 1)
    """
    return min(count for count, taken in seconds.items() if taken <= NEAR * min(seconds.values()))


def in_words(seconds: Mapping[int, float]) -> str:
    """
    >>> in_words({2: 0.0142, 1: 0.0121})
    '1 of 2 CPU threads: a step takes 14.2 ms with 2, 12.1 ms with 1'
    """
    each = ", ".join(f"{1000 * taken:.1f} ms with {count}" for count, taken in seconds.items())
    return f"{fewest(seconds)} of {max(seconds)} CPU threads: a step takes {each}"
