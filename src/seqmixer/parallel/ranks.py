"""Ranks: processes that train one model. All their communication is here, but for DDP's; alone, all of it does nothing.

All ranks run the same program on the same data. What they hold in common stays equal because they compute it from equal
numbers: each has its share of a batch, DDP averages gradients, and metrics and decisions are brought together here.
"""

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from seqmixer.errors import Lost, RunError
from seqmixer.parallel import launch
from seqmixer.parallel.workers import stop_handler
from seqmixer.types import Batch

TIMEOUT = timedelta(minutes=10)  # of a process that neither answers nor is gone
STRIDE = 1_000_003  # between the seeds of two processes

Item = TypeVar("Item")
Result = TypeVar("Result")


def start(device: str) -> None:
    """Join the processes that torchrun started with this one, if it did. Called again, it does nothing."""
    if launch.processes() == 1 or dist.is_initialized():
        return
    backend = "cpu:gloo"  # also where the model is elsewhere: flags and files are the host's
    kind = accelerator(device)
    if kind is not None:
        torch.accelerator.set_device_index(launch.place())
        backend += f",{kind}:{dist.get_default_backend_for_device(kind)}"
    with stop_handler(signal.SIG_DFL), communication():  # it waits where no Python handler is called
        dist.init_process_group(
            backend, store=rendezvous_store(), rank=launch.number(), world_size=launch.processes(), timeout=TIMEOUT
        )


def leave() -> None:
    """Part from the others when all is done: a process that ends with its group's threads alive may be aborted.

    The first rank writes the scores alone. The others wait for it: if it dies meanwhile, one of them has to say so.
    """
    if many():
        wait()
        dist.destroy_process_group()


def rendezvous_store() -> Store:
    """Where the processes of one start find one another: torchrun's store, which outlives them and its restarts."""
    store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
    return PrefixStore(f"seqmixer, start {os.environ.get('TORCHELASTIC_RESTART_COUNT')}", store)


def accelerator(device: str) -> str | None:
    """The kind of accelerator that training.device stands for, one for each process of a node; None is the CPU."""
    there = torch.accelerator.current_accelerator(check_available=True)
    kind = (there.type if there else "cpu") if device == "auto" else device
    if kind == "cpu":
        return None
    if there is None or kind != there.type:
        known = "'auto' or 'cpu'" + (f" or {there.type!r}" if there else "")
        raise RunError(f"training.device = {device!r} cannot be used by several processes here; it may be {known}")
    if torch.accelerator.device_count() < launch.here():
        raise RunError(
            f"this node has {torch.accelerator.device_count()} {kind} devices for {launch.here()} processes, and each "
            "needs its own; lower --nproc-per-node, or set training.device=cpu"
        )
    return kind


def many() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if many() else 1


def rank() -> int:
    """Which of them this one is, from 0."""
    return dist.get_rank() if many() else 0


def first() -> bool:
    """Whether this is the process that writes: log, checkpoints, scores, progress."""
    return rank() == 0


def own_seed(seed: int, moment: int = 0) -> int:
    """A seed of this process's own; that of the first at moment 0 is the seed itself."""
    return seed + STRIDE * (rank() + world() * moment)


def share(batch: Batch) -> Batch:
    """This process's part of a batch: every world-th sentence.

    A batch of fewer sentences than processes is everybody's: no part is empty, and the means are the same.
    """
    if not many() or len(batch) < world():
        return batch
    mine = slice(rank(), None, world())
    return Batch(batch.source[mine], batch.target[mine], batch.references[mine], batch.meta[mine])


def copies(sentences: int) -> int:
    """How many ranks have each sentence of a batch, see `share`."""
    return 1 if sentences >= world() else world()


def total(tensor: Tensor) -> Tensor:
    """The sum of a tensor over the ranks."""
    if many():
        with communication():
            dist.all_reduce(tensor)
    return tensor


def ratio(counted: Tensor, count: Tensor) -> Tensor:
    """counted / count, each first summed over the ranks; 0 where nothing was counted.  (), () -> ()"""
    if many():
        counted, count = total(torch.stack([counted.double(), count.double()])).float()
    return counted / count.clamp(min=1)


def spread(items: Iterable[Item], work: Callable[[Item], tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """work(item) of every item, in their order. Each process does its part, and has all results: on the CPU then."""
    mine = [work(item) for item in islice(items, rank(), None, world())]
    if not many():
        return mine
    parts = gathered([tuple(tensor.cpu() for tensor in result) for result in mine])
    return [parts[i % world()][i // world()] for i in range(sum(map(len, parts)))]


def agreed(*flags: bool) -> list[bool]:
    """Each flag as true as it is in any process. They wait for one another here."""
    if not many():
        return list(flags)
    votes = torch.tensor(flags, dtype=torch.int)
    with communication():
        dist.all_reduce(votes, dist.ReduceOp.MAX)
    return [bool(vote) for vote in votes.tolist()]


def wait() -> None:
    """Go on when all processes are here."""
    agreed(False)


def gathered(value: Result) -> list[Result]:
    """What each process has, by rank."""
    values: list[Any] = [value] * world()
    if many():
        with communication():
            dist.all_gather_object(values, value)
    return values


def from_first(function: Callable[[], Result]) -> Result:
    """What a function gives in the first process, which alone calls it."""
    value = [function() if first() else None]
    if many():
        with communication():
            dist.broadcast_object_list(value, src=0)
    return value[0]  # type: ignore[return-value]


@contextmanager
def first_rank_first() -> Iterator[None]:
    """The first process goes through alone, the others after it, when what it leaves on the disk is there."""
    if not first():
        wait()
    yield
    if first():
        wait()


def first_to_say() -> bool:
    """Whether no other process has told the user of an error yet: of many that fail for one reason, one says it."""
    if launch.processes() == 1:
        return True
    try:
        return rendezvous_store().add("said", 1) == 1
    except RuntimeError:  # torchrun is gone too
        return launch.number() == 0


@contextmanager
def communication() -> Iterator[None]:
    """Errors of the communication between ranks, in words: another process is gone. Other errors stay what they are."""
    try:
        yield
    except RuntimeError as error:
        line = str(error).splitlines()[0]
        if not (isinstance(error, dist.DistError) or re.match(r"\[\S*(gloo|c10d)\S*\]", line)):
            raise
        reason = re.sub(r"^\[\S*\] ", "", line)  # without the line of torch's code
        raise Lost(
            f"one of the {launch.processes()} processes is gone, or does not answer ({reason}); what was saved before "
            "is intact"
        ) from error
