"""Ranks: processes that train one model. All their communication but DDP's; in a single process it is a no-op.

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
    """Join the process group, if torchrun started several ranks. Further calls do nothing."""
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
    """Leave the process group when all is done: a process that ends with the group's threads alive may be aborted.

    The first rank writes the scores alone. The others wait for it: if it dies meanwhile, one of them has to say so.
    """
    if many():
        wait()
        dist.destroy_process_group()


def rendezvous_store() -> Store:
    """torchrun's key-value store, where the ranks find one another; it outlives restarts, so each has a prefix."""
    store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
    return PrefixStore(f"seqmixer, start {os.environ.get('TORCHELASTIC_RESTART_COUNT')}", store)


def accelerator(device: str) -> str | None:
    """The kind of accelerator of training.device, one for each rank of a node; None is the CPU."""
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
    """The number of ranks."""
    return dist.get_world_size() if many() else 1


def rank() -> int:
    """This rank, from 0."""
    return dist.get_rank() if many() else 0


def first() -> bool:
    """Whether this is the first rank, which writes log, checkpoints, scores and progress."""
    return rank() == 0


def own_seed(seed: int, moment: int = 0) -> int:
    """The seed of this rank; for the first rank at moment 0 it is `seed`."""
    return seed + STRIDE * (rank() + world() * moment)


def share(batch: Batch) -> Batch:
    """This rank's share of a batch: every world-th sentence.

    A batch of fewer sentences than ranks is not shared: every rank has all of it, and the means are the same.
    """
    if not many() or len(batch) < world():
        return batch
    mine = slice(rank(), None, world())
    return Batch(batch.source[mine], batch.target[mine], batch.references[mine], batch.meta[mine])


def copies(sentences: int) -> int:
    """How many ranks train on each sentence of a batch, see `share`."""
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
    """work(item) of every item, in order. The ranks share the items; each gets all results, on the CPU then."""
    mine = [work(item) for item in islice(items, rank(), None, world())]
    if not many():
        return mine
    parts = gathered([tuple(tensor.cpu() for tensor in result) for result in mine])
    return [parts[i % world()][i // world()] for i in range(sum(map(len, parts)))]


def agreed(*flags: bool) -> list[bool]:
    """For each flag, whether it is true in any rank. Synchronises the ranks."""
    if not many():
        return list(flags)
    votes = torch.tensor(flags, dtype=torch.int)
    with communication():
        dist.all_reduce(votes, dist.ReduceOp.MAX)
    return [bool(vote) for vote in votes.tolist()]


def wait() -> None:
    """Wait until all ranks are here."""
    agreed(False)


def gathered(value: Result) -> list[Result]:
    """The value of each rank, by rank."""
    values: list[Any] = [value] * world()
    if many():
        with communication():
            dist.all_gather_object(values, value)
    return values


def from_first(function: Callable[[], Result]) -> Result:
    """The result of a function that the first rank alone calls."""
    value = [function() if first() else None]
    if many():
        with communication():
            dist.broadcast_object_list(value, src=0)
    return value[0]  # type: ignore[return-value]


@contextmanager
def first_rank_first() -> Iterator[None]:
    """The first rank runs the block alone, then all further ones, which find what it wrote to the disk."""
    if not first():
        wait()
    yield
    if first():
        wait()


def first_to_say() -> bool:
    """Whether this rank is the first to report an error: several may fail for one reason."""
    if launch.processes() == 1:
        return True
    try:
        return rendezvous_store().add("said", 1) == 1
    except RuntimeError:  # torchrun is gone too
        return launch.number() == 0


@contextmanager
def communication() -> Iterator[None]:
    """Errors of the communication between ranks become `Lost`: another rank is gone. Other errors pass."""
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
