"""`seqmixer generate` with a person at the terminal: what is on the screen, by a pseudo-terminal."""

import os
import subprocess
import sys

import pytest

from seqmixer.config import Config
from seqmixer.runs import load, train
from seqmixer.runs.explain import unknown_words

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")

SOURCES = ["a b c", "b c", "c d e a", "d"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    (folder / "a").write_text("\n".join(SOURCES) + "\n")
    (folder / "b").write_text("\n".join(source.upper() for source in SOURCES) + "\n")
    data = {"task": "text", "folder": str(folder), "length": 6, **{s: ["a", "b"] for s in ("train", "valid", "test")}}
    settings = {"epochs": 1, "batch_size": 4, "threads": 1}
    values = {"name": "run", "data": data, "model": {"hidden": 8}, "algorithm": {"name": "xent"}}
    return train(Config.parse(values | {"training": settings}), folder, []).folder


def typed(folder, *lines, **streams):
    """What a terminal shows while these lines are typed, each after a prompt, and Ctrl-D after the last."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "seqmixer", "generate", str(folder)]
    process = subprocess.Popen(command, **{"stdin": theirs, "stdout": theirs, "stderr": theirs, **streams})
    os.close(theirs)
    shown = b""
    for line in (*lines, b"\x04"):
        before = shown.count(b"> ")
        while shown.count(b"> ") == before:
            shown += os.read(ours, 1000)
        os.write(ours, line)
    try:
        while chunk := os.read(ours, 1000):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 0, shown
    return shown.decode().replace("\r\n", "\n"), out


def test_a_person_is_asked_line_by_line_and_told_which_words_are_unknown(folder):
    run = load(folder)
    first, second = run.generate(["a b c", "a zebra \x1b[31m zebra d"])
    shown, _ = typed(folder, b"a b c\n", b"a zebra \x1b[31m zebra d\n")
    lines = [line for line in shown.splitlines() if not line.startswith("> ")]
    assert lines == [
        "One source a line; Ctrl-D ends.",
        first,
        "unknown to the model: zebra, \\x1b[31m",
        second,
    ]


def test_the_sentences_alone_go_to_a_file(folder):
    _, out = typed(folder, b"a b c\n", b"zebra\n", stdout=subprocess.PIPE)
    assert out.decode().splitlines() == load(folder).generate(["a b c", "zebra"])


def test_unknown_words_are_each_told_once(folder):
    run = load(folder)
    assert unknown_words(run, "a zebra </s> zebra b x") == ["zebra", "</s>", "x"]
    assert unknown_words(run, "a b") == unknown_words(run, "") == []
