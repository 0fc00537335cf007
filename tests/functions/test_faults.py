"""Reward functions that do whatever a function can do. None of it may hang, mix up, print or outlive anything."""

import re
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from seqmixer.errors import RewardError
from seqmixer.functions import Pool, from_path, pool, read

MODULE = """
import ctypes, os, re, signal, subprocess, sys, threading, time, multiprocessing

class Odd(BaseException):
    def __init__(self, one, two):
        self.lock = threading.Lock()

def good(h, r):
    return len(h)

def forks(h, r):
    os.fork()
    return len(h)

def forks_and_raises(h, r):
    if not os.fork():
        raise ValueError
    return len(h)

def forks_and_stays(h, r):
    if not os.fork():
        time.sleep(1000)
    return len(h)

def forks_and_dies(h, r):
    if not os.fork():
        time.sleep(1000)
    os._exit(7)

def starts(h, r):
    subprocess.Popen(["sleep", "1000"])
    return len(h)

def starts_a_daemon(h, r):
    code = "import os, signal, time; signal.signal(1, signal.SIG_IGN); os.setsid(); os.fork(); time.sleep(1000)"
    subprocess.Popen([sys.executable, "-c", "import os; os.fork() or exec(" + repr(code) + ")"])
    time.sleep(0.5)
    return len(h)

def uses_processes(h, r):
    with multiprocessing.get_context("fork").Pool(2) as processes:
        return sum(processes.map(len, [h]))

def ends_a_child_at_once(h, r):
    child = os.fork()
    if not child:
        time.sleep(1000)
    os.kill(child, signal.SIGTERM)
    return len(h) if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else 0

def holds_the_gil(h, r):
    re.match(r"(a+)+$", "a" * 60 + "b")

def holds_the_gil_in_c(h, r):
    ctypes.PyDLL(None).sleep(1000)

def loops(h, r):
    while True:
        pass

def sleeps(h, r):
    time.sleep(1000)

def catches_all(h, r):
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass

def recurses(h, r):
    return recurses(h, r)

def exits(h, r):
    sys.exit("bye")

def exits_hard(h, r):
    os._exit(7)

def odd(h, r):
    raise Odd(1, 2)

def interrupts(h, r):
    raise KeyboardInterrupt

def killed(h, r):
    os.kill(os.getpid(), signal.SIGKILL)

def segfaults(h, r):
    ctypes.string_at(0)

def stopped(h, r):
    os.kill(os.getpid(), signal.SIGSTOP)

def alarmed(h, r):
    signal.alarm(1)
    time.sleep(1000)

def signals_its_group(h, r):
    os.killpg(0, signal.SIGTERM)
    os.killpg(0, signal.SIGINT)
    return len(h)

def kills_its_group(h, r):
    os.killpg(0, signal.SIGKILL)

def closes(h, r):
    os.closerange(0, 256)
    return len(h)

def closes_and_sleeps(h, r):
    os.closerange(0, 256)
    time.sleep(1000)

def prints(h, r):
    line = "x" * 2**20
    for _ in range(100):
        print(line)
        print(line, file=sys.stderr)
        os.write(1, line.encode())
        os.write(2, line.encode())
    sys.stdout = sys.stderr = None
    return len(h)

def needs_memory(h, r):
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    return len(bytearray(2**40))

def huge(h, r):
    return [1.0] * 10**7

def is_killed_first(h, r):
    return float(open("/proc/self/oom_score_adj").read())

def moves(h, r):
    os.chdir("/")
    sys.path.clear()
    return len(h)
"""
ROWS = [{"hypothesis": letter * n, "references": [""]} for n, letter in enumerate("abcde", 1)]
LENGTHS = [1, 2, 3, 4, 5]
LATE = "took more than 1 s for sequence 0, 'a'; fix the function, or raise reward.seconds"
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells which processes are whose")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resource_tracker.ensure_running()  # a process that stays with the tests
    monkeypatch.setenv("SEQMIXER_TEST", str(tmp_path))  # by which what it starts is known
    (tmp_path / "faults.py").write_text(MODULE)
    return tmp_path


