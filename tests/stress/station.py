"""A warm process that runs seqmixer's command line as forks of itself, kills it at a given moment, and looks for what it left.

Starting Python and importing torch takes seconds, and a kill at a random moment would mostly hit imports. So a station
imports everything once; a command is then a fork that becomes `python -m seqmixer ...`: its own arguments, folder,
session, output and limit of memory. `fresh` commands are started as a user starts them.

The station is the subreaper of all it starts (prctl(2)): whatever process a command leaves behind, in whatever session,
becomes a child of the station. So what is there after a command is an orphan.
"""

import atexit
import ctypes
import os
import resource
import runpy
import select
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import NoReturn

LIMIT = 120.0  # seconds for a command, those it waits for a CPU not counted; most take less than 2 on an idle machine
GRACE = 10.0  # seconds in which the processes of a command that ended must be gone, too
MEMORY = 3 * 2**30  # bytes of address space that a command may add
LIBC = ctypes.CDLL(None, use_errno=True)
SUBREAPER = 36  # of prctl
ARRIVES, CHANGES, IS_FOLDER = 0x180, 0x3C2, 0x40000000  # of inotify: created or renamed; or modified or deleted
MOST = 1 << 22  # bytes of output that are kept
EVENT = struct.Struct("iIII")


def itself(pid: int) -> int | None:
    return pid


@dataclass(frozen=True, kw_only=True)
class Kill:
    """When to send SIGKILL: so long after the start, or after so many changes in the watched folder; and to whom."""

    seconds: float
    changes: int = 0
    of_folders: bool = False  # count only changes of folders, as a save makes them
    victim: Callable[[int], int | None] = itself


@dataclass(frozen=True)
class Ended:
    """What came of a command."""

    argv: list[str]
    code: int  # of the exit; below 0, the signal that ended it
    out: bytes
    err: bytes
    seconds: float
    changes: int  # in the watched folder
    of_folders: int  # of these, folders made, renamed and deleted
    killed: bool
    after: float  # seconds from the kill to the end
    hung: bool
    left: list[str]  # processes that outlived it


def prepare() -> None:
    """Import what commands import, and adopt their orphans."""
    import gc

    import peft
    import torch
    import torch.distributed.run
    import transformers.models.gpt2
    import transformers.models.t5

    import seqmixer.cli
    import seqmixer.evaluation.scoring
    import seqmixer.runs
    import seqmixer.runs.inference
    import seqmixer.training

    del peft, transformers, seqmixer
    torch.set_num_threads(1)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: a fork copies only one"
    assert LIBC.prctl(SUBREAPER, 1, 0, 0, 0) == 0
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page


