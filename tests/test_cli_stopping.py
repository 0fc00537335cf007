"""`seqmixer paper` and `seqmixer sweep` are stopped and killed while processes work for them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqmixer.storage import checkpoint

RECIPE = """
name = "mine"
[data]
task = "toy-summarization"
limit = 150
[model]
name = "elman"
hidden = 16
[algorithm]
xent_epochs = 25
mixed_epochs = 1
delta = 6
[reward]
name = "rouge2"
[training]
batch_size = 16
lr = 0.01
rl_lr = 0.002
threads = 1
[evaluation]
metrics = ["rouge2"]
"""
PAPER = ("paper", "summarization", "--recipe", "mine.toml", "--methods", "xent,mixer", "--workers", "2")
SWEEP = (
    "sweep",
    "mine.toml",
    "--search",
    "space.toml",
    "--trials",
    "2",
    "--workers",
    "2",
    "--set",
    "algorithm.name=xent",
)
RUNS = Path("paper/summarization-mine/mine")
TRIALS = Path("runs/sweeps/mine")

pytestmark = pytest.mark.slow


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a command in a session of its own; afterwards nothing of it is left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(RECIPE)
    (tmp_path / "space.toml").write_text('"training.lr" = [0.01, 0.02]\n')
    processes = []

    def start(*arguments):
        command = [sys.executable, "-m", "seqmixer", *arguments]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True))
        return processes[-1]

    yield start
    for process in processes:
        if session(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def session(pid):
    """The processes of a session, whoever their parent is now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, number = path.read_text().rpartition(") ")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(number) == pid and state != "Z":
            found.append(int(path.parent.name))
    return found


def wait_for(process, *paths):
    """Until these files have something in them."""
    while not all(path.exists() and path.read_text() for path in paths):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def ended(process):
    """What a process wrote to standard error, once nothing of it is left."""
    _, err = process.communicate(timeout=120)  # returns when nobody has standard error open
    end = time.monotonic() + 10
    while session(process.pid):
        assert time.monotonic() < end, session(process.pid)
        time.sleep(0.05)
    return err


def steps(run):
    """How many batches of a run are saved; an epoch has 10."""
    _, state = checkpoint.load(run / "last")
    return 10 * state["epoch"] + state["batch"]


def message(said, *command):
    return f"seqmixer: stopped with {said}; resume with: seqmixer {' '.join(command)}\n"


def test_sigterm_to_the_parent_alone_saves_every_run(start):
    command = (*PAPER, "--seeds", "2")
    process = start(*command)
    wait_for(process, *(RUNS / f"seed-{seed}/base/log.jsonl" for seed in (1, 2)))
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == message("6 of 6 runs to go; saved in paper/summarization-mine", *command)
    assert process.returncode == 130
    assert all(steps(RUNS / f"seed-{seed}/base") > 10 for seed in (1, 2))  # beyond what every run saves


def test_a_command_stopped_while_it_trains_and_while_it_decodes_goes_on_to_its_end(start):
    command = (*PAPER, "--seeds", "1")
    process = start(*command)
    wait_for(process, RUNS / "seed-1/base/log.jsonl")
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGTERM)  # as `timeout` does: the workers have it from two sides
    assert ended(process) == message("3 of 3 runs to go; saved in paper/summarization-mine", *command)
    assert process.returncode == 130
    assert steps(RUNS / "seed-1/base") > 10

    process = start(*command)
    wait_for(process, RUNS / "seed-1/xent/test.txt")  # trained; the beams are next
    process.send_signal(signal.SIGTERM)
    assert ended(process).endswith(message("2 of 3 runs to go; saved in paper/summarization-mine", *command))
    assert process.returncode == 130
    assert not (RUNS / "seed-1/xent/result.json").exists()  # it did not decode to the end

    process = start(*command)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len((RUNS / "seed-1/base/log.jsonl").read_text().splitlines()) == 25


def test_workers_end_when_the_parent_is_killed(start):
    process = start(*PAPER, "--seeds", "1")
    wait_for(process, RUNS / "seed-1/base/log.jsonl")
    process.kill()
    ended(process)
    assert not (RUNS / "seed-1/base/scores.json").exists()


def test_sigterm_stops_a_search_in_all_its_processes(start):
    process = start(*SWEEP)
    wait_for(process, *(TRIALS / f"trial-000{number}/log.jsonl" for number in (0, 1)))
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == message("0 of 2 trials over; saved in runs/sweeps/mine", *SWEEP)
    assert process.returncode == 130
    assert all(steps(TRIALS / f"trial-000{number}") > 10 for number in (0, 1))


LOST = """
import os, signal, sys, time

def stop():
    os.kill(os.getpid(), signal.{number})

class Destroyed:
    def __del__(self):
        stop()

{how}
open("went on", "w").close()
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("number", "how"), [("SIGTERM", "Destroyed()"), ("SIGINT", "try:\n    stop()\nexcept:\n    pass")]
)
def test_a_stop_that_is_lost_in_a_destructor_or_before_a_bare_except_is_raised_again(
    start, monkeypatch, tmp_path, number, how
):
    (tmp_path / "torch.py").write_text(LOST.format(number=number, how=how))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    process = start("train", "mine.toml")
    assert ended(process) == "seqmixer: stopped; resume with: seqmixer train mine.toml\n"
    assert process.returncode == 130
    assert (tmp_path / "went on").exists()


TORCH = """
import os, signal
try:
    os.kill(os.getpid(), signal.{number})
except KeyboardInterrupt:
    {then}
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("then", ["raise", "raise ImportError('of an extension')", "raise SystemError"])
def test_a_command_that_is_stopped_while_it_imports_torch_says_so(start, monkeypatch, tmp_path, number, then):
    (tmp_path / "torch.py").write_text(TORCH.format(number=number, then=then))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    process = start("train", "mine.toml")
    assert ended(process) == "seqmixer: stopped; resume with: seqmixer train mine.toml\n"
    assert process.returncode == 130
