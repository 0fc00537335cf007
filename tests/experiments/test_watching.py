import io
import json

import pytest
from rich.console import Console
from rich.progress import Progress

from events import closing
from seqmixer.bars import progress_bar
from seqmixer.build import run_length
from seqmixer.config import Config
from seqmixer.experiments import watching
from seqmixer.experiments.grid import Job, Recipe
from seqmixer.experiments.watching import Places, Watcher, seconds_left

BASE, MIXER = ("t", "base"), ("t", "mixer")


def test_nothing_is_known_before_the_first_epoch_is_over():
    assert seconds_left({BASE: 1}, {}, {}, [(BASE, 0, 0.0)]) is None


def test_a_run_takes_what_the_last_of_its_kind_took_and_unknown_kinds_what_the_others_do():
    assert seconds_left({BASE: 0, MIXER: 3}, {}, {BASE: 10.0, MIXER: 40.0}, []) == 120
    assert seconds_left({BASE: 1, MIXER: 2}, {}, {BASE: 10.0}, []) == 30
    assert seconds_left({BASE: 0, MIXER: 0}, {}, {BASE: 10.0}, []) == 0


def test_a_run_under_way_takes_what_its_epochs_take():
    assert seconds_left({MIXER: 2}, {MIXER: 10}, {MIXER: 99.0}, [(MIXER, 4, 20.0)]) == 2 * 50 - 20


def test_the_length_of_a_run_is_that_of_its_schedule():
    algorithm = {"xent_epochs": 2, "mixed_epochs": 3, "delta": 4}
    assert run_length(Config.parse({"algorithm": algorithm}), length=8) == 2 + 3 + 3  # s = 8, 4 and 0
    assert run_length(Config.parse({"algorithm": algorithm, "training": {"epochs": 5}}), length=8) == 5


@pytest.fixture
def watcher(tmp_path):
    output = io.StringIO()
    bar = Progress(console=Console(file=output, width=60))
    watcher = Watcher(bar, [Recipe("t", tmp_path / "t.toml")], seeds=2, folder=tmp_path, workers=1)
    return watcher, output


def test_a_line_says_which_of_how_many_runs_and_how_long_is_left(watcher):
    watcher, output = watcher
    watcher.report(
        {"task": "t", "method": "base", "seed": 2, "score": 12.346, "seconds": 600.0, "wall": {"judge": 0.0}}, 9
    )
    line = "  1/10  t seed 2 base                           12.35   600.0 s  about 90 min left\n"
    assert output.getvalue() == line


def test_the_bar_says_how_far_each_run_is(watcher, tmp_path):
    watcher, _ = watcher
    run = tmp_path / "t/seed-1/base"
    run.mkdir(parents=True)
    event = closing(epoch=1, seconds={"forward": 40.0, "backward": 20.0})
    (run / "log.jsonl").write_text(json.dumps(event) + "\n")
    sizes = {"length": 6, "target_vocab": 9, "source_vocab": None, "positions": None, "features": None}
    task = {"dimensions": sizes, "text": dict.fromkeys(("train", "valid", "test"), "")}
    (run / "task.json").write_text(json.dumps(task))
    job = Job("t", "base", 1, Config.parse({"name": "t/seed-1/base", "training": {"epochs": 3}}))
    watcher.look([job])
    # ten runs of three minutes, one minute of them over
    assert watcher.bar.tasks[0].description == "t seed 1 base, epoch 2/3  about 29 min left"


def test_a_run_under_way_says_its_batch(watcher, tmp_path):
    watcher, _ = watcher
    run = tmp_path / "t/seed-1/base"
    run.mkdir(parents=True)
    (run / "now").write_text("epoch 1/3, batch 5/9, 0:01:00 left")
    watcher.look([Job("t", "base", 1, Config.parse({"name": "t/seed-1/base"}))])
    assert watcher.bar.tasks[0].description == "t seed 1 base, epoch 1/3, batch 5/9, 0:01:00 left"


def test_without_a_terminal_a_line_now_and_then_says_where_the_runs_are(tmp_path, capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    job = Job("t", "base", 1, Config.parse({"name": "t/seed-1/base"}))
    with progress_bar() as bar:
        watcher = Watcher(bar, [Recipe("t", tmp_path / "t.toml")], seeds=1, folder=tmp_path, workers=1)
        for seconds in (30.0, 61.0, 90.0, 130.0):
            now[0] = seconds
            watcher.look([job])
    assert capsys.readouterr().err == "  t seed 1 base, epoch 1/?\n" * 2


def test_the_places_of_a_folder_are_those_of_the_runs_under_way(tmp_path):
    for name, place in (("trial-0001", "epoch 1/3, batch 5/9"), ("trial-0000", "\x1b[2Jepoch 2/3" + 100 * "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "now").write_text(place)
    (tmp_path / "trial-0002").mkdir()
    shown = Places(tmp_path).render(None).plain
    assert shown == f"trial-0000, \\x1b[2Jepoch 2/3{67 * 'x'}; trial-0001, epoch 1/3, batch 5/9"
