"""`seqmixer doctor` as a person calls it."""

import json
import sys
from pathlib import Path

import pytest
import torch

TINY = [
    "--set", "model.hidden=8", "--set", "training.batch_size=4", "--set", "training.threads=1",
    "--set", "algorithm.xent_epochs=2", "--set", "algorithm.mixed_epochs=1", "--set", "algorithm.delta=3",
    "--set", "training.rl_lr=0.0002",
]  # fmt: skip


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    for split, shift in (("train", 0), ("valid", 1), ("test", 2)):
        rows = [[("abcdefg"[(i * k + k + shift) % 7]) for k in range(1, 4 + i % 4)] for i in range(12)]
        (tmp_path / f"{split}.a").write_text("\n".join(map(" ".join, rows)) + "\n")
        (tmp_path / f"{split}.b").write_text("\n".join(" ".join(row[::-1]) for row in rows) + "\n")
    files = "\n".join(f'{split} = ["{split}.a", "{split}.b"]' for split in ("train", "valid", "test"))
    (tmp_path / "mine.toml").write_text(f'name = "mine"\n[data]\ntask = "text"\nfolder = "."\nlength = 7\n{files}\n')
    return Path("mine.toml")


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_config_is_examined_and_nothing_is_written(run, config, tmp_path):
    before = everything(tmp_path)
    code, out, err = run("doctor", config, *TINY)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert {line.split()[1] for line in lines[:-1]} == {
        "environment:", "settings:", "data:", "checkpoint:", "cost:", "pre-flight:",
    }  # fmt: skip
    assert all(line.split()[0] in ("ok", "note", "warning") for line in lines[:-1])
    assert "a random model, on 12 validation sentences with 8 samples each" in out
    assert (
        "note     pre-flight: cross entropy comes first, and this is a random model yet: it says nothing of the "
        "RL stages; ask again once that is done"
    ) in lines
    assert everything(tmp_path) == before


def test_a_run_is_examined_with_its_best_model_and_stays_as_it_was(run, config, tmp_path):
    assert run("train", config, *TINY, "--set", "training.epochs=2")[0] == 0
    before = everything(tmp_path)
    code, out, _ = run("doctor", "runs/mine", "--set", "training.epochs=5", "--json")
    found = json.loads(out)
    sections = found["sections"]
    assert code == (2 if found["problems"] else 0)
    assert sections["pre-flight"]["model"] == "the best model of runs/mine"
    assert sections["pre-flight"]["valid"]["samples"] == 8
    assert sections["checkpoint"]["epoch"] == 2
    assert sections["checkpoint"]["last"] == {"last": None, "last.1": None}
    assert sections["cost"]["memory"]["weights"] > 0
    assert sections["data"]["sizes"] == {"train": 12, "valid": 12, "test": 12}
    assert sections["environment"]["torch"] == torch.__version__
    assert all(
        {"level", "what", "why", "advice"} == finding.keys()
        for section in sections.values()
        for finding in section["findings"]
    )
    assert everything(tmp_path) == before


def test_the_start_of_a_run_is_the_model_that_is_examined(run, config):
    assert run("train", config, *TINY, "--set", "algorithm.name=xent", "--set", "training.epochs=1")[0] == 0
    more = ["--set", "name=next", "--set", "algorithm.name=reinforce", "--set", "training.start=runs/mine"]
    _, out, _ = run("doctor", config, *TINY, *more)
    assert "the best model of runs/mine, on 12 validation sentences with 8 samples each" in out


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ["algorithm.name=reinforce"],
            "problem  settings: reinforce begins from a random model: that does not train (Sec. 4.4 of the paper); name the "
            "run of a cross-entropy model with training.start, or set algorithm.anneal = true",
        ),
        (
            ["training.start=nowhere"],
            "problem  model: training.start = 'nowhere': no model there; name the folder of a run",
        ),
        (
            ["reward.name=nowhere:f"],
            "problem  model: reward 'nowhere:f': there is no module 'nowhere', neither in {here} nor among the installed "
            "packages.",
        ),
        (
            ["reward.name=own:broken"],
            "problem  pre-flight: reward 'broken' returned nan for sequence 0, '{first}'; a reward is one finite number",
        ),
        (
            ["data.folder=away"],
            "problem  data: no such files: away/train.a, away/train.b, away/valid.a, away/valid.b, away/test.a, away/test.b; "
            "fix the names, or data.folder: its default is the variable SEQMIXER_DATA, which is ",
        ),
        (
            ["data.folder=away"],
            "note     cost: time, memory and pre-flight not measured: the data must be fixed first",
        ),
        (
            ["model.hidden=1000000"],
            "problem  model: out of memory ({first}shorter sentences (data.length) or a smaller beam",
        ),
        (
            ["evaluation.metrics=['blue']"],
            "problem  model: unknown evaluation.metrics 'blue'. Did you mean 'bleu'? Known: ",
        ),
        (
            ["training.device=nonsense"],
            "problem  environment: training.device = 'nonsense' cannot be used here: ",
        ),
        (
            ["model.window=4"],
            "problem  settings: mine.toml: model.window must be odd, so that it has a centre; got 4",
        ),
    ],
    ids=str,
)
def test_problems_are_said_and_exit_with_2(run, config, tmp_path, overrides, line):
    (tmp_path / "own.py").write_text("def broken(hypothesis, references): return float('nan')\n")
    code, out, err = run("doctor", config, *TINY, *[part for name in overrides for part in ("--set", name)])
    assert (code, err) == (2, "")
    start, _, end = line.format(here=tmp_path, first="\0").partition("\0")
    assert any(each.startswith(start) and each.endswith(end) for each in out.splitlines()), out
    assert " problem" in out.splitlines()[-1]


