"""Files that are read with limits, and written whole or not at all."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from seqmixer import files
from seqmixer.config import Config
from seqmixer.data import read_features, read_lines
from seqmixer.errors import ConfigError, DataError, RunError
from seqmixer.settings import assign

posix = pytest.mark.skipif(os.name != "posix", reason="FIFOs, links and modes")


@dataclass
class Shape:
    count: int
    share: float = 0.5


def said(function, *arguments):
    """One line."""
    with pytest.raises((RunError, ConfigError, DataError)) as error:
        function(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000, ":1: not JSON (recursion limit exceeded at column 202)"),
        ('{"count":' * 200_000, ":1: not JSON (recursion limit exceeded at column "),
        ('{"count": 1', ":1: not JSON (EOF while parsing an object at column 11)"),
        ('{"count": "1"}', ": count: input should be a valid integer"),
        ('{"count": true}', ": count: input should be a valid integer"),
        ('{"count": 1, "share": null}', ": share: input should be a valid number"),
        ('{"count": 1' + "0" * 10_000 + "}", ":1: not JSON (number out of range at column "),
        ("[]", ": input should be an object"),
        ("\0", ":1: not JSON (expected value at column 1)"),
    ],
    ids=range(9),
)
def test_json_of_another_kind_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert said(files.read_json, path, Shape).startswith(f"{path}{message}")


def test_json_is_read_by_its_type(tmp_path):
    (tmp_path / "a.json").write_text('{"count": 3, "share": -Infinity}')
    assert files.read_json(tmp_path / "a.json", Shape) == Shape(3, float("-inf"))


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 200_000,
        "a = " + "[1, " * 40 + "]" * 40,
        "a = " + "{a = " * 20_000,
        "a" + ".a" * 100_000 + " = 1",
        '"a"' + ' . "a"' * 50_000 + " = 1",
        "[a" + ".a" * 1_000 + "]",
    ],
    ids=range(6),
)
def test_toml_that_is_too_deep_is_refused_at_once(tmp_path, text):
    path = tmp_path / "a.toml"
    path.write_text(text)
    assert said(Config.load, path) == f"{path}: tables or lists inside each other, deeper than 32 levels"
    if text.startswith("a = "):
        assert said(assign, {}, f"x={text[4:]}").endswith("deeper than 32 levels")


def test_a_setting_with_too_many_dots_is_refused():
    assert said(assign, {}, "a" + ".a" * 60_000 + "=1").endswith("...: no setting is so many tables deep")


def test_what_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SMALL", 10)
    (tmp_path / "a.toml").write_text("seed = 100000")
    message = "larger than 10 bytes, the most that such a file may have"
    assert said(Config.load, tmp_path / "a.toml") == f"{tmp_path / 'a.toml'}: {message}"


@posix
@pytest.mark.timeout(60)
def test_a_fifo_and_a_device_are_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", tmp_path):
        said(files.read_json, tmp_path / path)
    assert said(Config.load, tmp_path / "fifo") == f"{tmp_path / 'fifo'}: not a regular file"


@posix
@pytest.mark.timeout(60)
def test_data_is_read_from_a_pipe_that_somebody_writes_to_and_another_is_empty(tmp_path):
    os.mkfifo(tmp_path / "fifo.npy")
    assert said(read_lines, tmp_path / "fifo.npy", 9) == f"{tmp_path / 'fifo.npy'}: no sentences; the file is empty"
    assert said(read_lines, Path("/dev/zero"), 9) == "/dev/zero: not a regular file"
    assert said(read_features, tmp_path / "fifo.npy") == f"{tmp_path / 'fifo.npy'}: not a regular file"
    with subprocess.Popen(["sh", "-c", "sleep 0.2; echo a b; sleep 0.2; echo c"], stdout=subprocess.PIPE) as process:
        assert read_lines(Path(f"/dev/fd/{process.stdout.fileno()}"), 9) == ["a b", "c"]  # as a shell's <(...)


def test_death_while_a_file_is_written_leaves_the_one_before(tmp_path, monkeypatch):
    files.write(tmp_path / "a", "one")

    def died(*_):
        raise KeyboardInterrupt

    for module, name in ((os, "fsync"), (os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, died)
            with pytest.raises(KeyboardInterrupt):
                files.write(tmp_path / "a", "two")
        assert [path.read_text() for path in tmp_path.iterdir()] == ["one"]
    files.write(tmp_path / "a", "two")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["two"]


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    synced, fsync, replace = set(), os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.add(os.fstat(handle).st_ino), fsync(handle)))

    def watched(source, target):
        assert source.stat().st_ino in synced
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    files.write(tmp_path / "a", "one")
    assert (tmp_path / "a").read_text() == "one"


@posix
@pytest.mark.parametrize("dangling", [True, False])
def test_nothing_is_written_through_a_link(tmp_path, dangling):
    outside = tmp_path / "outside"
    if not dangling:
        outside.write_text("mine")
    (tmp_path / "run").mkdir()
    for name in (files.beside(tmp_path / "run/a"), tmp_path / "run/a"):
        name.symlink_to(outside)
    files.write(tmp_path / "run/a", "theirs")
    assert not outside.exists() if dangling else outside.read_text() == "mine"
    assert not (tmp_path / "run/a").is_symlink()
    assert (tmp_path / "run/a").read_text() == "theirs"


@posix
def test_a_file_has_the_mode_of_any_file_whoever_writes_it(tmp_path):
    (tmp_path / "any").touch()
    with files.replacing(tmp_path / "a") as new:
        new.unlink()
        new.touch(mode=0o600)
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "any").stat().st_mode
