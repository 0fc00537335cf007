"""A function in another environment: a real one, made here, with a module that only it has."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqmixer.errors import RewardError
from seqmixer.functions import Elsewhere, Pool, read

ROWS = [
    {"hypothesis": "ä b c", "references": ["ä b"], "source": "x"},
    {"hypothesis": "", "references": ["d", "e f"], "source": "y"},
]
LIBRARY = "import sys\nWHERE = sys.prefix\n"
MODULE = """
import os, sys, time
import only_there

LOADED = []

def one(hypothesis, references, source):
    return len(hypothesis.split()) + 10 * len(references) + 100 * (source == "y")

def batched(hypotheses, references):
    print("what it prints is no answer")
    sys.stdout.flush()
    LOADED.append(1)
    return [len(LOADED)] * len(hypotheses)

def place(hypothesis, references):
    return float(sys.prefix == only_there.WHERE and "torch" not in sys.modules and "numpy" not in sys.modules)

async def awaited(hypothesis, references):
    return 7

def completions(completions, prompts, **columns):
    return [len(prompt) for prompt in prompts]

def fails(hypothesis, references):
    return 1 / len(hypothesis.split())

def ends(hypotheses, references):
    os._exit(3)

def hangs(hypotheses, references):
    with open(os.environ["PID_FILE"], "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The Python of an environment without anything but `only_there`."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.rglob("site-packages")
    (packages / "only_there.py").write_text(LIBRARY)
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


@pytest.fixture
def pool(environment, tmp_path, monkeypatch):
    """pool(name): a worker with that function of a module in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foreign.py").write_text(MODULE)
    pools = []

    def make(name, **how):
        pools.append(
            Pool(read(Elsewhere(environment, f"foreign:{name}")), how.pop("workers", 1), how.pop("seconds", None))
        )
        return pools[-1]

    yield make
    for each in pools:
        each.stop()


@pytest.mark.parametrize(
    ("name", "values"), [("one", [13, 120]), ("awaited", [7, 7]), ("completions", [1, 1]), ("place", [1, 1])]
)
def test_every_kind_of_function_answers_from_its_own_environment(pool, name, values):
    assert pool(name).submit(ROWS)() == values


def test_it_is_loaded_once_and_called_once_a_batch(pool):
    of_one = pool("batched")
    assert [of_one.submit(ROWS)() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]


def test_an_error_names_the_place_in_the_other_environment(pool, environment):
    with pytest.raises(
        RewardError,
        match=r"in .*bin.python: reward 'fails' raised ZeroDivisionError for sequence 1, ''.*foreign\.py:26",
    ):
        pool("fails").submit(ROWS)()


def test_a_function_that_is_not_there_is_refused_at_the_start(pool):
    with pytest.raises(RewardError, match=r"did not start .* module 'foreign' has no 'nothing'"):
        pool("nothing").submit(ROWS)


def test_its_end_is_told(pool):
    with pytest.raises(RewardError, match=r"foreign:ends.*ended with exit code 3"):
        pool("ends").submit(ROWS)()


def test_a_time_limit_ends_it(pool, tmp_path, monkeypatch):
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    with pytest.raises(RewardError, match="took more than 2 s"):
        pool("hangs", seconds=2).submit(ROWS)()
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_what_is_no_python_is_refused_in_one_line(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def f(hypothesis, references):\n    return 1\n")
    start = ("train", "toy/translation", "--set", "reward.python=nowhere/python")
    code, _, error = run(*start, "--set", "reward.name=mine:f")
    assert code == 2
    assert "reward.python = 'nowhere/python': no program there; name the Python of an environment" in error
    code, _, error = run(*start)
    assert code == 2
    assert "reward.python is for Python functions, 'module:function', not for 'bleu'" in error
