import gc
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from seqmixer.errors import RewardError
from seqmixer.functions import Pool, from_path, read

MODULE = """
import asyncio, os, signal, subprocess, sys, time
from pathlib import Path

def length(hypothesis, references):
    return len(hypothesis)

def process(hypothesis, references):
    return os.getpid()

def lengths(hypotheses, references):
    return [len(hypotheses)] * len(hypotheses)

async def later(hypothesis, references):
    await asyncio.sleep(0.01)
    return len(hypothesis)

def marks(hypothesis, references):
    Path("mark").touch()
    return 1.0

def stuck(hypothesis, references):
    while hypothesis == "ccc":
        pass
    return 0.0

def stuck_batch(hypotheses, references):
    time.sleep(1000)

def leaves(hypothesis, references):
    if hypothesis == "ccc":
        os._exit(7)
    return 0.0

def fails(hypothesis, references):
    return 1 / (len(hypothesis) - 3)

def signalled(hypothesis, references):
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    child = subprocess.Popen(["sleep", "5"])
    child.terminate()
    return child.wait()

def heavy(hypothesis, references):
    return float("torch" in sys.modules)
"""
ROWS = [{"hypothesis": letter * n, "references": [""]} for n, letter in enumerate("abcde", 1)]

LINE = MODULE.splitlines().index("    return 1 / (len(hypothesis) - 3)") + 1


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """Make a pool for a function of a user's module; afterwards no process is left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pooled.py").write_text(MODULE)
    pools = []

    def make(name, workers=1, seconds=None):
        pools.append(Pool(read(from_path(f"pooled:{name}")), workers, seconds))
        return pools[-1]

    yield make
    for made in pools:
        made.stop()
    sys.modules.pop("pooled", None)


def message(text):
    """The pooled module is in the current folder."""
    return pytest.raises(RewardError, match=f"^{re.escape(text.replace('pooled.py', f'{os.getcwd()}/pooled.py'))}$")


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_scores_come_back_in_order_whatever_the_number_of_workers_and_rows(pool):
    of_three = pool("length", workers=3)
    for rows in (ROWS, ROWS[:1], ROWS[1:3], ROWS * 7):
        assert of_three.submit(rows)() == [len(row["hypothesis"]) for row in rows]


def test_the_work_is_spread_over_processes_that_stay(pool):
    of_two = pool("process", workers=2)
    first, second = of_two.submit(ROWS)(), of_two.submit(ROWS)()
    assert first == second
    assert len(set(first)) == 2
    assert os.getpid() not in first


def test_batched_and_async_functions_are_given_a_share_each(pool):
    assert pool("lengths", workers=2).submit(ROWS)() == [3, 3, 3, 2, 2]
    assert pool("later").submit(ROWS)() == [1, 2, 3, 4, 5]


def test_the_work_begins_before_it_is_collected(pool, tmp_path):
    collect = pool("marks").submit(ROWS)
    end = time.monotonic() + 60
    while not (tmp_path / "mark").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert collect() == [1.0] * 5


def test_two_jobs_under_way_are_not_mixed_up_and_can_be_collected_twice(pool):
    of_one = pool("length")
    first, second = of_one.submit(ROWS), of_one.submit(ROWS[::-1])
    assert second() == [5, 4, 3, 2, 1]
    assert first() == first() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stuck", "took more than 0.5 s for sequence 2, 'ccc'; fix the function, or raise reward.seconds"),
        ("stuck_batch",
         "took more than 0.5 s for a batch of 5 sequences, the first 'a'; fix the function, or raise reward.seconds"),
        ("leaves", "ended its worker process with exit code 7 for sequence 2, 'ccc'"),
        ("fails", f"raised ZeroDivisionError for sequence 2, 'ccc': division by zero (pooled.py:{LINE})"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_named_and_leaves_no_process(pool, name, text):
    broken = pool(name, seconds=0.5)
    collect = broken.submit(ROWS)
    (pid,) = [worker.process.pid for worker in broken.workers]
    with message(f"reward '{name}' {text}"):
        collect()
    assert not alive(pid)


def test_sequences_are_counted_over_the_whole_batch(pool):
    rows = [*ROWS[:2] * 3, ROWS[2], ROWS[3]]
    with message(
        "reward 'stuck' took more than 0.5 s for sequence 6, 'ccc'; fix the function, or raise reward.seconds"
    ):
        pool("stuck", workers=2, seconds=0.5).submit(rows)()
    with message(f"reward 'fails' raised ZeroDivisionError for sequence 6, 'ccc': division by zero (pooled.py:{LINE})"):
        pool("fails", workers=2).submit(rows)()


def test_after_an_error_a_pool_can_be_used_again(pool):
    failing = pool("fails")
    with pytest.raises(RewardError):
        failing.submit(ROWS)()
    assert failing.submit(ROWS[3:])() == [1.0, 0.5]


def test_a_worker_that_was_killed_meanwhile_is_missed(pool):
    of_one = pool("length")
    of_one.submit(ROWS)()
    process = of_one.workers[0].process
    process.kill()
    process.join()
    with message("reward 'length' ended its worker process with SIGKILL (as when memory runs out) between two batches"):
        of_one.submit(ROWS)


def test_workers_need_no_torch(pool):
    assert pool("heavy").submit(ROWS[:1])() == [0.0]


def test_a_worker_does_not_heed_signals_but_what_it_starts_does(pool):
    assert pool("signalled").submit(ROWS[:2])() == [-signal.SIGTERM] * 2


@pytest.mark.usefixtures("pool")
def test_a_dropped_pool_ends_its_processes():
    dropped = Pool(read(from_path("pooled:process")), 1, None)
    (pid,) = set(map(int, dropped.submit(ROWS)()))
    assert alive(pid)
    del dropped
    gc.collect()
    assert not alive(pid)


def test_a_function_that_cannot_travel_is_refused():
    def inner(hypothesis, references):
        return 0.0

    with pytest.raises(
        RewardError,
        match=r"^reward 'inner' cannot be sent to a worker process \(Can't .*inner.*\); define it at the top level of a "
        r"module, or do without workers and a time limit$",
    ):
        Pool(read(inner), 1, None)


def test_a_module_that_does_not_load_in_a_worker_says_why(pool, tmp_path):
    changed = pool("length")
    (tmp_path / "pooled.py").write_text("1 / 0\n")
    with message("reward 'length' did not start in a worker process: ZeroDivisionError: division by zero"):
        changed.submit(ROWS)


SCRIPT = """
from seqmixer.errors import RewardError
from seqmixer.functions import Pool, read

