"""Processes that work for this one: they stop when it is told to stop, and none outlives it.

Ctrl-C reaches a whole process group, `kill` one process, `timeout` and a cluster either. So workers are deaf to SIGINT
and SIGTERM, and their parent, wherever its signal came from, asks each of them once. It asks by closing a pipe, which
its death closes too.
"""

import _thread
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Handler = Callable[[int, FrameType | None], object]

SPAWN = multiprocessing.get_context("spawn")  # a fork would inherit threads and a device that it cannot use
STOPS = (signal.SIGINT, signal.SIGTERM)
ASKED = threading.Event()  # in a worker: its parent wants it to stop


@contextmanager
def heard_by(handler: Handler) -> Iterator[None]:
    """Between `with` and its end, Ctrl-C and SIGTERM go to this handler."""
    before = {}
    try:
        for number in STOPS:
            before[number] = signal.signal(number, handler)
    except ValueError:  # not the main thread: signals go elsewhere
        pass
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


@contextmanager
def deaf() -> Iterator[None]:
    """What is started here begins with Ctrl-C and SIGTERM blocked; for this process they wait until the end of it."""
    resource_tracker.ensure_running()  # started with the first process otherwise, it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class Workers:
    """Calls go to processes. The first signal asks the calls under way to stop, a second one ends the processes."""

    pool: ProcessPoolExecutor
    stop: Connection
    end: Connection

    def submit(self, call: Callable[[*Ts], T], *arguments: *Ts) -> Future[T]:
        with deaf():
            return self.pool.submit(stoppable, partial(call, *arguments))

    def heed(self, number: int, frame: FrameType | None) -> None:
        (self.end if self.stop.closed else self.stop).close()


def nothing() -> None: ...


@contextmanager
def started(count: int, prepare: Callable[[], None] = nothing) -> Iterator[Workers]:
    """`count` workers, each of which calls `prepare` first. Stopped before its end, the block raises KeyboardInterrupt.

    A call that trains saves and raises `Interrupted`, any other raises KeyboardInterrupt where it is.
    """
    (asked, stop), (ended, end) = SPAWN.Pipe(duplex=False), SPAWN.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, SPAWN, initializer=begin, initargs=(asked, ended, prepare))
    workers = Workers(pool, stop, end)
    with asked, stop, ended, end, heard_by(workers.heed):
        try:
            with pool:
                yield workers
        except (Exception, KeyboardInterrupt):  # of a call that was stopped, or of a worker that was ended
            if stop.closed:
                raise KeyboardInterrupt from None
            raise


def begin(asked: Connection, ended: Connection, prepare: Callable[[], None]) -> None:
    """In a worker, first of all."""
    signal.signal(signal.SIGINT, ignore)
    threading.Thread(target=follow, args=(asked, ended), daemon=True).start()
    prepare()


def follow(asked: Connection, ended: Connection) -> None:
    """In a worker: do what the parent asks."""
    wait([asked])
    ASKED.set()
    _thread.interrupt_main()  # calls the handler of SIGINT, though the signal itself is blocked
    end_after(ended)


def stoppable(call: Callable[[], T]) -> T:
    """In a worker: a call that stops when the parent asks. Between calls there is nothing to stop."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stop_if_asked()
        return call()
    finally:
        signal.signal(signal.SIGINT, ignore)


def stop_if_asked() -> None:
    if ASKED.is_set():
        raise KeyboardInterrupt


def live_with_parent() -> None:
    """In a process that was started `deaf`: hear signals again, without heeding them, and end when the parent is gone.

    A process that it starts in turn is not deaf, as it would be if the signals stayed blocked.
    """
    for number in STOPS:
        signal.signal(number, ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=end_after, args=(parent.sentinel,), daemon=True).start()


def end_after(sign: Connection | int) -> None:
    wait([sign])
    os._exit(1)


def ignore(number: int, frame: FrameType | None) -> None: ...