def run(
    argv: list[str],
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    kill: Kill | None = None,
    watched: Path | None = None,
    fresh: bool = False,
    terminal: bool = False,
    program: str = "seqmixer",
    limit: float = LIMIT,
) -> Ended:
    """Run `python -m PROGRAM ARGV` in a folder to its end."""
    began = time.monotonic()
    pairs = [os.openpty() if terminal else os.pipe() for _ in range(2)]
    readers, writers = zip(*pairs, strict=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        become(program, argv, folder, env or {}, writers, fresh)
    for writer in writers:
        os.close(writer)
    out, err = (Output(reader) for reader in readers)
    changes = Changes(watched) if watched else None
    killed, hung = watch(pid, [out, err], changes, kill, began, limit)
    _, status, _ = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    left = remaining()
    return Ended(
        [program, *argv],
        os.waitstatus_to_exitcode(status),
        out.rest(),
        err.rest(),
        seconds,
        *(changes.rest() if changes else (0, 0)),
        killed is not None,
        0.0 if killed is None else began + seconds - killed,
        hung,
        left,
    )


def watch(
    pid: int, outputs: "list[Output]", changes: "Changes | None", kill: Kill | None, began: float, limit: float
) -> tuple[float | None, bool]:
    """Read what a process writes until it ends; kill it when its moment comes.  -> when it was killed; whether it hung"""
    handle = os.pidfd_open(pid)
    sources = {source.handle: source for source in (*outputs, *([changes] if changes else []))}
    poll = select.poll()
    for reader in (handle, *sources):
        poll.register(reader, select.POLLIN)
    end = began + limit
    moment = began + kill.seconds if kill and not kill.changes else None
    killed, hung, before = None, False, delayed(os.getpid())
    while True:
        now = time.monotonic()
        if kill and moment is not None and now >= moment:
            victim = kill.victim(pid)
            moment = now + 0.001 if victim is None else None  # it may not be there yet
            if victim is not None:
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed = now
        if now >= end:
            end = began + limit + delay(pid) + delayed(os.getpid()) - before  # it may have waited for us to read
        if now >= end:
            hung = True
            end_all()
        wake = end if moment is None else min(end, moment)
        ready = [place for place, _ in poll.poll(max(0.0, wake - now) * 1000)]
        for place in ready:
            if place in sources and not sources[place].read():
                poll.unregister(place)
        if changes and kill and kill.changes and killed is None and moment is None and changes.reached(kill):
            moment = time.monotonic() + kill.seconds
        if handle in ready:
            os.close(handle)
            return killed, hung


class Output:
    """What a command writes; of very much, the beginning."""

    def __init__(self, handle: int) -> None:
        self.handle, self.content = handle, bytearray()
        os.set_blocking(handle, False)

    def read(self) -> bool:
        """Take what is there; false at the end."""
        try:
            data = os.read(self.handle, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:  # of a terminal: nobody has its other end
            return False
        self.content += data[: max(0, MOST - len(self.content))]
        return bool(data)

    def rest(self) -> bytes:
        """All of it, when nobody writes any more."""
        while self.read() and select.select([self.handle], [], [], 0)[0]:
            pass
        os.close(self.handle)
        return bytes(self.content)


class Changes:
    """Counts what happens in a folder and in all below it (inotify)."""

    def __init__(self, folder: Path) -> None:
        self.handle = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.seen = self.of_folders = 0
        self.folders: dict[int, str] = {}
        self.add(str(folder))

    def add(self, folder: str) -> None:
        number = LIBC.inotify_add_watch(self.handle, os.fsencode(folder), CHANGES)
        with suppress(OSError):  # it is gone again
            self.folders[number] = folder
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    self.add(entry.path)

    def read(self) -> bool:
        with suppress(BlockingIOError):
            data, place = os.read(self.handle, 1 << 16), 0
            while place < len(data):
                number, mask, _, length = EVENT.unpack_from(data, place)
                name = os.fsdecode(data[place + EVENT.size : place + EVENT.size + length].rstrip(b"\0"))
                if mask & IS_FOLDER and mask & ARRIVES and number in self.folders:
                    self.add(os.path.join(self.folders[number], name))
                place += EVENT.size + length
                self.seen += 1
                self.of_folders += bool(mask & IS_FOLDER)
        return True

    def reached(self, kill: Kill) -> bool:
        return (self.of_folders if kill.of_folders else self.seen) >= kill.changes

    def rest(self) -> tuple[int, int]:
        while select.select([self.handle], [], [], 0)[0]:
            self.read()
        os.close(self.handle)
        return self.seen, self.of_folders


def become(
    program: str, argv: list[str], folder: Path, env: Mapping[str, str], outputs: Sequence[int], fresh: bool
) -> NoReturn:
    """In a fork: be `python -m PROGRAM ARGV`."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(folder)
        os.environ.update(env)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
        os.closerange(3, 1024)
        if fresh:
            os.execv(sys.executable, [sys.executable, "-m", program, *argv])
        resource.setrlimit(resource.RLIMIT_AS, (size() + MEMORY, resource.RLIM_INFINITY))
        code = main(program, argv)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main(program: str, argv: list[str]) -> int:
    """What the interpreter does from reading its arguments to its end, without taking itself down."""
    sys.argv = [program, *argv]
    sys.path.insert(0, os.getcwd())
    out, err = (BufferedWriter(FileIO(number, "wb", closefd=False)) for number in (1, 2))
    sys.stdout = TextIOWrapper(out, encoding="utf-8", line_buffering=os.isatty(1))
    sys.stderr = TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    code: object = 0
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


def size() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def delay(pid: int) -> float:
    """The longest delay of a process and those below it."""
    return max(map(delayed, (pid, *descendants(pid))))


def delayed(pid: int) -> float:
    """Seconds in which a process could have run and the CPU was another's."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # it is gone
        return 0.0


def children(pid: int) -> list[int]:
    """The processes that a process has started, of all its threads."""
    found = []
    with suppress(OSError):  # it is gone
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(each) for each in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    """The processes below a process that still run."""
    found = [child for child in children(pid) if runs(child)]
    return [*found, *(below for child in found for below in descendants(child))]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def remaining() -> list[str]:
    """The processes that are left a while after a command, by their command lines; they are ended then."""
    until = time.monotonic() + GRACE
    while True:
        reap()
        if not descendants(os.getpid()):
            return []
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    left = [command_line(pid) for pid in descendants(os.getpid())]
    end_all()
    return left


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"


def reap() -> None:
    """Let the ended children that are only the station's by adoption go."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_all() -> None:
    """End every process that was started here, also those that others start meanwhile."""
    while found := descendants(os.getpid()):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
