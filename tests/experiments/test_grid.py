import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from events import closing
from seqmixer import __version__
from seqmixer.algorithms import AlgorithmSettings
from seqmixer.config import Config
from seqmixer.errors import RunError
from seqmixer.experiments.demo import page, table, toy_recipes
from seqmixer.experiments.grid import (
    METHODS,
    Job,
    Method,
    Recipe,
    base_job,
    best_score,
    count_seconds,
    method_jobs,
    read_once,
    run_grid,
    run_job,
    scratch_jobs,
    share_cores,
)
from seqmixer.experiments.summary import read_grid
from seqmixer.parallel import workers

RECIPE = """
[data]
task = "toy-summarization"
limit = 150
[model]
name = "elman"
hidden = 16
[algorithm]
xent_epochs = 3
mixed_epochs = 1
delta = 6
[reward]
name = "rouge2"
[training]
batch_size = 64
lr = 0.01
rl_lr = 0.002
[evaluation]
metrics = ["rouge2"]
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return Recipe("toy-summarization", path)


def test_methods_differ_in_nothing_but_the_algorithm(recipe, tmp_path):
    base, methods = base_job(recipe, seed=3), method_jobs(recipe, seed=3, folder=tmp_path)
    assert (base.config.algorithm.name, base.config.training.epochs, base.config.training.lr) == ("xent", 3, 0.01)
    assert [job.method for job in methods] == [method.name for method in METHODS]
    for job in methods:
        config = job.config
        assert config.training.start == str(tmp_path / "toy-summarization/seed-3/base")
        assert (config.algorithm.xent_epochs, config.training.lr, config.seed) == (0, 0.002, 3)
    assert len({job.config.model_copy(update={"name": "", "algorithm": None}) for job in methods}) == 1
    shared = AlgorithmSettings.model_fields.keys() - {"name"}
    assert len({job.config.algorithm.model_dump_json(include=shared) for job in methods}) == 1


@pytest.mark.slow
def test_a_grid_runs_once_reports_each_run_and_makes_a_report(recipe, tmp_path):
    seen = []
    run_grid([recipe], [1], tmp_path / "grid", workers=2, report=lambda result, left: seen.append((result, left)))
    assert [left for _, left in seen] == [4, 3, 2, 1, 0]
    assert seen[0][0]["method"] == "base"

    grid = json.loads((tmp_path / "grid/grid.json").read_text())
    assert sorted(result["method"] for result in grid["results"]) == sorted(
        ["base", *(method.name for method in METHODS)]
    )
    for result in grid["results"]:
        scores = json.loads((tmp_path / "grid" / result["run"] / "scores.json").read_text())
        assert (result["score"], result["valid"]) == (scores["test"], scores["valid"])
        epochs = len((tmp_path / "grid" / result["run"] / "log.jsonl").read_text().splitlines())
        assert epochs == (3 if result["method"] == "base" else 2)  # two: MIXER's stages are s = 6 and s = 0
    assert "MIXER / XENT" in page(read_grid(tmp_path / "grid"), "a title", ["a command"]).html()
    assert table(tmp_path / "grid").row_count == 1

    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "grid").rglob("tensors.safetensors")}
    run_grid([recipe], [1], tmp_path / "grid", workers=1, report=lambda result, left: None)
    assert json.loads((tmp_path / "grid/grid.json").read_text())["workers"] == 2  # as they were trained
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


@pytest.mark.parametrize(("workers", "each"), [(1, 4), (2, 2), (3, 1), (9, 1)])
def test_processes_share_the_threads_that_torch_would_use(workers, each):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        share_cores(workers)
        assert torch.get_num_threads() == each
    finally:
        torch.set_num_threads(before)


def test_the_recipes_of_the_demo_are_the_papers_models_on_the_built_in_tasks():
    recipes = toy_recipes()
    configs = [Config.load(recipe.path) for recipe in recipes]
    assert [recipe.task for recipe in recipes] == [config.data.task for config in configs]
    assert [(c.data.task, c.model.name, c.reward.name) for c in configs] == [
        ("toy-translation", "lstm", "bleu"),
        ("toy-summarization", "elman", "rouge2"),
        ("toy-captioning", "lstm", "bleu"),
    ]
    assert all((config.reward.name,) == config.metrics for config in configs)


def test_the_best_score_is_above_that_of_greedy_search_on_the_true_distribution(recipe):
    """Known by enumeration for this seed (tests/data/test_toy.py holds how); 65.6 against 41.8."""
    assert 60 < best_score(Config.load(recipe.path)) < 70


def plain(recipe):
    """The recipe without a rate for what starts from the base, with the released decay."""
    text = RECIPE.replace("rl_lr = 0.002\n", "decay = 1.2\n")
    recipe.path.write_text(text)
    return recipe


def test_a_rate_of_their_own_stays_for_all_methods(recipe, tmp_path):
    """Perplexity, by which the base's rate decays, is what only XENT lowers."""
    recipe = replace(recipe, settings=("training.decay=1.5",))
    assert base_job(recipe, 1).config.training.decay == 1.5
    assert {job.config.training.decay for job in method_jobs(recipe, 1, tmp_path)} == {1}


