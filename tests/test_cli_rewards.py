"""A reward of one's own that misbehaves: one clear line, exit code 2, and the last checkpoint as it was."""

import json
import os
import re
import subprocess
import sys

import pytest

from seqmixer import runs
from seqmixer.algorithms import LinearBaseline, Mixer
from seqmixer.config import TrainingConfig
from seqmixer.data import text_task
from seqmixer.errors import RewardError
from seqmixer.functions import from_path
from seqmixer.models import AttentiveEncoder, ElmanCell, Recurrent
from seqmixer.rewards import on_text
from seqmixer.storage import checkpoint
from seqmixer.training import Training

REWARDS = """
import asyncio
import os
import time
from pathlib import Path

ELSEWHERE = Path("elsewhere").absolute()

def sleeps(hypothesis, references):
    time.sleep(0.001)
    return 0.5

def sleeps_long(hypothesis, references):
    time.sleep(30)
    return 0.5

def asleep(hypothesis, references):
    time.sleep(0 if Path("awake").exists() else 30)
    return 0.5

def raises(hypothesis, references):
    raise ValueError("no idea")

def nan(hypothesis, references):
    return float("nan")

def too_few(hypotheses, references):
    return [0.5] * (len(hypotheses) - 1)

def never(hypothesis, references):
    while True:
        pass

def never_batched(completions, **columns):
    while True:
        pass

async def judge(hypothesis, references, source):
    await asyncio.sleep(0.01)
    return len(source) / 100

def trl(prompts, completions, **columns):
    return [len(prompt) / 100 for prompt in prompts]

def moves(hypothesis, references):
    from sibling import WORTH
    os.chdir(ELSEWHERE)
    print("moved")
    return WORTH

def forks(hypothesis, references):
    os.fork()
    return 0.5

def interrupts(hypothesis, references):
    raise KeyboardInterrupt
"""
SOURCES = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]
TINY = [
    "--set", "model.hidden=8", "--set", "training.batch_size=4", "--set", "algorithm.xent_epochs=1",
    "--set", "algorithm.mixed_epochs=1", "--set", "algorithm.delta=3", "--set", "algorithm.to_zero=false",
    "--set", 'evaluation.metrics=["bleu"]',
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(REWARDS)
    (tmp_path / "text.src").write_text("\n".join(SOURCES) + "\n")
    (tmp_path / "text.tgt").write_text("\n".join(" ".join(source.split()[::-1]) for source in SOURCES) + "\n")
    files = '["text.src", "text.tgt"]'
    (tmp_path / "run.toml").write_text(
        f'name = "mine"\n[data]\nfolder = "."\ntask = "text"\ntrain = {files}\nvalid = {files}\ntest = {files}\nlength = 6\n'
    )
    yield tmp_path
    sys.modules.pop("mine", None)


@pytest.fixture
def train(folder, run):
    """-> exit code, standard error"""

    def call(*settings):
        sets = [argument for setting in settings for argument in ("--set", setting)]
        code, _, err = run("train", "run.toml", *TINY, *sets)
        return code, err

    return call


SEQUENCE, NUMBER = r"sequence \d, '.*'", "a reward is one finite number"
LATE = r"; fix the function, or raise reward.seconds"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["reward.name=mine:sleeps_long", "reward.seconds=0.3"], rf"'sleeps_long' took more than 0.3 s for {SEQUENCE}{LATE}"),
        (["reward.name=mine:raises"], rf"'raises' raised ValueError for {SEQUENCE}: no idea \(.*mine.py:\d+\)"),
        (["reward.name=mine:raises", "reward.workers=2"],
         rf"'raises' raised ValueError for {SEQUENCE}: no idea \(.*mine.py:\d+\)"),
        (["reward.name=mine:nan"], rf"'nan' returned nan for {SEQUENCE}; {NUMBER}"),
        (["reward.name=mine:nan", "reward.workers=1"], rf"'nan' returned nan for {SEQUENCE}; {NUMBER}"),
        (["reward.name=mine:too_few"],
         r"'too_few' returned 3 numbers for a batch of 4 sequences, the first '.*'; a batched reward gives one number per "
         r"sequence"),
        (["reward.name=mine:too_few", "reward.workers=2"],
         r"'too_few' returned 1 numbers for a batch of 2 sequences, the first '.*'; a batched reward gives one number per "
         r"sequence"),
        (["reward.name=mine:never", "reward.seconds=0.3"], rf"'never' took more than 0.3 s for {SEQUENCE}{LATE}"),
        (["reward.name=mine:never_batched", "reward.seconds=0.3", "reward.workers=2"],
         rf"'never_batched' took more than 0.3 s for a batch of 2 sequences, the first '.*'{LATE}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tried_out", [True, False])
