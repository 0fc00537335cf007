import ast
import functools
import os
import runpy
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import seqmixer
from seqmixer.data import toy
from seqmixer.training import epochs, read_log

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_learns_and_prints_a_score(path, monkeypatch, tmp_path, capsys):
    tasks = []
    for name in ("translation", "summarization"):  # the same task with fewer sentences
        small = functools.partial(getattr(toy, name), train=200, valid=20, test=20)
        monkeypatch.setattr(toy, name, lambda seed, small=small: tasks.append(small(seed)) or tasks[-1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setattr(sys, "argv", [str(path), "4"])
    runpy.run_path(str(path), run_name="__main__")
    float(capsys.readouterr().out)
    guessing = len(tasks[0].target_vocab)  # the perplexity of a model that knows nothing
    logs = [epochs(read_log(log.parent)) for log in Path("runs").glob("*/log.jsonl")]
    assert logs
    for events in logs:
        assert min(event["valid"]["perplexity"] for event in events) < 0.6 * guessing


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_is_short(path):
    assert len(path.read_text().splitlines()) <= (40 if path.name == "own_algorithm.py" else 50)


@pytest.mark.slow
def test_the_notebook_runs_and_shows_the_progress_of_training(tmp_path, monkeypatch):
    notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # committed without
    for cell in notebook.cells:
        cell.source = cell.source.replace("data.limit=4000", "data.limit=300")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()

    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    (table,) = [output for output in outputs[0] if output["output_type"] == "display_data"]  # updated in its place
    rows = [line.split() for line in table["data"]["text/plain"].splitlines() if " xent " in line]
    logged = [f"{row['train_xent']:.3f}" for row in seqmixer.load(tmp_path / "notebook/xent").history]
    assert [(row[0], row[3]) for row in rows] == [(str(i + 1), xent) for i, xent in enumerate(logged)]
    assert "words/s" not in table["data"]["text/plain"]
    scores = ast.literal_eval(outputs[2][-1]["data"]["text/plain"])
    assert scores == {
        name: pytest.approx(seqmixer.load(tmp_path / "notebook" / name).evaluate().score)
        for name in ("xent", "rewarded")
    }
    assert ast.literal_eval(outputs[3][-1]["data"]["text/plain"])["epoch"] == 3
    assert len(ast.literal_eval(outputs[4][-1]["data"]["text/plain"])) == 3


def test_the_citation_names_this_version():
    assert f"\nversion: {seqmixer.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