def left(folder):
    """The processes that were started with this folder in their environment, and run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"SEQMIXER_TEST={folder}".encode() in (path / "environ").read_bytes().split(b"\0")
            if ours and (path / "stat").read_text().rpartition(") ")[2][0] != "Z":
                found.append((int(path.name), (path / "cmdline").read_text()))
        except OSError:
            continue
    return found


def none_left(folder):
    end = time.monotonic() + 60
    while left(folder) and time.monotonic() < end:
        time.sleep(0.05)
    return not left(folder)


@linux
@pytest.mark.parametrize(
    "name",
    ["good", "forks", "forks_and_raises", "forks_and_stays", "starts", "starts_a_daemon", "uses_processes",
     "ends_a_child_at_once",
     "signals_its_group", "prints", "moves"],
)  # fmt: skip
def test_scores_are_right_nothing_is_printed_and_nothing_is_left(folder, capfd, name):
    made = Pool(read(from_path(f"faults:{name}")), 2, 60)
    assert [made.submit(rows)() for rows in (ROWS[:2], ROWS[:2][::-1])] == [[1, 2], [2, 1]]
    assert left(folder)
    made.stop()
    assert left(folder) == []
    assert capfd.readouterr() == ("", "")


@linux
@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, re.escape(LATE)) for name in (
            "holds_the_gil", "holds_the_gil_in_c", "loops", "sleeps", "catches_all"
        )),
        ("forks_and_dies", "ended its worker process with exit code 7 for sequence 0, 'a'"),
        ("recurses", r"raised RecursionError for sequence 0, 'a': maximum recursion depth exceeded.* \(.*faults.py:\d+\)"),
        ("exits", r"raised SystemExit for sequence 0, 'a': bye \(.*faults.py:\d+\)"),
        ("exits_hard", "ended its worker process with exit code 7 for sequence 0, 'a'"),
        ("odd", r"raised Odd for sequence 0, 'a': \(1, 2\) \(.*faults.py:\d+\)"),
        ("interrupts", "raised KeyboardInterrupt for sequence 0, 'a': "),
        ("killed", r"ended its worker process with SIGKILL \(as when memory runs out\) for sequence 0, 'a'"),
        ("kills_its_group", r"ended its worker process with SIGKILL \(as when memory runs out\) for sequence 0, 'a'"),
        ("segfaults", "ended its worker process with SIGSEGV for sequence 0, 'a'"),
        ("stopped", "ended its worker process with SIGSTOP for sequence 0, 'a'"),
        ("closes", "ended its worker process with exit code 1 for sequence 0, 'a'"),
        ("needs_memory", r"raised MemoryError for sequence 0, 'a':  \(.*faults.py:\d+\)"),
        ("huge", r"returned \[1\.0, .*\.\.\.\] for sequence 0, 'a'; a reward is one finite number"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_one_line_and_nothing_is_left(folder, capfd, name, text):
    made = Pool(read(from_path(f"faults:{name}")), 2, 1 if text == re.escape(LATE) else 60)
    with pytest.raises(RewardError, match=rf"^reward '{name}' {text}$"):
        made.submit(ROWS)()
    assert left(folder) == []
    assert capfd.readouterr() == ("", "")


@linux
def test_a_worker_without_connection_is_not_waited_for(folder, monkeypatch):
    monkeypatch.setattr(pool, "DYING", 0.1)
    made = Pool(read(from_path("faults:closes_and_sleeps")), 1, None)
    with pytest.raises(
        RewardError, match=r"^reward 'closes_and_sleeps' ended its worker process with closed files for"
    ):
        made.submit(ROWS)()
    assert left(folder) == []


@linux
def test_out_of_memory_the_system_kills_a_worker_before_the_run(folder):
    made = Pool(read(from_path("faults:is_killed_first")), 1, None)
    assert made.submit(ROWS[:1])() == [1000]


SCRIPT = """
import os, signal, sys
from seqmixer.functions import Pool, from_path, read

if __name__ == "__main__":
    pool = Pool(read(from_path("faults:" + sys.argv[1])), 2, None)
    collect = pool.submit([{"hypothesis": "abc", "references": []}] * 2)
    if sys.argv[1] != "holds_the_gil":
        collect()
    print("begun", flush=True)
    signal.pause()
"""


@linux
@pytest.mark.parametrize("name", ["holds_the_gil", "starts", "starts_a_daemon", "forks_and_stays"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_program_that_is_killed(folder, name, number):
    (folder / "script.py").write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, "script.py", name], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    assert len(left(folder)) >= 5  # itself, workers and guardians
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    assert none_left(folder)