def test_a_reward_that_misbehaves_is_one_line_and_exit_code_2(train, folder, monkeypatch, settings, message, tried_out):
    """At once, when it is tried out; later, if it misbehaves only then, with what was trained before intact."""
    if not tried_out:
        monkeypatch.setattr(runs.run, "try_out", lambda reward, task: None)
    code, err = train(*settings)
    assert code == 2
    late = (r"runs/mine, epoch 2, batch \d+: ", "; fixed, the same command resumes from what was saved")
    before, after = ("", "") if tried_out else late
    assert re.fullmatch(f"seqmixer: {before}reward {message}{after}", err.splitlines()[-1]), err
    assert "Traceback" not in err
    assert checkpoint.exists(folder / "runs/mine/last") == (not tried_out)
    if not tried_out:
        _, state = checkpoint.load(folder / "runs/mine/last")
        assert (state["epoch"], state["batch"]) == (1, 0)  # the XENT epoch before, whole


@pytest.mark.parametrize(
    ("settings", "reward"),
    [
        (["reward.name=mine:sleeps", "reward.workers=2", "reward.seconds=20"], 0.5),
        (["reward.name=mine:judge"], sum(map(len, SOURCES)) / 800),
        (["reward.name=mine:trl", "reward.workers=1"], sum(map(len, SOURCES)) / 800),
    ],
)
def test_every_kind_of_function_trains(train, folder, settings, reward):
    code, err = train(*settings, "algorithm.to_zero=true", "training.epochs=3")
    assert code == 0, err
    last = json.loads((folder / "runs/mine/log.jsonl").read_text().splitlines()[-1])
    assert "s = 0" in last["stage"]  # every sentence is rewarded
    assert last["train"]["reward"] == pytest.approx(reward)
    assert last["seconds"]["reward"] > 0


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", ["moves", "forks"])
def test_a_reward_cannot_move_the_run_and_imports_its_siblings_late(folder, workers, name):
    (folder / "elsewhere").mkdir()
    (folder / "sibling.py").write_text("WORTH = 0.5\n")
    sets = ["--set", f"reward.name=mine:{name}", "--set", f"reward.workers={workers}", "--set", "training.batch_size=1"]
    code = "from seqmixer.cli import main; main()"  # the current folder is not in sys.path, as with `seqmixer`
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "train", "run.toml", *TINY, *sets],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "moved" not in done.stdout
    assert (folder / "runs/mine/scores.json").exists()
    assert len((folder / "runs/mine/log.jsonl").read_text().splitlines()) == 2
    assert not list((folder / "elsewhere").iterdir())


def test_a_reward_that_stops_the_program_is_a_stop(train):
    code, err = train("reward.name=mine:interrupts")
    assert code == 130
    assert err.splitlines()[-1].startswith("seqmixer: stopped; resume with: seqmixer train run.toml")
    code, err = train("reward.name=mine:interrupts", "reward.workers=1")
    assert code == 2
    assert err.splitlines()[-1].startswith("seqmixer: reward 'interrupts' raised KeyboardInterrupt for sequence 0, ")


def test_a_run_goes_on_with_another_time_limit(train, folder):
    code, _ = train("reward.name=mine:asleep", "reward.seconds=0.3")
    assert code == 2
    (folder / "awake").touch()
    code, err = train("reward.name=mine:asleep", "reward.seconds=20", "reward.workers=2")
    assert code == 0, err


def test_a_program_stopped_by_a_reward_that_never_returns_ends(folder):
    command = [sys.executable, "-m", "seqmixer", "train", "run.toml", *TINY, "--set", "reward.name=mine:never"]
    done = subprocess.run([*command, "--set", "reward.seconds=0.2"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("seqmixer: reward 'never' took more than 0.2 s for sequence ")


@pytest.mark.usefixtures("folder")
def test_an_error_in_a_reward_leaves_the_last_checkpoint_as_it_was(tmp_path):
    pairs = SOURCES, [[source] for source in SOURCES]
    task = text_task("copy", pairs, pairs, pairs, length=6)
    model = Recurrent(ElmanCell, AttentiveEncoder(len(task.source_vocab), 8, positions=6), len(task.target_vocab), 8)

    def training(name, epochs):
        reward = on_text(from_path(f"mine:{name}"), task.target_vocab.decode)
        algorithm = Mixer(reward, LinearBaseline(model.features), 6, [6, 6, 3])
        return Training(model, algorithm, task, tmp_path / "run", epochs=epochs, settings=TrainingConfig(batch_size=4))

    training("raises", epochs=2).run()
    before = {path: path.read_bytes() for path in (tmp_path / "run/last").iterdir()}
    with pytest.raises(RewardError, match="reward 'raises' raised ValueError for sequence 0"):
        training("raises", epochs=3).run()
    assert {path: path.read_bytes() for path in (tmp_path / "run/last").iterdir()} == before
    assert training("sleeps", epochs=3).run().epoch == 3
