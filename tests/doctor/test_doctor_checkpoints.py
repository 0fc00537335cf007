import math

import pytest
import torch

from seqmixer.config import Config
from seqmixer.doctor.checkpoints import Subject, examine_checkpoints, planned_epochs
from seqmixer.doctor.findings import Diagnosis
from seqmixer.runs import train
from seqmixer.storage import checkpoint
from seqmixer.storage.identity import read_config

LINES = "a b c\nb c\nc d e a\nd\ne a b\na c\nb d\nc e a\n"


@pytest.fixture
def folder(tmp_path):
    """A run of two epochs."""
    torch.manual_seed(0)
    (tmp_path / "text").write_text(LINES)
    files = {split: ["text", "text"] for split in ("train", "valid", "test")}
    values = {
        "name": "run",
        "data": {"task": "text", "folder": str(tmp_path), "length": 5, **files},
        "model": {"hidden": 4},
        "algorithm": {"name": "xent"},
        "training": {"epochs": 2, "batch_size": 4, "lr": 0.01},
        "evaluation": {"metrics": ["length"]},
    }
    return train(Config.parse(values), tmp_path).folder


def said(folder, overrides=(), length=5):
    path = folder / "config.toml"
    return found(Subject(Config.load(path, overrides), path, folder, False, tuple(overrides)), length)


def found(subject, length):
    diagnosis = Diagnosis()
    examine_checkpoints(diagnosis, subject, planned_epochs(subject.config, length))
    return [(finding.level, str(finding)) for finding in diagnosis.findings["checkpoint"]]


def test_a_run_that_is_not_there_yet(tmp_path):
    subject = Subject(Config(name="mine"), tmp_path / "my run.toml", tmp_path / "out/mine", True, ("seed=2",))
    line = f"no run in {tmp_path}/out/mine yet; begin it with: seqmixer train '{tmp_path}/my run.toml' --set seed=2 --out {tmp_path}/out"
    assert found(subject, 5) == [("ok", line)]


def test_a_finished_run(folder):
    score = read_best(folder)
    assert said(folder) == [
        ("ok", f"{folder}/last: last, last.1 complete, checksums right"),
        (
            "ok",
            f"{folder}/best: {', '.join(sorted(path.name for path in folder.glob('best*')))} complete, checksums right",
        ),
        ("ok", f"finished: 2 epochs done; {score}; score it with: seqmixer evaluate {folder}"),
    ]


def read_best(folder):
    state = checkpoint.load(folder / "best")[1]
    return f"the best model is of epoch {state['epoch']}, length {state['score']:.2f}"


def test_a_run_that_can_be_resumed(folder):
    command = f"seqmixer train {folder}/config.toml --set training.epochs=5 --out {folder.parent}"
    line = f"2 of 5 epochs done; {read_best(folder)}; resume with: {command}"
    assert said(folder, ["training.epochs=5"])[-1] == ("ok", line)


def test_a_run_that_patience_ended_is_finished(folder):
    tensors, state = checkpoint.load(folder / "last")
    checkpoint.save(folder / "last", tensors, {**state, "over": True})
    line = f"finished: 2 epochs done; {read_best(folder)}; score it with: seqmixer evaluate {folder}"
    assert said(folder, ["training.epochs=5"])[-1] == ("ok", line)


def test_a_first_model_that_is_kept_to_go_back_to_has_no_score(folder):
    tensors, state = checkpoint.load(folder / "last")
    checkpoint.save(folder / "last", tensors, {**state, "epoch": 0, "batch": 1})
    checkpoint.save(folder / "best", checkpoint.load(folder / "best")[0], {"epoch": 0, "score": -math.inf})
    assert said(folder)[-1][1].startswith("0 of 2 epochs done, 1 batches of the next; resume with: ")


def test_a_damaged_checkpoint_with_one_before_it(folder):
    (folder / "last/state.json").write_text("{")
    assert said(folder, ["training.epochs=5"])[:2] == [
        ("warning", f"{folder}/last is damaged: state.json is not what was written: last.1 is used"),
        ("ok", f"{folder}/last: last.1 complete, checksums right"),
    ]
    assert said(folder, ["training.epochs=5"])[-1][1].startswith("1 of 5 epochs done; ")


def test_a_lost_best_model_is_a_problem(folder):
    tensors, state = checkpoint.load(folder / "last")
    checkpoint.save(folder / "last", tensors, {**state, "best_epoch": 2})
    checkpoint.save(folder / "best", checkpoint.load(folder / "best")[0], {"epoch": 1, "score": 1.0})
    what = f"{folder}/best: that of epoch 2 is missing or damaged, and the one before it is of epoch 1; put it back"
    assert ("problem", what) in said(folder)


def test_no_complete_checkpoint(folder):
    for path in folder.glob("best*"):
        (path / "manifest.json").unlink()
    lines = [
        (
            "problem",
            f"{path} is damaged: no readable manifest: there is no other; fetch it again, or begin another run (--set name=...)",
        )
        for path in sorted(folder.glob("best*"))
    ]
    assert [line for line in said(folder) if line[0] != "ok"] == lines


def test_what_train_would_refuse_is_a_problem(folder):
    line = f"{folder} holds a run with seed = 1, not 2; choose another name (--set name=...), or delete the folder"
    assert said(folder, ["seed=2"])[0] == ("problem", line)


def test_a_damaged_file_beside_the_checkpoints(folder):
    (folder / "target.vocab").write_text("x")
    line = f"{folder}/target.vocab is not what was written; fetch the run again, or begin another (--set name=...)"
    assert said(folder)[0] == ("problem", line)


def test_a_damaged_log(folder):
    lines = (folder / "log.jsonl").read_text().splitlines()
    (folder / "log.jsonl").write_text("\n".join(["{", *lines[1:]]) + "\n")
    line = f"{folder}/log.jsonl:1: no event of a run; the log is damaged: fix the line, or delete it"
    assert said(folder)[-1] == ("problem", line)
    (folder / "log.jsonl").write_text("\n".join(lines[1:]) + "\n")
    assert ("warning", f"{folder}/log.jsonl lacks epochs: 2 are done, 1 are there") in said(folder)


def test_a_renamed_folder(folder):
    moved = folder.rename(folder.with_name("other"))
    line = f"{moved} holds the run 'run': it can be used as it is, but resumed only under its name; rename the folder"
    assert said(moved)[0] == ("note", line)


def test_code_in_the_config_of_a_run_folder_needs_trust_to_resume(folder):
    config = read_config(folder)
    coded = config.model_copy(update={"reward": config.reward.model_copy(update={"name": "mine:f"})})
    assert Subject(coded, folder / "config.toml", folder, False).command.endswith(" --trust")
    assert not Subject(config, folder / "config.toml", folder, False).command.endswith(" --trust")
    assert not Subject(coded, folder.parent / "own.toml", folder, True).command.endswith(" --trust")
