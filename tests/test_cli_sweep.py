"""`seqmixer sweep`, with trials that train for a moment."""

import json
import signal
import subprocess
import sys
import time
import tomllib

import pytest

from seqmixer.experiments.grid import read_once
from seqmixer.training import epochs, read_log

CONFIG = """
name = "tiny"
[data]
task = "text"
folder = "."
train = ["text.src", "text.tgt"]
valid = ["text.src", "text.tgt"]
test = ["text.src", "text.tgt"]
length = 6
[model]
hidden = 8
[algorithm]
name = "xent"
[training]
epochs = 2
batch_size = 4
lr = 0.01
threads = 1
[evaluation]
metrics = ["rouge1"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Parallel text, a config and a search space, in the current folder."""
    monkeypatch.chdir(tmp_path)
    sources = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]
    (tmp_path / "text.src").write_text("\n".join(sources) + "\n")
    (tmp_path / "text.tgt").write_text("\n".join(" ".join(s.split()[::-1]) for s in sources) + "\n")
    (tmp_path / "tiny.toml").write_text(CONFIG)
    (tmp_path / "space.toml").write_text('"training.lr" = [0.01, 0.02, 0.05, 0.1]\n"model.hidden" = [8, 12]\n')
    return tmp_path


def start(*arguments):
    command = [sys.executable, "-m", "seqmixer", "sweep", "tiny.toml", "--search", "space.toml", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def scores(out):
    """By trial: its values, and its validation score after each epoch."""
    record = json.loads((out / "sweep.json").read_text())
    logs = [epochs(read_log(out / f"trial-{trial['number']:04}")) for trial in record["trials"]]
    return [
        (trial["values"], [event["valid"] for event in log]) for trial, log in zip(record["trials"], logs, strict=True)
    ]


def test_a_search_trains_its_trials_and_leaves_a_config_that_trains(run, folder):
    code, out, err = run("sweep", "tiny.toml", "--search", "space.toml", "--trials", 5, "--seed", 3)
    assert code == 0
    assert "5 trials: 5 complete." in out
    assert out.endswith("Best: seqmixer train runs/sweeps/tiny/best.toml\nRecord: runs/sweeps/tiny/sweep.md\n")
    assert [line.split()[:2] for line in err.splitlines()] == [["trial", str(number)] for number in range(5)]

    sweep = folder / "runs/sweeps/tiny"
    record = json.loads((sweep / "sweep.json").read_text())
    assert record["command"] == "seqmixer sweep tiny.toml --search space.toml --trials 5 --seed 3"
    for trial in record["trials"]:
        found = json.loads((sweep / f"trial-{trial['number']:04}/scores.json").read_text())
        assert (trial["score"], trial["epochs"]) == (found["valid"], 2)
    code, out, _ = run("train", "runs/sweeps/tiny/best.toml", "--json")
    assert (code, json.loads(out)["run"]) == (0, "runs/tiny-best")
    assert json.loads(out)["valid"] == record["best"]["score"]  # the same run again


def test_a_record_names_the_machines_that_ran_the_trials(run, folder, monkeypatch):
    for trials, name in ((1, "one machine"), (3, "another machine"), (3, "a third")):
        monkeypatch.setattr("seqmixer.experiments.sweep.trials.machine", lambda name=name: name)
        assert run("sweep", "tiny.toml", "--search", "space.toml", "--trials", trials)[0] == 0
    record = json.loads((folder / "runs/sweeps/tiny/sweep.json").read_text())
    assert [trial["machine"] for trial in record["trials"]] == ["one machine", "another machine", "another machine"]
    assert "- one machine; another machine; seqmixer " in (folder / "runs/sweeps/tiny/sweep.md").read_text()


def test_trials_are_pruned_and_fail_without_stopping_the_search(run, folder):
    for name in ("text.src", "text.tgt"):
        (folder / name).write_text("a b c\n" * 8)
    (folder / "space.toml").write_text('"training.lr" = [0.1, 0.11, 0.12, 0.13, 0.14, 1e-9, 3e37]')
    options = ["--set", "training.epochs=8", "--set", 'evaluation.metrics=["exact"]', "--json"]
    code, out, err = run(
        "sweep", "tiny.toml", "--search", "space.toml", "--method", "grid", "--prune-after", 6, *options
    )
    assert code == 0
    trials = json.loads(out)["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 5 + ["pruned", "failed"]
    assert (trials[0]["score"], trials[5]["score"], trials[5]["epochs"]) == (100.0, 0.0, 6)
    assert trials[6]["reason"].startswith("runs/sweeps/tiny/trial-0006: epoch 1, batch ")
    assert "not a finite number" in err.splitlines()[6]
    assert err.splitlines()[5].endswith("  pruned after epoch 6")


def test_a_trial_that_the_memory_does_not_hold_fails_and_the_search_goes_on(run, folder):
    (folder / "space.toml").write_text('"model.hidden" = [1000000, 8]')
    code, out, err = run("sweep", "tiny.toml", "--search", "space.toml", "--method", "grid", "--json")
    assert code == 0
    trials = json.loads(out)["trials"]
    assert [trial["state"] for trial in trials] == ["failed", "complete"]
    assert trials[0]["reason"].startswith("out of memory (")
    assert "failed: out of memory (" in err.splitlines()[0]


def test_processes_share_a_search_without_doing_anything_twice(folder):
    both = [start("--method", "grid", "--json"), start("--method", "grid", "--json", "--workers", "2")]
    done = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], done
    lines = [line.split("  s")[0] for _, err in done for line in err.splitlines()]
    assert sorted(int(line.split()[1]) for line in lines) == list(range(8))  # each trial was run by one of them
    record = json.loads((folder / "runs/sweeps/tiny/sweep.json").read_text())
    cells = [tuple(trial["values"].values()) for trial in record["trials"]]
    assert sorted(cells) == sorted((lr, hidden) for lr in (0.01, 0.02, 0.05, 0.1) for hidden in (8, 12))
    assert {trial["state"] for trial in record["trials"]} == {"complete"}


def stop_in(trial, process, number):
    """Send a signal to a search once a trial of it has closed an epoch. -> what it wrote to standard error"""
    log = trial / "log.jsonl"
    while not (log.exists() and log.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    return process.communicate(timeout=60)[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*looking for the checkpoint before it")  # killed while one was written
def test_a_search_that_was_stopped_and_killed_goes_on_within_its_trials(run, folder):
    long = ["--set", "training.epochs=15", "--trials", "2"]
    process = start(*long, "--out", "stopped")
    err = stop_in(folder / "stopped/trial-0000", process, signal.SIGINT)
    assert process.returncode == 130
    again = "seqmixer sweep tiny.toml --search space.toml --set training.epochs=15 --trials 2 --out stopped"
    assert err == f"seqmixer: stopped with 0 of 2 trials over; saved in stopped; resume with: {again}\n"

    err = stop_in(folder / "stopped/trial-0001", start(*long, "--out", "stopped"), signal.SIGKILL)
    assert [line.split()[1] for line in err.splitlines()] == ["0"]
    assert len(epochs(read_log(folder / "stopped/trial-0001"))) < 15

    code, _, err = run("sweep", "tiny.toml", "--search", "space.toml", *long, "--out", "stopped")
    assert code == 0
    assert [line.split()[1] for line in err.splitlines()] == ["1"]  # the first is not run again
    run("sweep", "tiny.toml", "--search", "space.toml", *long, "--out", "whole")
    assert scores(folder / "stopped") == scores(folder / "whole")


def test_every_setting_of_the_built_in_search_is_known(run, folder):
    from importlib.resources import files

    from seqmixer.config import Config
    from seqmixer.experiments.sweep.space import read_space

    configs = files("seqmixer") / "configs"
    space = read_space(configs / "search/toy-translation.toml", Config.load(configs / "toy/translation.toml"))
    assert set(space) == set(tomllib.loads((configs / "search/toy-translation.toml").read_text()))


def test_without_optuna_the_extra_is_named(run, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = run("sweep", "tiny.toml", "--search", "space.toml")
    assert (code, err) == (
        2,
        "seqmixer: a sweep needs optuna and matplotlib; install it with: pip install 'seqmixer[sweep]'\n",
    )


def test_the_help_teaches_how_a_space_is_written(run):
    code, out, _ = run("sweep", "--help")
    assert code == 0
    assert '"training.lr" = { low = 1e-4, high = 1e-2, log = true }' in out
    assert "seqmixer sweep toy/translation --search rates.toml --trials 30 --prune-after 6" in out


def test_a_search_goes_on_with_the_data_it_began_with(run, folder):
    options = ("sweep", "tiny.toml", "--search", "space.toml", "--trials", "1")
    assert run(*options)[0] == 0
    lines = (folder / "text.tgt").read_text().splitlines()
    (folder / "text.tgt").write_text("\n".join(reversed(lines)) + "\n")
    read_once.cache_clear()  # as in another process
    code, _, err = run(*options)
    assert code == 2
    assert "holds a search with the fingerprint of test = " in err


def test_half_a_line_of_the_journal_is_cut_off_and_a_damaged_search_is_named(run, folder):
    options = ("sweep", "tiny.toml", "--search", "space.toml", "--out", "sw")
    assert run(*options, "--trials", "1")[0] == 0
    with (folder / "sw/journal.log").open("a") as journal:
        journal.write('{"op_code": 4, "wor')
    code, out, _ = run(*options, "--trials", "2", "--json")
    assert code == 0
    assert len(json.loads(out)["trials"]) == 2
    fewer = "seqmixer: sw has 2 trials; ask for as many or more, or choose another --out\n"
    assert run(*options, "--trials", "1")[::2] == (2, fewer)
    (folder / "sw/search.json").write_text("x")
    assert run(*options, "--trials", "2")[::2] == (
        2, "seqmixer: sw/search.json is damaged; put it back, or choose another --out\n"
    )  # fmt: skip


def test_a_range_of_any_size_is_searched_and_a_grid_of_any_size_is_refused(run, folder):
    (folder / "space.toml").write_text('"seed" = {low = 1, high = 1000000000000000000, step = 1}')
    options = ("sweep", "tiny.toml", "--search", "space.toml")
    assert run(*options, "--method", "random", "--trials", "1")[0] == 0
    code, _, err = run(*options, "--method", "grid", "--out", "grid")
    assert code == 2
    assert "seed: a grid of 1000000000000000000 values; allowed are 100,000" in err
