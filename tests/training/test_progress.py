"""What a person sees of a run."""

import os
import re
import signal

import pytest

from seqmixer.errors import Interrupted
from seqmixer.runs import train
from seqmixer.training import Callback, Place, Terminal, progress, read_place
from test_runs import config


def test_a_note_is_shown_as_it_is_with_its_brackets(capsys):
    Terminal().note("epoch 2, batch 7: sentences 'the [sep] dog [bold]'")
    assert capsys.readouterr().err == "epoch 2, batch 7: sentences 'the [sep] dog [bold]'\n"


def test_control_characters_of_data_are_spelled_and_not_obeyed(capsys):
    Terminal().note("sentences '\x1b[2J\x9b31m\r\x7f'")
    assert capsys.readouterr().err == "sentences '\\x1b[2J\\x9b31m\\r\\x7f'\n"


def test_without_a_terminal_a_line_now_and_then_says_where_a_run_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "HEARTBEAT", 0.0)
    train(config(tmp_path), tmp_path)

    heard = [line for line in capsys.readouterr().err.splitlines() if "batch" in line]
    pattern = r"  epoch \d/2, batch \d/2  xent \d+\.\d{3}  [\d,]+ words/s  0:00:\d\d left"
    assert [re.fullmatch(pattern, line) is not None for line in heard] == [True] * 4
    assert [re.findall(r"epoch (\d)/2, batch (\d)/2", line)[0] for line in heard] == [
        ("1", "1"), ("1", "2"), ("2", "1"), ("2", "2"),
    ]  # fmt: skip


def test_the_pace_counts_the_words_of_the_references_and_the_batches_of_this_process_alone(tmp_path, monkeypatch):
    """Eight sentences of 2.125 words in two batches: 8.5 words a batch and no EOS; ten seconds a batch."""
    now, said = [0.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "HEARTBEAT", 5.0)

    class Slow(Terminal):
        def step(self, run):
            now[0] += 10.0
            super().step(run)

        def note(self, line):
            said.append(line)

    train(config(tmp_path), tmp_path, [Slow()])

    assert [line.split("  ")[-2:] for line in said if "batch" in line] == [
        ["1 words/s", f"0:00:{left} left"] for left in ("30", "20", "10", "00")
    ]


def test_a_run_that_resumes_says_where(tmp_path, capsys):
    class Stop(Callback):
        def step(self, run):
            if run.position.epoch == 1:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train(config(tmp_path), tmp_path, [Stop()])
    train(config(tmp_path), tmp_path)
    assert "resuming at epoch 2, batch 2\n" in capsys.readouterr().err


def test_the_place_of_a_run_is_in_its_folder_while_it_is_under_way(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    seen = []

    class Look(Callback):
        def step(self, run):
            seen.append(read_place(run.out))

    run = train(config(tmp_path), tmp_path, [Place(), Look()])
    assert [re.sub(r"0:00:\d\d", "...", place) for place in seen] == [
        f"epoch {epoch}/2, batch {batch}/2, ... left" for epoch in (1, 2) for batch in (1, 2)
    ]
    assert seen[-1].endswith("0:00:00 left")
    assert read_place(run.folder) == ""
