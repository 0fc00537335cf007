import os
import tomllib
from pathlib import Path

import pytest
import torch

from seqmixer.config import Config
from seqmixer.doctor import environment
from seqmixer.doctor.environment import examine_environment

ROOT = Path(__file__).parents[2]


def said(config, folder):
    return [(finding.level, str(finding)) for finding in examine_environment(config, folder).findings]


def config(**training):
    return Config.parse({"training": training})


def test_the_place_of_a_run_is_the_nearest_folder_that_is_there(tmp_path):
    found = examine_environment(config(threads=1), tmp_path / "not/yet")
    assert str(found.findings[-1]).startswith(f"{tmp_path} can be written, ")
    assert found.values["torch"] == torch.__version__
    assert found.values["free_disk"] > 0


def test_a_file_where_the_run_needs_a_folder_is_a_problem(tmp_path):
    (tmp_path / "file").touch()
    line = f"{tmp_path}/file is a file: the run needs a folder there; choose another with --out"
    for place in ("file", "file/run"):
        assert ("problem", line) in said(config(), tmp_path / place)


def test_a_folder_that_cannot_be_written_is_a_problem(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    line = f"{tmp_path} cannot be written: the run goes there; choose another with --out"
    assert ("problem", line) in said(config(), tmp_path)


def test_a_device_that_is_not_there_is_a_problem(tmp_path):
    (line,) = [line for level, line in said(config(device="nonsense"), tmp_path) if level == "problem"]
    assert line.startswith("training.device = 'nonsense' cannot be used here: ")
    assert line.endswith("; set training.device = 'auto' or 'cpu'")


@pytest.mark.parametrize("there", [True, False])
def test_extras_and_what_they_are_for(monkeypatch, there):
    monkeypatch.setattr(environment, "requires", lambda name: ['seqmixer-extra-x>=1; extra == "report"', "torch>=2.11"])
    found = [type("Distribution", (), {"name": "seqmixer-extra-x"})] if there else []
    monkeypatch.setattr(environment, "distributions", lambda name: found)
    assert said(None, None)[1] == (
        ("ok", "the extra report, for figures and HTML reports, is installed")
        if there
        else (
            "note",
            "the extra report, for figures and HTML reports, is not installed (seqmixer-extra-x missing); pip install "
            "'seqmixer[report]'",
        )
    )


def test_an_extra_is_found_however_its_name_is_spelled(monkeypatch):
    monkeypatch.setattr(environment, "requires", lambda name: ['some_net-x.model>=1; extra == "images"'])
    monkeypatch.setattr(environment, "distributions", lambda name: [type("D", (), {"name": "Some-net_x_model"})])
    assert said(None, None)[1] == ("ok", "the extra images, for features of images, is installed")


def test_every_extra_has_a_purpose():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"].keys() - {"dev"} == environment.PURPOSES.keys()