def test_an_update_that_the_memory_does_not_hold_is_a_problem_among_the_other_findings(run, config, monkeypatch):
    monkeypatch.setattr("seqmixer.training.step.Step.update", lambda *given: torch.empty(10**14))
    code, out, err = run("doctor", config, *TINY)
    assert (code, err) == (2, "")
    assert "problem  cost: an update does not go through: out of memory (400000000000000 bytes" in out
    assert "ok       pre-flight: " in out


def test_code_that_a_run_folder_names_waits_for_trust(run, config, tmp_path):
    (tmp_path / "own.py").write_text(
        "from pathlib import Path\nPath('imported').touch()\ndef f(hypothesis, references): return 0.25\n"
    )
    assert run("train", config, *TINY, "--set", "training.epochs=2", "--set", "reward.name=own:f")[0] == 0
    (tmp_path / "imported").unlink()
    sys.modules.pop("own", None)
    _, out, _ = run("doctor", "runs/mine", "--set", "training.epochs=5")
    assert (
        "note     cost: 'own:f' is Python code that a run folder names, and is not imported: time, memory and pre-flight not "
        "measured; add --trust if the code is yours"
    ) in out.splitlines()
    assert not (tmp_path / "imported").exists()
    _, out, _ = run("doctor", "runs/mine", "--set", "training.epochs=5", "--trust")
    assert "reward of samples 0.250, " in out
    assert (tmp_path / "imported").exists()


def test_an_algorithm_that_a_run_folder_names_waits_for_trust(run, config, tmp_path):
    (tmp_path / "own.py").write_text(
        "from pathlib import Path\nfrom seqmixer.algorithms import Xent\nPath('imported').touch()\n"
        "class Mine(Xent):\n    pass\n"
    )
    changes = ["--set", "training.epochs=2", "--set", "algorithm.name=own:Mine"]
    assert run("train", config, *TINY, *changes)[0] == 0
    (tmp_path / "imported").unlink()
    sys.modules.pop("own", None)
    _, out, _ = run("doctor", "runs/mine", "--set", "training.epochs=5")
    assert (
        "note     cost: 'own:Mine' is Python code that a run folder names, and is not imported: time, memory "
        "and pre-flight not measured; add --trust if the code is yours"
    ) in out.splitlines()
    assert not (tmp_path / "imported").exists()
    _, out, _ = run("doctor", "runs/mine", "--set", "training.epochs=5", "--trust")
    assert "cost: " in out
    assert (tmp_path / "imported").exists()


def test_a_folder_that_is_no_run_and_a_file_that_is_not_there(run, config, tmp_path):
    (tmp_path / "empty").mkdir()
    code, out, _ = run("doctor", "empty")
    assert code == 2
    assert "problem  settings: empty: not a run folder (no config.toml); `seqmixer train` makes one" in out.splitlines()
    code, out, _ = run("doctor", "runs/nowhere")
    assert code == 2
    assert (
        "problem  settings: runs/nowhere: no such file or folder; name a TOML file or the folder of a run"
        in out.splitlines()
    )


def test_a_damaged_model_is_a_problem(run, config):
    assert run("train", config, *TINY, "--set", "training.epochs=2")[0] == 0
    for path in Path("runs/mine").glob("best*/state.json"):
        path.write_text("{}")
    code, out, _ = run("doctor", "runs/mine")
    assert code == 2
    assert (
        "problem  checkpoint: runs/mine/best is damaged: state.json is not what was written: there is no other; fetch it "
        "again, or begin another run (--set name=...)"
    ) in out.replace("runs/mine/best.1 is damaged", "").splitlines()
