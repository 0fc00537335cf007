"""Workers that do nothing but wait. tests/test_cli_stopping.py has those that train."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from seqmixer.parallel import workers
from seqmixer.parallel.workers import started, stop_handler


def busy(path):
    """Make a file, and never return."""
    path.touch()
    while True:
        time.sleep(0.01)


def stubborn(path):
    """Make a file, and never return, whatever is asked."""
    while True:
        try:
            busy(path)
        except KeyboardInterrupt:
            path.with_suffix(".asked").touch()


def holds_the_gil(path):
    """Make a file, and never return, nor let another thread run."""
    path.touch()
    re.match(r"(a+)+$", "a" * 60 + "b")


def signalled(numbers):
    for number in numbers:
        os.kill(os.getpid(), number)
    time.sleep(0.1)
    return "untouched"


def wait_for(*paths):
    end = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_parent_stops_every_worker_wherever_it_is(tmp_path, number):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    calls = []

    def work():
        with started(2) as pool:
            calls.extend(pool.submit(busy, tmp_path / name) for name in "ab")
            wait_for(tmp_path / "a", tmp_path / "b")
            os.kill(os.getpid(), number)
            calls[0].result(timeout=60)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert [type(call.exception()) for call in calls] == [KeyboardInterrupt] * 2
    assert multiprocessing.active_children() == []
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_worker_ignores_the_signals_of_others():
    with started(1) as pool:
        assert pool.submit(signalled, [signal.SIGTERM, signal.SIGINT, signal.SIGTERM]).result() == "untouched"


def test_a_second_signal_ends_a_worker_that_does_not_stop(tmp_path):
    def work():
        with started(1) as pool:
            call = pool.submit(stubborn, tmp_path / "begun")
            wait_for(tmp_path / "begun")
            os.kill(os.getpid(), signal.SIGTERM)
            wait_for(tmp_path / "begun.asked")
            assert not call.done()
            os.kill(os.getpid(), signal.SIGTERM)
            call.result(timeout=60)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert multiprocessing.active_children() == []


class Destroyed:
    """Whatever is raised when it goes is lost."""

    def __init__(self, path):
        self.path = path

    def __del__(self):
        busy(self.path)


def destroys(path):
    Destroyed(path)
    busy(path)


def test_a_worker_whose_stop_was_raised_in_a_destructor_is_asked_again(tmp_path):
    def work():
        with started(1) as pool:
            call = pool.submit(destroys, tmp_path / "begun")
            wait_for(tmp_path / "begun")
            os.kill(os.getpid(), signal.SIGTERM)
            call.result(timeout=60)

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_handler_that_notes_a_stop_is_called_once(monkeypatch):
    monkeypatch.setattr(workers, "AGAIN", 0.01)
    calls, noted = [], []

    def over(seconds):
        calls.append(seconds)
        if len(calls) == 2:
            signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
        return len(calls) == 9

    with stop_handler(lambda number, frame: None):
        workers.insist(signal.getsignal(signal.SIGINT), over)
    assert calls == [0.01] * 2
    assert noted == [signal.SIGINT]


def test_what_is_submitted_after_a_signal_does_not_begin(tmp_path):
    def work():
        with started(1) as pool:
            pool.submit(signalled, []).result()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)  # the worker hears of it while it has nothing to do
            pool.submit(busy, tmp_path / "begun").result(timeout=60)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not (tmp_path / "begun").exists()


def test_a_worker_that_dies_by_itself_is_an_error_and_no_stop():
    with pytest.raises(BrokenProcessPool), started(1) as pool:
        pool.submit(signalled, [signal.SIGKILL]).result()


FIRST = """
import signal
from seqmixer.parallel.workers import SPAWN, stops_blocked

def tell():
    print(sorted(number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())))

if __name__ == "__main__":
    with stops_blocked():
        process = SPAWN.Process(target=tell)
        process.start()
    process.join()
    tell()
"""


def test_the_first_process_of_all_begins_with_stops_blocked(tmp_path):
    (tmp_path / "first.py").write_text(FIRST)
    done = subprocess.run([sys.executable, "first.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("['SIGINT', 'SIGTERM']\n[]\n", "")


SCRIPT = """
import sys
from pathlib import Path
from test_workers import busy, holds_the_gil, stubborn
from seqmixer.parallel.workers import started

if __name__ == "__main__":
    with started(3) as workers:
        calls = [workers.submit(call, Path(call.__name__)) for call in (busy, stubborn, holds_the_gil)]
        calls[0].result()
"""


def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE
    )
    wait_for(*(tmp_path / name for name in ("busy", "stubborn", "holds_the_gil")))
    process.kill()
    process.communicate(timeout=60)  # returns when nobody has standard output open
