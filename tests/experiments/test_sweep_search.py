"""Searches with an objective that costs nothing. tests/test_cli_sweep.py has those that train."""

import json
import math
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from seqmixer.config import Config
from seqmixer.errors import ADVICE, ConfigError, DataError, Diverged, Interrupted, RunError
from seqmixer.experiments.sweep import search as module
from seqmixer.experiments.sweep.record import importance, table, write_record
from seqmixer.experiments.sweep.search import claim, open_search, plan
from seqmixer.experiments.sweep.space import Choices, Range, combinations
from seqmixer.experiments.sweep.trials import outcomes, run_search

RATES = {"training.lr": Range(1e-4, 1e-1, log=True), "model.hidden": Choices((8, 16, 32))}
CELLS = {"training.lr": Choices((0.1, 0.2, 0.3)), "model.hidden": Choices((8, 16)), "seed": Range(1, 2)}


@pytest.fixture
def search(tmp_path):
    """Plan a search in a folder of this test."""

    def make(space=RATES, folder="sweep", method="tpe", trials=None, seed=1, prune_after=None):
        base = Config(name="base")
        return plan(tmp_path / folder, base, space, method=method, trials=trials, seed=seed, prune_after=prune_after)

    return make


def near_a_hundredth(config, folder, pruner):
    """Highest where the rate is 0.01, whatever else is set."""
    score = -abs(math.log10(config.training.lr) + 2)
    (folder / config.name).mkdir(exist_ok=True)
    (folder / config.name / "scores.json").write_text(
        json.dumps({"metric": "bleu", "test": 1.5, "valid": 1.0, "epoch": 1, "signature": "signed"})
    )
    return score


def done(search, objective=near_a_hundredth):
    """Run a search to its end. -> what was run now"""
    seen = []
    run_search(search, 1, seen.append, objective)
    return seen


def test_a_grid_runs_every_combination_once(search):
    grid = search(CELLS, method="grid")
    found = [outcome.values for outcome in done(grid)]
    assert len(found) == grid.trials == 3 * 2 * 2
    assert found == combinations(CELLS, "")
    assert done(grid) == []


@pytest.mark.parametrize("method", ["tpe", "random"])
def test_the_seed_decides_what_is_drawn(search, method):
    first, again, other = (
        [(o.values, o.score) for o in done(search(folder=name, method=method, trials=15, seed=seed))]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again
    assert not {values["training.lr"] for values, _ in first} & {values["training.lr"] for values, _ in other}
    assert len({values["training.lr"] for values, _ in first}) == 15  # each trial draws anew


def test_tpe_looks_where_it_was_good(search):
    scores = [outcome.score for outcome in done(search(trials=40))]
    assert sum(scores[25:]) / 15 > sum(scores[:10]) / 10 + 0.2


@pytest.mark.parametrize("method", ["tpe", "random", "grid"])
def test_a_stopped_search_goes_on_as_if_it_had_not_been(search, method):
    space = CELLS if method == "grid" else RATES
    trials = None if method == "grid" else 12
    whole = done(search(space, "whole", method, trials))
    calls = []

    def stops_twice(config, folder, pruner):
        calls.append(config.name)
        if len(calls) in (4, 6):
            raise KeyboardInterrupt if len(calls) == 4 else Interrupted("in an epoch")
        return near_a_hundredth(config, folder, pruner)

    stopped = search(space, "stopped", method, trials)
    message = f"stopped with 3 of 12 trials over; saved in {stopped.folder}"
    with pytest.raises(Interrupted, match=f"^{re.escape(message)}$"):
        done(stopped, stops_twice)
    with pytest.raises(Interrupted, match=r"^stopped with 4 of 12 trials over"):
        done(stopped, stops_twice)
    done(stopped, stops_twice)
    assert outcomes(stopped) == whole
    assert calls == [f"trial-{n:04}" for n in [0, 1, 2, 3, 3, 4, 4, *range(5, 12)]]  # the same folder again


def test_more_trials_make_a_search_longer(search):
    done(search(trials=3))
    assert [outcome.number for outcome in done(search(trials=5))] == [3, 4]
    assert outcomes(search(trials=5)) == done(search(folder="at-once", trials=5))


def test_a_trial_that_runs_elsewhere_is_left_alone(search):
    mine = search(trials=2)
    open_search(mine)
    with claim(mine) as one, claim(mine) as other, claim(mine) as none:
        assert (one.trial.number, other.trial.number, none) == (0, 1, None)
    with claim(mine) as again:  # its process let go without telling what came of it
        assert (again.trial.number, again.values) == (0, one.values)


def test_a_trial_that_ends_while_another_process_looks_for_orphans_is_left_alone(search, monkeypatch):
    mine, plain = search(trials=2), module.trial_lock
    open_search(mine)
    running = ExitStack()
    running.enter_context(claim(mine))

    def ends_now(search, number):
        """The other process has seen that trial 0 runs, and tries its lock next."""
        monkeypatch.setattr(module, "trial_lock", plain)
        module.load_study(search).tell(0, 1.0)
        running.close()
        return plain(search, number)

    monkeypatch.setattr(module, "trial_lock", ends_now)
    with claim(mine) as found:
        assert found.trial.number == 1


def test_a_process_that_dies_while_it_claims_a_cell_leaves_it_to_the_next(search, monkeypatch):
    grid = search(CELLS, method="grid")
    open_search(grid)
    with monkeypatch.context() as patched:
        patched.setattr("optuna.Study.ask", lambda study: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), claim(grid):
            pass
    with claim(grid) as one, claim(grid) as other:
        assert (one.trial.number, other.trial.number) == (0, 1)
    assert [outcome.values for outcome in done(grid)] == combinations(CELLS, "")


KILLED = """
import os, signal, sys
from pathlib import Path
from seqmixer.config import Config
from seqmixer.experiments.sweep.search import claim, open_search, plan
from seqmixer.experiments.sweep.space import Choices

search = plan(Path(sys.argv[1]), Config(), {"training.lr": Choices((0.1, 0.2))}, method="grid", trials=None, seed=1, prune_after=None)
open_search(search)
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)  # in the middle of writing to the journal
with claim(search):
    pass
"""


def test_a_process_that_is_killed_while_it_writes_to_the_journal_holds_up_nobody(search, tmp_path):
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "sweep")], stderr=subprocess.PIPE)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    began = time.monotonic()
    space = {"training.lr": Choices((0.1, 0.2))}
    found = done(plan(tmp_path / "sweep", Config(), space, method="grid", trials=None, seed=1, prune_after=None))
    assert [outcome.values["training.lr"] for outcome in found] == [0.1, 0.2]
    assert time.monotonic() - began < 29  # Optuna's own locks wait for 30 seconds


