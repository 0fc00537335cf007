"""What a run will take: memory and disk by counting, time by a few real updates on the real data."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

from seqmixer.algorithms import Algorithm
from seqmixer.build import Metrics, first
from seqmixer.config import Config
from seqmixer.data import Task, batch_count, batches
from seqmixer.doctor.environment import GIB, device_memory, existing
from seqmixer.doctor.findings import Check, Finding
from seqmixer.errors import within_memory
from seqmixer.evaluation import device_of, evaluate, perplexity
from seqmixer.kernels import ROOM
from seqmixer.training.clock import Clock
from seqmixer.training.step import Step
from seqmixer.types import SequenceModel

FLOAT = 4  # bytes
MOMENTS = {"sgd": 0, "adam": 2}  # numbers that an optimiser keeps of each parameter
UPDATES = 5  # measured of each kind of stage, after one to warm up


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes, by counting: what is not counted (hidden states, the sources) is small beside it, or of another kind."""

    parameters: int  # how many
    weights: int
    gradients: int
    optimizer: int
    logits: int  # o, log p and the gradient of o, of as many words as are held at a time
    reference: int = 0  # the model that a KL term holds to

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.logits + self.reference


@dataclass(frozen=True)
class Timing:
    """Seconds, measured."""

    first: Sequence[float]  # of each update in the first stage
    last: Sequence[float]  # of each update in the last one: the other stages lie between, and are counted like it
    validation: float  # of a whole split


@dataclass(frozen=True)
class Plan:
    """What is to be done, and where."""

    folder: Path
    epochs: int
    done: int  # epochs that a run has behind it
    labels: Sequence[str]  # of each epoch's stage


@within_memory()
def examine_cost(config: Config, task: Task, model: SequenceModel, algorithm: Algorithm, plan: Plan) -> Check:
    """The model is trained for a few updates: it is not the same afterwards."""
    memory = counted(config, task, model)
    timing = measured(config, task, model, algorithm, plan.epochs)
    values = {"memory": asdict(memory), "seconds": asdict(timing), "disk": disk(config, memory)}
    return Check(
        "cost", [fits(memory, model), room(config, memory, plan.folder), lasts(config, task, timing, plan)], values
    )


def counted(config: Config, task: Task, model: SequenceModel) -> MemoryNeed:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    sentences = min(config.training.batch_size, len(task.train))
    numbers = config.algorithm.sentences * sentences * task.length * len(task.target_vocab)
    in_parts = type(model).log_prob is not SequenceModel.log_prob and config.training.fast
    if in_parts and not config.algorithm.holds_logits:
        numbers = min(numbers, ROOM)
    return MemoryNeed(
        parameters=parameters,
        weights=FLOAT * parameters,
        gradients=FLOAT * parameters,
        optimizer=FLOAT * MOMENTS[config.training.optimizer] * parameters,
        logits=3 * FLOAT * numbers,
        reference=FLOAT * parameters if getattr(config.algorithm, "kl", 0) else 0,
    )


def fits(memory: MemoryNeed, model: SequenceModel) -> Finding:
    available = device_memory(device_of(model))
    parts = (
        f"weights {in_bytes(memory.weights)}, gradients {in_bytes(memory.gradients)}, optimiser "
        f"{in_bytes(memory.optimizer)}, scores of all words {in_bytes(memory.logits)}"
    )
    if memory.reference:
        parts += f", model of the KL term {in_bytes(memory.reference)}"
    what = f"{memory.parameters:,} parameters; an update needs at least {in_bytes(memory.total)} ({parts})"
    if memory.total > available:
        why = f"the device has {in_bytes(available)}"
        return Finding("problem", what, why, "lower training.batch_size, data.target_max_size or model.hidden")
    if memory.total > 0.7 * available:
        why = f"the device has {in_bytes(available)}, and not all is counted"
        return Finding("warning", what, why, "lower training.batch_size")
    return Finding("ok", what)


def disk(config: Config, memory: MemoryNeed) -> int:
    """Bytes of all checkpoints: those kept, and the one that is being written."""
    return (config.training.keep + 2) * (memory.weights + memory.optimizer + memory.reference) + 3 * memory.weights


def room(config: Config, memory: MemoryNeed, folder: Path) -> Finding:
    needed, free = disk(config, memory), shutil.disk_usage(existing(folder)).free
    what = f"checkpoints take up to {in_bytes(needed)} of disk"
    if needed > free:
        why = f"{existing(folder)} has {in_bytes(free)} left"
        return Finding("problem", what, why, "make room, lower training.keep, or choose another folder with --out")
    return Finding("ok", what)


def measured(config: Config, task: Task, model: SequenceModel, algorithm: Algorithm, epochs: int) -> Timing:
    split = first(task.valid, min(len(task.valid), config.evaluation.batch_size))
    began = time.perf_counter()
    perplexity(model, task, split, config.evaluation.batch_size)
    evaluate(model, task, split, *Metrics(config, task).chosen, batch_size=config.evaluation.batch_size)
    validation = (time.perf_counter() - began) * len(task.valid) / len(split)
    algorithm.set_reference(model)
    step = Step(model.train(), algorithm, config.training, Clock())
    at_first, at_last = (updates(config, task, step, model, epoch) for epoch in (0, epochs - 1))
    return Timing(at_first, at_last, validation)


def updates(config: Config, task: Task, step: Step, model: SequenceModel, epoch: int) -> list[float]:
    """Seconds of a few updates as that epoch does them."""
    seconds = []
    count = min(batch_count(task.train, config.training.batch_size), UPDATES + 1)
    stream = batches(task.train, config.training.batch_size, task.length, seed=config.seed, epoch=epoch)
    for batch, _ in zip(stream, range(count), strict=False):
        began = time.perf_counter()
        step(batch.to(device_of(model)), epoch)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - began)
    return seconds[1:] or seconds  # the first one warms up, if there is another


def lasts(config: Config, task: Task, timing: Timing, plan: Plan) -> Finding:
    """From here to the end of the schedule."""
    left = plan.labels[plan.done :]
    if not left:
        return Finding("ok", "no epochs are left to train")
    updates = batch_count(task.train, config.training.batch_size)
    at_first = sum(label == plan.labels[0] for label in left)

    def total(of: Callable[[Sequence[float]], float]) -> float:
        return updates * (at_first * of(timing.first) + (len(left) - at_first) * of(timing.last))

    validating = len(left) * timing.validation
    expected, least, most = (total(of) + validating for of in (median, min, max))
    spread = (
        f"{in_time(least)} to {in_time(most)} by the fastest and the slowest of {len(timing.last)} measured updates"
    )
    what = f"{len(left)} epochs of {updates} updates and a validation take about {in_time(expected)} here ({spread})"
    return Finding("ok", what)


def in_bytes(number: float) -> str:
    """
    >>> in_bytes(3 * 2**20), in_bytes(5 * 2**30)
    ('3.0 MiB', '5.0 GiB')
    """
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / 2**20:.1f} MiB"


def in_time(seconds: float) -> str:
    """
    >>> in_time(8.2), in_time(200), in_time(9000)
    ('8 s', '3.3 min', '2.5 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
