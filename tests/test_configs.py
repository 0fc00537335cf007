"""Configs that come with seqmixer are known by name, from anywhere."""

import json
import tomllib
from pathlib import Path

import pytest

import seqmixer
from seqmixer.config import Config
from seqmixer.configs import about, found, names
from seqmixer.errors import ConfigError

FOLDER = Path(seqmixer.__file__).parent / "configs"


def test_every_file_has_a_name_and_says_what_it_is_for():
    assert {path.name for path in names().values()} == {path.name for path in FOLDER.rglob("*.toml")}
    assert {"toy/translation", "paper/multi30k", "search/toy-translation"} <= set(names())
    for path in names().values():
        assert len(about(path)) > 20


@pytest.mark.parametrize("name", ["toy/translation", "toy/translation.toml", "configs/toy/translation.toml"])
def test_a_config_is_found_by_name_from_anywhere_but_a_file_comes_first(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = tomllib.loads((FOLDER / "toy/translation.toml").read_text())
    assert Config.load(name).name == expected["name"]
    own = tmp_path / name
    own.parent.mkdir(parents=True)
    own.write_text('name = "mine"')
    assert Config.load(name).name == "mine"
    assert found("toy/nothing") == Path("toy/nothing")


def test_a_name_that_nothing_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        Config.load("toy/translaton")
    assert str(error.value) == (
        "toy/translaton: no such file; configs end in .toml, and `seqmixer configs` lists those known by name"
    )


def test_the_command_lists_them(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("configs")
    assert (code, err, len(out.splitlines())) == (0, "", len(names()))
    assert "toy/translation             LSTM and BLEU, as the paper's translation, on the built-in task.\n" in out
    assert json.loads(run("configs", "--json")[1]) == {name: str(path) for name, path in names().items()}
    code, out, _ = run("data", "card", "toy/translation", "--json")
    assert (code, json.loads(out)["name"]) == (0, "toy-translation")


def test_the_version_is_said(run):
    assert run("--version") == (0, f"seqmixer {seqmixer.__version__}\n", "")


def test_no_file_is_in_two_places():
    """A link is a copy of its text where git or the system has no links."""
    root = Path(__file__).parents[1]
    assert not [
        path for part in ("src", "docs", "tests", "examples") for path in (root / part).rglob("*") if path.is_symlink()
    ]
    assert not [path for path in root.iterdir() if path.is_symlink() and path.name != ".venv"]
