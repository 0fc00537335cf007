import json

import pytest

from seqmixer.config import Config
from seqmixer.experiments.demo import table, toy_recipes
from seqmixer.experiments.grid import METHODS, Recipe, base_job, method_jobs, run_grid
from seqmixer.experiments.oracle import best_score
from seqmixer.experiments.report import write_report

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
annealing_k = 3.0
[reward]
name = "rouge2"
[training]
batch_size = 64
lr = 0.01
mixed_lr = 0.002
[evaluation]
metric = "rouge2"
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
    assert len({job.config.algorithm.model_copy(update={"name": "xent"}) for job in methods}) == 1


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
    assert "MIXER / XENT" in write_report(tmp_path / "grid", "a title", ["a command"]).read_text()
    assert table(tmp_path / "grid").row_count == 1

    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "grid").rglob("tensors.safetensors")}
    run_grid([recipe], [1], tmp_path / "grid", workers=1, report=lambda result, left: None)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


def test_the_recipes_of_the_demo_are_the_papers_models_on_the_built_in_tasks():
    with toy_recipes() as recipes:
        configs = [Config.load(recipe.path) for recipe in recipes]
    assert [(c.data.task, c.model.name, c.reward.name) for c in configs] == [
        ("toy-translation", "lstm", "bleu"),
        ("toy-summarization", "elman", "rouge2"),
        ("toy-captioning", "lstm", "bleu"),
    ]
    assert all(config.reward.name == config.evaluation.metric for config in configs)


def test_the_best_score_is_above_that_of_greedy_search_on_the_true_distribution(recipe):
    """Known by enumeration for this seed (tests/data/test_toy.py holds how); 65.6 against 41.8."""
    assert 60 < best_score(Config.load(recipe.path)) < 70
