"""Worker processes. They stop when their parent is told to stop, and none outlives it, however it ends.

Ctrl-C reaches a process group, `kill` one process, `timeout` and a cluster either. So workers ignore SIGINT and
SIGTERM. Their parent, wherever its signal came from, tells each of them once, by closing a pipe; when the parent dies,
the operating system closes it.
"""

import _thread
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Handler = Callable[[int, FrameType | None], object]

SPAWN = multiprocessing.get_context("spawn")  # a fork would inherit threads and a device that it cannot use
STOPS = (signal.SIGINT, signal.SIGTERM)
STOP_REQUESTED = threading.Event()  # in a worker, by its parent
AGAIN = 2.0  # seconds until a stop that was not heeded is asked for again
DEATH_SIGNAL, ADOPTION = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER of Linux


@contextmanager
def stop_handler(handler: Handler | signal.Handlers) -> Iterator[None]:
    """Handle SIGINT and SIGTERM with this function until the end of the block."""
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
def stops_blocked() -> Iterator[None]:
    """A process started in the block begins with SIGINT and SIGTERM blocked; this process gets them after the block."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started with the first process otherwise, it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class Workers:
    """A process pool. The first signal asks the running calls to stop, a second one ends the processes."""

    pool: ProcessPoolExecutor
    stop: Connection
    end: Connection

    def submit(self, call: Callable[[*Ts], T], *arguments: *Ts) -> Future[T]:
        with stops_blocked():
            return self.pool.submit(stoppable, partial(call, *arguments))

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        (self.end if self.stop.closed else self.stop).close()


def nothing() -> None: ...


@contextmanager
def started(count: int, prepare: Callable[[], None] = nothing) -> Iterator[Workers]:
    """`count` workers, each of which calls `prepare` first. A block that is stopped raises KeyboardInterrupt.

    A call that trains saves and raises `Interrupted`, any other raises KeyboardInterrupt where it is.
    """
    (asked, stop), (ended, end) = SPAWN.Pipe(duplex=False), SPAWN.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, SPAWN, initializer=begin, initargs=(asked, ended, prepare))
    workers = Workers(pool, stop, end)
    with asked, stop, ended, end, stop_handler(workers.on_signal):
        try:
            with pool:
                yield workers
        except (Exception, KeyboardInterrupt):  # of a call that was stopped, or of a worker that was ended
            if stop.closed:
                raise KeyboardInterrupt from None
            raise


def begin(asked: Connection, ended: Connection, prepare: Callable[[], None]) -> None:
    """In a worker, first of all."""
    die_with_parent()
    signal.signal(signal.SIGINT, ignore)
    threading.Thread(target=stop_when_closed, args=(asked, ended), daemon=True).start()
    prepare()


def stop_when_closed(asked: Connection, ended: Connection) -> None:
    """In a worker: wait for the parent to ask for a stop, then for an end."""
    wait([asked])
    STOP_REQUESTED.set()
    insist(signal.default_int_handler, lambda seconds: wait([ended], seconds))
    end_when_closed(ended)


def insist(handler: Handler, over: Callable[[float], object]) -> None:
    """Interrupt the main thread; while its handler of SIGINT is `handler`, again and again until `over(seconds)`.

    What is raised in a destructor, a callback of C or before a bare except is lost. Another handler, as training has
    one, only notes the stop: it is called once. Without one, as while ranks wait for one another, the process ends.
    """
    while True:
        now = signal.getsignal(signal.SIGINT)
        if now is signal.SIG_DFL:
            signal.raise_signal(signal.SIGTERM)
        _thread.interrupt_main()  # calls the handler of SIGINT, also where the signal itself is blocked
        if (callable(now) and now != handler) or over(AGAIN):
            return


def stoppable(call: Callable[[], T]) -> T:
    """In a worker: a call that stops when the parent asks. Between calls there is nothing to stop."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stop_if_requested()
        return call()
    finally:
        signal.signal(signal.SIGINT, ignore)


def stop_if_requested() -> None:
    if STOP_REQUESTED.is_set():
        raise KeyboardInterrupt


def guard(life: Connection, *used: Connection) -> None:
    """Fork: the child returns and is the worker; its guardian stays here until the worker ends or `life` is closed.

    Then the guardian kills all that the worker started, also what left its process group, and ends as the worker did.
    The worker may hold the GIL, be stopped or close its files: neither matters. `used` are the worker's connections.
    """
    set_stops(ignore)  # what the worker starts does not inherit a handler, as it would SIG_IGN
    if not hasattr(os, "fork"):  # Windows
        threading.Thread(target=end_when_closed, args=(life,), daemon=True).start()
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    os.setsid()
    adopt_orphans()
    guardian, worker = os.getpid(), os.fork()
    if not worker:
        life.close()
        os.setsid()  # also a process group, for os.killpg
        die_with_parent()
        if os.getppid() != guardian:
            os._exit(1)
        usual, ignored = partial(set_stops, signal.SIG_DFL), partial(set_stops, ignore)
        os.register_at_fork(before=usual, after_in_parent=ignored, after_in_child=usual)
        with suppress(OSError):  # Linux: out of memory, this is killed first, and not the run
            Path("/proc/self/oom_score_adj").write_text("1000")
        return
    for connection in used:
        connection.close()
    threading.Thread(target=kill_when_closed, args=(life, worker), daemon=True).start()
    pid = status = 0
    while pid != worker:  # orphans end here too
        pid, status = os.waitpid(-1, os.WUNTRACED)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    while killed := [pid for pid in children(guardian) if kill(pid)]:  # their orphans are found next
        for pid in killed:
            os.waitpid(pid, 0)
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    os._exit(128 + (os.WSTOPSIG(status) if os.WIFSTOPPED(status) else os.WTERMSIG(status)))


def kill_when_closed(life: Connection, worker: int) -> None:
    wait([life])
    kill(worker)


def kill(pid: int) -> bool:
    """Send SIGKILL. -> whether that was possible"""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def children(parent: int) -> Iterator[int]:
    """The children of a process, zombies too; none where there is no /proc."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone since
            if int(path.read_text(errors="replace").rpartition(") ")[2].split()[1]) == parent:
                yield int(path.parent.name)


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, also while the GIL is held."""
    if sys.platform == "linux":
        process_control(DEATH_SIGNAL, signal.SIGKILL)


def adopt_orphans() -> None:
    """On Linux, processes whose parent died become children of this one."""
    if sys.platform == "linux":
        process_control(ADOPTION, 1)


def process_control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def end_when_closed(life: Connection) -> None:
    wait([life])
    os._exit(1)


def set_stops(handler: Handler | signal.Handlers) -> None:
    with suppress(ValueError):  # only the main thread may; after a fork that is the one that forked
        for number in STOPS:
            signal.signal(number, handler)


def ignore(number: int, frame: FrameType | None) -> None: ...
