"""Every block of docs/tutorial.md is run here, in an empty folder, in its order, on less data and for fewer epochs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_every_command_of_the_tutorial_works(tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = {}
    for kind, block in blocks():
        if kind == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"
            printed[block] = done.stdout + done.stderr
        else:
            (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    (doctor,) = [text for block, text in printed.items() if "doctor" in block]
    assert re.search(r"cost: .* take about", doctor)
    (compared,) = [text for block, text in printed.items() if "compare" in block]
    assert re.search(r"^runs/mixer +\d", compared, re.MULTILINE)
    (trained,) = [text for block, text in printed.items() if block == "seqmixer train tutorial.toml\n"]
    assert "REINFORCE on the rest" in trained
    (written,) = [text for block, text in printed.items() if block == "python generate.py\n"]
    assert len(written.splitlines()) == 3


def test_the_settings_that_the_tutorial_shows_are_a_config():
    from seqmixer.config import Config
    from seqmixer.files import parse_toml

    (block,) = [block for kind, block in blocks() if kind == "toml"]
    assert Config.parse(parse_toml(block, "tutorial.toml")).name == "mixer"
