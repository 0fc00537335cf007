"""What a run will take: memory and disk by counting, time by a few real updates on the real data."""

import ctypes
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from seqmixer.algorithms import Algorithm
from seqmixer.bars import duration, watched
from seqmixer.build import Metrics, first
from seqmixer.config import Config
from seqmixer.data import Task, batch_count, batches
from seqmixer.doctor.findings import Finding, ok, problem, warning
from seqmixer.evaluation import evaluate, perplexity
from seqmixer.kernels import ROOM
from seqmixer.training.clock import Clock
from seqmixer.training.step import Step
from seqmixer.types import SequenceModel

GIB = 2**30
FLOAT = 4  # bytes
MOMENTS = {"sgd": 0, "adam": 2}  # numbers that an optimiser keeps of each parameter
UPDATES = 5  # measured of each kind of stage, after one to warm up


@dataclass(frozen=True)
class Timing:
    """Seconds, measured."""

    first: Sequence[float]  # of each update in the first stage
    last: Sequence[float]  # of each update in the last one: the other stages lie between, and are counted like it
    validation: float  # of a split


def counted(config: Config, task: Task, model: SequenceModel) -> dict[str, int]:
    """Bytes of memory, by what takes them. What is not counted (hidden states, the sources) is small beside it."""
    weights = FLOAT * sum(parameter.numel() for parameter in model.parameters())
    sentences = min(config.training.batch_size, len(task.train))
    scores = config.algorithm.sentences * sentences * task.length * len(task.target_vocab)
    in_parts = type(model).log_prob is not SequenceModel.log_prob and config.training.fast
    if in_parts and not config.algorithm.holds_logits:
        scores = min(scores, ROOM)
    memory = {
        "weights": weights,
        "gradients": weights,
        "optimiser": MOMENTS[config.training.optimizer] * weights,
        "scores of all words": 3 * FLOAT * scores,  # o, log p and the gradient of o
    }
    return memory | ({"reference model": weights} if config.algorithm.holds_reference else {})


def fits(memory: dict[str, int], available: int) -> Finding:
    """The memory of an update, against what the device has in all."""
    parts = ", ".join(f"{name} {in_bytes(needed)}" for name, needed in memory.items())
    total, parameters = sum(memory.values()), memory["weights"] // FLOAT
    what = f"{parameters:,} parameters; an update needs at least {in_bytes(total)} ({parts})"
    why = f"the device has {in_bytes(available)}"
    if total > available:
        return problem(what, why, "lower training.batch_size, data.target_max_size or model.hidden")
    if total > 0.7 * available:
        return warning(what, f"{why}, and not all is counted", "lower training.batch_size")
    return ok(what)


def disk(config: Config, memory: dict[str, int]) -> int:
    """Bytes of all checkpoints: those kept, and the one that is being written."""
    last = memory["weights"] + memory["optimiser"] + memory.get("reference model", 0)
    return (config.training.keep + 2) * last + 3 * memory["weights"]


def room(needed: int, folder: Path) -> Finding:
    """The bytes of all checkpoints, against what the disk of the run folder has left."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    what = f"checkpoints take up to {in_bytes(needed)} of disk"
    if needed > free:
        advice = "make room, lower training.keep, or choose another folder with --out"
        return problem(what, f"{place} has {in_bytes(free)} left", advice)
    return ok(f"{what}, {in_bytes(free)} are free")


def measured(config: Config, task: Task, model: SequenceModel, algorithm: Algorithm, epochs: int) -> Timing:
    """Train the model for a few updates, which change it, and validate it."""
    split = first(task.valid, min(len(task.valid), config.evaluation.batch_size))
    began = time.perf_counter()
    perplexity(model, task, split, config.evaluation.batch_size)
    evaluate(model, task, split, *Metrics(config, task).chosen, batch_size=config.evaluation.batch_size)
    validation = (time.perf_counter() - began) * len(task.valid) / len(split)
    algorithm.set_reference(model)
    step = Step(model.train(), algorithm, config.training, Clock())
    at_first, at_last = (updates(config, task, step, epoch) for epoch in (0, epochs - 1))
    return Timing(at_first, at_last, validation)


def updates(config: Config, task: Task, step: Step, epoch: int) -> list[float]:
    """Seconds of a few updates as that epoch does them."""
    seconds = []
    stream = batches(task.train, config.training.batch_size, task.length, seed=config.seed, epoch=epoch)
    for _, batch in zip(watched(range(UPDATES + 1), "updates"), stream, strict=False):
        began = time.perf_counter()
        step(batch.to(step.device), epoch)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - began)
    return seconds[1:] or seconds  # the first one warms up, if there is another


def lasts(config: Config, task: Task, timing: Timing, stages: Sequence[str], done: int) -> Finding:
    """From here to the end of the schedule: `stages` has a label for each epoch, `done` epochs are behind."""
    left = stages[done:]
    if not left:
        return ok("no epochs are left to train")
    updates = batch_count(task.train, config.training.batch_size)
    at_first = sum(label == stages[0] for label in left)

    def total(of: Callable[[Sequence[float]], float]) -> str:
        training = updates * (at_first * of(timing.first) + (len(left) - at_first) * of(timing.last))
        return duration(training + len(left) * timing.validation)

    spread = f"{total(min)} to {total(max)} by the fastest and the slowest of {len(timing.last)} measured updates"
    return ok(f"{len(left)} epochs of {updates} updates and a validation take about {total(median)} here ({spread})")


def memory_of(device: torch.device) -> int:
    """Bytes in all."""
    if device.type == "cpu" and sys.platform == "win32":
        kib = ctypes.c_ulonglong()
        ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kib))
        return 1024 * kib.value
    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return torch.accelerator.get_memory_info(device)[1]


def in_bytes(number: float) -> str:
    """
    >>> in_bytes(3 * 2**20), in_bytes(5 * 2**30)
    ('3.0 MiB', '5.0 GiB')
    """
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / 2**20:.1f} MiB"
