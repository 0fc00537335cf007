"""Every block of docs/tutorial.md is run here, in an empty folder, in its order, on less data and for fewer epochs."""

import io
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from seqmixer.cli import main

PAGE = (Path(__file__).parent.parent / "docs/tutorial.md").read_text(encoding="utf-8")
SMALLER = {
    "train=12_000": "train=60, valid=10, test=10",
    "--valid 300 --test 500": "--valid 10 --test 10",
    "hidden = 64": "hidden = 8",
    "xent_epochs = 6 ": "xent_epochs = 1 ",
    "mixed_epochs = 2 ": "mixed_epochs = 1 ",
}


def blocks():
    page = PAGE
    for large, small in SMALLER.items():
        assert page.count(large) == 1, large
        page = page.replace(large, small)
    return re.findall(r"```(python|toml|sh)\n(.*?)```", page, re.DOTALL)


def run(line, monkeypatch):
    """A line of shell; seqmixer and Python are called in this process."""
    before, _, command = line.rpartition(" | ")
    if before:
        text = subprocess.run(["bash", "-euc", before], capture_output=True, check=True).stdout
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    match shlex.split(command):
        case ["seqmixer", *_] as words:
            monkeypatch.setattr(sys, "argv", words)
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code, line
        case ["python", path]:
            runpy.run_path(path, run_name="__main__")
        case _:
            subprocess.run(["bash", "-euc", command], check=True)


def test_every_command_of_the_tutorial_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed = {}
    for kind, block in blocks():
        if kind == "sh":
            for line in block.splitlines():
                run(line, monkeypatch)
                printed[line] = "".join(capsys.readouterr())
        else:
            Path(block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    assert re.search(r"cost: .* take about", printed["seqmixer doctor tutorial.toml"])
    assert "REINFORCE on the rest" in printed["seqmixer train tutorial.toml"]
    assert re.search(r"^runs/mixer +\d", printed["seqmixer compare runs/xent runs/mixer"], re.MULTILINE)
    assert len(printed["python generate.py"].splitlines()) == 3
