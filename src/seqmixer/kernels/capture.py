"""Programs of tensors captured as CUDA graphs: hundreds of small launches become one.

What cannot be captured, and what is not on a CUDA device, runs as it is.
"""

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqmixer.kernels.switch import fused

Run = Callable[..., Any]  # tensors -> nested tuples, dicts or dataclasses of tensors

_beside = ContextVar("_beside", default=False)  # whether this is a branch of a program that is being captured
_tried = ContextVar("_tried", default=False)  # whether this is the first call of a program that is to be captured


class NotReplayable(Exception):
    """A program cannot be captured; the message says why."""


@dataclass(frozen=True)
class Captured:
    """A captured program for inputs of one shape. A replay overwrites the outputs of the last one."""

    graph: Any
    inputs: tuple[Tensor, ...]
    outputs: Any

    def __call__(self, *inputs: Tensor) -> Any:
        for mine, given in zip(self.inputs, inputs, strict=True):
            mine.copy_(given)
        self.graph.replay()
        return self.outputs


class Programs:
    """Programs by name and shape of their inputs.

    The first call runs a program as it is (which also compiles its kernels and makes what it keeps between calls), the
    second captures it, later ones replay it. All share one pool of memory: what one leaves there, the next may use.
    """

    def __init__(self, report: Callable[[str], None] = lambda line: None) -> None:
        self.report = report
        self.seen: set[Hashable] = set()
        self.captured: dict[Hashable, Captured] = {}
        self.pool: Any = None
        self.stream: Any = None
        self.impossible = False

    def __call__(self, name: Hashable, run: Run, *inputs: Tensor) -> Any:
        """run(*inputs). The result is valid until the next call."""
        if self.impossible or not capturable(inputs[0]):
            return run(*inputs)
        key = (name, *((tensor.shape, tensor.dtype) for tensor in inputs))
        if key in self.captured:
            return self.captured[key](*inputs)
        if key in self.seen:
            self.captured[key] = self.capture(run, inputs)
            return self.captured[key](*inputs)
        self.seen.add(key)
        return self.first(run, inputs)

    def forget(self) -> None:
        """Drop all captured programs, because tensors that they use were replaced."""
        self.seen.clear()
        self.captured.clear()
        self.pool = None  # it went with the last program that used it

    def first(self, run: Run, inputs: tuple[Tensor, ...]) -> Any:
        """The first call, uncaptured; an operation that cannot be captured shows here."""
        noise = torch.cuda.get_rng_state()
        try:
            with self.own_stream(), no_synchronisation(), trying():
                return run(*inputs)
        except NotReplayable as error:
            reason = str(error)
        except RuntimeError as error:
            if "synchronizing" not in str(error):
                raise
            reason = f"{where(error)} waits for the device"
        self.impossible = True
        self.report(f"not captured as one program, which is slower: {reason}")
        torch.cuda.set_rng_state(noise)  # what was drawn in vain is drawn again
        return run(*inputs)

    def capture(self, run: Run, inputs: tuple[Tensor, ...]) -> Captured:
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        mine = tuple(tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        with self.own_stream():
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                outputs = run(*mine)
            finally:
                graph.capture_end()
        return Captured(graph, mine, outputs)

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        """Nothing is captured on the main stream. What comes before is waited for, and what comes after waits."""
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        main = torch.cuda.current_stream()
        self.stream.wait_stream(main)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            main.wait_stream(self.stream)


def run_anew(reason: str) -> None:
    """Declare that what follows must run in every call: the program around it is then not captured."""
    if _tried.get():
        raise NotReplayable(reason)


@contextmanager
def trying() -> Iterator[None]:
    """The first call of a program, in which it may be found that it cannot be captured."""
    token = _tried.set(True)
    try:
        yield
    finally:
        _tried.reset(token)


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """An error for every operation that waits for the device. One program may be a part of another."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def capturable(tensor: Tensor) -> bool:
    """On a CUDA device, not inside a program that is being captured, and not in plain torch."""
    return tensor.is_cuda and fused() and not torch.cuda.is_current_stream_capturing()


def warming(tensor: Tensor) -> int:
    """The number of calls of one shape before the program is replayed."""
    return 2 if capturable(tensor) else 0


def where(error: BaseException) -> str:
    """The line of code an error comes from."""
    traceback = error.__traceback__
    while traceback and traceback.tb_next:
        traceback = traceback.tb_next
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}" if traceback else "something"


def overlapped(run: Callable[[], Tensor], given: Tensor) -> Callable[[], Tensor]:
    """Start `run` now where that is possible. -> a function that returns its result

    In a program that is being captured for a CUDA device, `run` becomes a branch of its own, beside what comes next on
    the main one. Anywhere else, also in such a branch, it is run when its result is asked for.

    Args:
        given: what `run` reads; the branch begins where this is known.
    """
    if _beside.get() or not (given.is_cuda and torch.cuda.is_current_stream_capturing()):
        return run
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(main)
    token = _beside.set(True)
    try:
        with torch.cuda.stream(side):
            result = run()
    finally:
        _beside.reset(token)

    def collect(read: object = run) -> Tensor:  # until then what the branch reads is kept: its memory is not free
        main.wait_stream(side)
        return result

    return collect