def test_without_a_rate_of_their_own_methods_go_on_with_that_of_the_bases_best_epoch(recipe, tmp_path):
    run = tmp_path / "toy-summarization/seed-1/base"
    run.mkdir(parents=True)
    log = [(0.01, True), (0.008, True), (0.006, False)]
    events = [closing(epoch=i, rate=rate, best=best) for i, (rate, best) in enumerate(log, 1)]
    (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    trainings = [job.config.training for job in method_jobs(plain(recipe), 1, tmp_path)]
    assert {(training.lr, training.decay) for training in trainings} == {(0.008, 1.2)}


def test_a_method_from_scratch_starts_from_nothing_with_the_rate_and_the_epochs_of_the_base(recipe):
    scratch = Method("reinforce", ("algorithm.name=reinforce",), scratch=True)
    recipe = replace(recipe, methods=(*METHODS, scratch), settings=("data.limit=70",))
    (job,) = scratch_jobs(recipe, seed=2)
    training = job.config.training
    assert (training.start, training.epochs, training.lr, training.rl_lr) == (None, 3, 0.01, 0.01)
    assert (job.config.name, job.config.algorithm.name, job.config.data.limit) == (
        "toy-summarization/seed-2/reinforce",
        "reinforce",
        70,
    )
    assert "reinforce" not in [each.method for each in method_jobs(recipe, 2, Path())]


@pytest.fixture
def done(recipe, tmp_path):
    """A base that was trained and judged."""
    job = base_job(replace(recipe, settings=("algorithm.xent_epochs=1", "data.limit=64")), seed=1)
    job = replace(job, method="xent")
    run_job(job, tmp_path, lambda run: {"words": len(run.target_vocab)})
    return job


def test_a_done_run_is_not_judged_again(done, tmp_path):
    def fail(run):
        raise AssertionError("judged again")

    result = run_job(done, tmp_path, fail)
    assert result["words"] > 4
    assert set(result["wall"]) == {"train", "judge"}


def test_a_run_that_was_asked_to_stop_in_its_last_validation_is_not_judged(recipe, tmp_path, monkeypatch):
    job = base_job(replace(recipe, settings=("algorithm.xent_epochs=1", "data.limit=64")), seed=1)
    judged = []
    asked = threading.Event()
    asked.set()
    monkeypatch.setattr(workers, "STOP_REQUESTED", asked)
    with pytest.raises(KeyboardInterrupt):
        run_job(replace(job, method="xent"), tmp_path, judged.append)
    assert judged == []


def test_a_run_that_is_to_be_longer_goes_on(done, tmp_path):
    config = done.config.model_copy(update={"training": done.config.training.model_copy(update={"epochs": 2})})
    run_job(replace(done, config=config), tmp_path)
    assert len((tmp_path / done.config.name / "log.jsonl").read_text().splitlines()) == 2


def test_a_run_of_another_version_or_another_config_is_refused(done, tmp_path):
    run = tmp_path / done.config.name
    other = done.config.model_copy(update={"seed": 9})
    message = f"{run} holds a run with seed = 1, not 9; choose another name (--set name=...), or delete the folder"
    with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
        run_job(replace(done, config=other), tmp_path)
    path = run / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": "0.0.1"}))
    message = f"{run} was made by seqmixer 0.0.1, this is {__version__}: their scores may not compare; choose another --out, or delete the folder"
    with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
        run_job(done, tmp_path)


@pytest.mark.parametrize("text", ["{", "{}", "[]", ""])
def test_a_damaged_result_is_found_out_again(done, tmp_path, text):
    path = tmp_path / done.config.name / "result.json"
    before = json.loads(path.read_text())
    path.write_text(text)
    result = run_job(done, tmp_path)
    assert (result["score"], json.loads(path.read_text())["score"]) == (before["score"], before["score"])


@pytest.mark.parametrize("text", ["", "a while"])
def test_damaged_seconds_begin_anew(tmp_path, text):
    (tmp_path / "seconds").write_text(text)
    assert count_seconds(tmp_path, 2.0) == 2.0
    assert count_seconds(tmp_path, 3.0) == 5.0


def test_a_done_run_of_other_data_is_no_part_of_the_table(tmp_path):
    for name, line in (("a", "a b"), ("b", "A B")):
        (tmp_path / name).write_text(f"{line}\n" * 8)
    values = {split: ["a", "b"] for split in ("train", "valid", "test")}
    data = {"task": "text", "folder": str(tmp_path), "length": 4, **values}
    training = {"epochs": 1, "batch_size": 4}
    config = Config.parse({"name": "t/base", "data": data, "algorithm": {"name": "xent"}, "training": training})
    job = Job("t", "base", 1, config)
    run_job(job, tmp_path)
    (tmp_path / "b").write_text("B A\n" * 8)
    read_once.cache_clear()  # as in another process
    with pytest.raises(
        RunError, match=re.escape(f"{tmp_path / 't/base'}: the train data is not what the run began with")
    ):
        run_job(job, tmp_path)
