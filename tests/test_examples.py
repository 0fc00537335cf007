import functools
import runpy
import sys
from pathlib import Path

import pytest

from seqmixer.data import toy
from seqmixer.training import epochs, read_log

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


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
    assert len(path.read_text().splitlines()) <= 50