def length(hypothesis, references):
    return len(hypothesis)

def stuck(hypothesis, references):
    while True:
        pass

def submit(function):
    return Pool(read(function), 1, None).submit([{"hypothesis": "abc", "references": []}])

"""


def run_script(folder, end):
    (folder / "script.py").write_text(SCRIPT + end)
    return subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_function_of_a_script_works_under_its_guard_and_is_told_to_have_one(tmp_path):
    done = run_script(tmp_path, "if __name__ == '__main__':\n    print(submit(length)())\n")
    assert (done.stdout, done.returncode) == ("[3.0]\n", 0), done.stderr
    done = run_script(tmp_path, "submit(length)()\n")
    guard = "a script that trains with workers must do so under `if __name__ == '__main__':`"
    text = f"RewardError: reward 'length' did not start in a worker process: it ended with exit code 1; {guard}"
    assert done.stderr.splitlines()[-1] == f"seqmixer.errors.{text}"


def test_a_function_that_never_returns_does_not_hold_up_the_end_of_the_program(tmp_path):
    done = run_script(tmp_path, "if __name__ == '__main__':\n    pending = submit(stuck)\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_function_that_never_returns_ends_with_a_program_that_is_killed(tmp_path):
    end = "if __name__ == '__main__':\n    pending = submit(stuck)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    done = run_script(tmp_path, f"import os, signal\n{end}")  # returns when nobody has its standard output open
    assert done.returncode == -signal.SIGKILL