class Stopped:
    """A training loop, for a callback that may end it."""

    why = None

    def end(self, why):
        self.why = why


def test_a_pruned_trial_that_dies_before_it_was_told_is_pruned_when_it_is_resumed(search):
    def dies_when_pruned(config, folder, pruner):
        """Better again in the last epoch: only what was kept with the trial says that it is pruned."""
        if config.training.lr != 0.9:
            scores = [2.0] * 3
        else:
            calls.append(config.name)
            scores = [1.0] if len(calls) == 1 else []
        for epoch, score in enumerate(scores, 1):
            run = Stopped()
            pruner.epoch_end(run, {"event": "epoch", "epoch": epoch, "valid": {"perplexity": 1.0, "bleu": score}})
            if run.why:
                raise KeyboardInterrupt
        return 3.0

    calls, space = [], {"training.lr": Choices((0.1, 0.2, 0.3, 0.4, 0.5, 0.9))}
    with pytest.raises(Interrupted):
        done(search(space, method="grid", prune_after=1), dies_when_pruned)
    (seen,) = done(search(space, method="grid", prune_after=1), dies_when_pruned)
    assert (seen.state, seen.score) == ("pruned", 1.0)


def test_a_trial_that_does_badly_is_stopped_early(search):
    ran = {}

    def improves(config, folder, pruner):
        """With the rate 0.9 best in the first epoch, else twice the epoch plus the rate."""
        ran[config.training.lr] = 0
        for epoch in range(1, 7):
            ran[config.training.lr] = epoch
            score = 1 / epoch if config.training.lr == 0.9 else 2 * epoch + config.training.lr
            run = Stopped()
            pruner.epoch_end(run, {"event": "epoch", "epoch": epoch, "valid": {"perplexity": 1.0, "bleu": score}})
            if run.why:
                assert run.why.startswith("the sweep prunes it: ")
                break
        return score

    rates = (0.1, 0.2, 0.3, 0.4, 0.5, 0.9, 0.05, 0.6)
    seen = done(search({"training.lr": Choices(rates)}, method="grid", prune_after=3), improves)
    assert [outcome.state for outcome in seen] == ["complete"] * 5 + ["pruned", "pruned", "complete"]
    assert ran == {rate: 3 if rate in (0.9, 0.05) else 6 for rate in rates}  # 0.05 too is below the median, 0.3
    assert [seen[5].score, seen[6].score] == [1.0, 6.05]  # the best until then

    done(search({"training.lr": Choices(rates)}, "all", "grid"), improves)
    assert set(ran.values()) == {6}


def test_a_resumed_trial_may_report_an_epoch_again(search):
    def dies_after_reporting(config, folder, pruner):
        calls.append(config.name)
        for epoch, score in enumerate([5.0, 7.0, 6.0][len(calls) - 1 :], len(calls)):  # epoch 2 comes twice
            pruner.epoch_end(Stopped(), {"event": "epoch", "epoch": epoch, "valid": {"perplexity": 1.0, "bleu": score}})
            if len(calls) == 1 and epoch == 2:
                raise KeyboardInterrupt
        return 7.0

    calls = []
    with pytest.raises(Interrupted):
        done(search(trials=1), dies_after_reporting)
    assert [outcome.score for outcome in done(search(trials=1), dies_after_reporting)] == [7.0]


