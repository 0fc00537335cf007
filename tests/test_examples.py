import functools
import runpy
import sys
from pathlib import Path

import pytest

from seqmixer.data import toy

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs_and_prints_a_score(path, monkeypatch, tmp_path, capsys):
    for name in ("translation", "summarization"):  # the same task with fewer sentences
        small = functools.partial(getattr(toy, name), train=200, valid=20, test=20)
        monkeypatch.setattr(toy, name, lambda seed, small=small: small(seed))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setattr(sys, "argv", [str(path), "1"])
    runpy.run_path(str(path), run_name="__main__")
    assert 0 <= float(capsys.readouterr().out) <= 100


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 50