def test_trials_fail_for_their_settings_and_the_search_goes_on(search):
    def fails(config, folder, pruner):
        if config.training.lr == 0.1:
            raise Diverged("not a finite number: loss")
        if config.training.lr == 0.2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore of it")
        return near_a_hundredth(config, folder, pruner)

    space = {"training.lr": Choices((0.1, 0.2, 0.3)), "model.window": Choices((3, 4))}
    seen = done(search(space, method="grid"), fails)
    even = "trial-{:04}: model.window must be odd, so that it has a centre; got 4"
    assert [(outcome.state, outcome.reason) for outcome in seen] == [
        ("failed", "not a finite number: loss"),
        ("failed", even.format(1)),
        ("failed", f"out of memory (2.00 GiB were asked for); {ADVICE}"),
        ("failed", even.format(3)),
        ("complete", None),
        ("failed", even.format(5)),
    ]


def test_any_other_error_stops_the_search_and_leaves_the_trial_to_be_taken_up(search):
    def breaks(config, folder, pruner):
        raise DataError("train.de: no such file")

    with pytest.raises(DataError, match=r"^train\.de: no such file$"):
        done(search(trials=2), breaks)
    assert [outcome.state for outcome in outcomes(search(trials=2))] == ["running"]
    assert [outcome.number for outcome in done(search(trials=2))] == [0, 1]


def test_the_setting_that_matters_has_the_importance(search):
    space = {"model.dropout": Range(0.0, 0.9), "training.lr": RATES["training.lr"], "model.hidden": Choices((8, 16))}
    found = search(space, method="random", trials=40)
    done(found)
    shares = importance(found)
    assert next(iter(shares)) == "training.lr"
    assert shares["training.lr"] > 0.7
    assert sum(shares.values()) == pytest.approx(1)


def test_importance_is_not_told_from_trials_that_are_few_or_alike(search):
    few = search(trials=3)
    done(few)
    assert importance(few) == {}
    alike = search(folder="alike", trials=10)
    done(alike, lambda config, folder, progress: 1.0)
    assert importance(alike) == {}


def test_the_record_has_the_best_config_and_the_whole_search(search):
    found = search(trials=12)
    seen = done(found)
    record = write_record(found, "seqmixer sweep ...")
    best = max(seen, key=lambda outcome: outcome.score)

    config = Config.load(found.folder / "best.toml")
    assert config.name == "base-best"
    assert {"training.lr": config.training.lr, "model.hidden": config.model.hidden} == best.values
    written = json.loads((found.folder / "sweep.json").read_text())
    assert written["best"] == {"trial": best.number, "score": best.score, "values": best.values}
    assert [trial["values"] for trial in written["trials"]] == [outcome.values for outcome in seen]
    assert written["space"] == {"training.lr": {"low": 1e-4, "high": 0.1, "log": True}, "model.hidden": [8, 16, 32]}
    page = (found.folder / "sweep.md").read_text()
    assert (
        f"12 trials: 12 complete. The best, trial-{best.number:04}, has bleu {best.score:.2f} on the validation" in page
    )
    assert "1.50 on the test split (`signed`)" in page
    assert "seqmixer sweep ..." in page
    assert (found.folder / "sweep.svg").read_text().startswith("<svg")
    assert table(record).row_count == 10


def test_a_search_without_a_finished_trial_says_why(search):
    def fails(config, folder, pruner):
        raise Diverged("not a finite number: loss")

    found = search(trials=2)
    done(found, fails)
    message = (
        f"{found.folder}: none of 2 trials was trained to its end; the first that failed: not a finite number: loss"
    )
    with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
        write_record(found, "")


def test_a_folder_holds_one_search(search):
    mine = search(trials=1)
    done(mine)
    where = f"{mine.folder} holds a search with "
    end = "; choose another --out, or delete the folder"
    other_rate = Config(name="base", training={"lr": 0.5})
    more_epochs = Config(name="base", training={"epochs": 9})  # a run may go on for more; scores would not compare
    for other, difference in [
        (replace(mine, seed=2), "--seed = 1, not 2"),
        (replace(mine, prune_after=3), "--prune-after = None, not 3"),
        (replace(mine, config=other_rate), "training.lr = 0.001, not 0.5"),
        (replace(mine, config=more_epochs), "training.epochs = None, not 9"),
        (
            replace(mine, space={**RATES, "model.hidden": Choices((8, 9))}),
            "the search of model.hidden = {'values': [8, 16, 32]}, not {'values': [8, 9]}",
        ),
    ]:
        with pytest.raises(RunError, match=f"^{re.escape(where + difference + end)}$"):
            open_search(other)
    open_search(replace(mine, trials=5, config=Config(name="base", training={"threads": 3})))


def test_a_search_that_makes_no_sense_is_refused(search):
    with pytest.raises(
        ConfigError, match=r"^unknown method 'rand'\. Did you mean 'random'\? Known: grid, random, tpe\.$"
    ):
        search(method="rand")
    message = "--trials 5 with --method grid: this grid has 12 trials, and runs them all"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        search(CELLS, method="grid", trials=5)


def test_nothing_of_the_package_loads_optuna_before_a_sweep():
    code = (
        "import sys, seqmixer, seqmixer.experiments.sweep.record, seqmixer.cli;"
        "sys.exit(any(name in sys.modules for name in ('optuna', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
