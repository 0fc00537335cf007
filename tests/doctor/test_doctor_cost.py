import pytest

from seqmixer.algorithms import LinearBaseline, Reinforce, Xent
from seqmixer.build import Dimensions, build_model
from seqmixer.config import Config
from seqmixer.data import text_task
from seqmixer.doctor import cost
from seqmixer.doctor.cost import GIB, Timing, counted, disk, fits, lasts, measured, room
from seqmixer.rewards import sentence_bleu
from seqmixer.training import Training


@pytest.fixture
def task():
    lines = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]
    pairs = lines, [[line] for line in lines]
    return text_task("copy", pairs, pairs, pairs, length=5)


def need(weights, moments, scores):
    """Bytes of memory, of an optimiser with so many numbers for each weight."""
    return {"weights": weights, "gradients": weights, "optimiser": moments * weights, "scores of all words": scores}


def config(**training):
    return Config.parse({"model": {"hidden": 8}, "training": {"batch_size": 4, **training}})


@pytest.mark.parametrize(("optimizer", "moments"), [("sgd", 0), ("adam", 2)])
def test_memory_is_counted_by_hand(task, optimizer, moments):
    model = build_model(config().model, Dimensions.of(task))
    memory = counted(config(optimizer=optimizer), task, model)
    n = sum(weight.numel() for weight in model.state_dict().values())
    assert memory == need(4 * n, moments, 3 * 4 * 4 * 5 * 9)  # batch 4, T 5, V 9


@pytest.mark.parametrize(
    ("algorithm", "fast", "held"), [("mixer", True, 50), ("mixer", False, 180), ("e2e", True, 180)]
)
def test_scores_that_are_never_held_at_once_are_not_counted(task, monkeypatch, algorithm, fast, held):
    """The own models turn scores into losses part by part; plain torch and E2E hold those of a whole batch."""
    monkeypatch.setattr("seqmixer.doctor.cost.ROOM", 50)
    made = Config.parse({"algorithm": {"name": algorithm}, "training": {"batch_size": 4, "fast": fast}})
    model = build_model(made.model, Dimensions.of(task))
    assert counted(made, task, model)["scores of all words"] == 3 * 4 * held  # of batch 4, T 5, V 9


def test_a_batch_has_no_more_sentences_than_there_are(task):
    made = config(batch_size=100_000_000)
    model = build_model(made.model, Dimensions.of(task))
    assert counted(made, task, model)["scores of all words"] == 3 * 4 * 8 * 5 * 9


@pytest.mark.parametrize(("name", "sentences"), [("xent", 4), ("reinforce", 12), ("mixer", 12)])
def test_every_sentence_that_is_written_for_a_source_is_counted(task, name, sentences):
    algorithm = {"name": name} | ({} if name == "xent" else {"samples": 3})
    made = Config.parse({"model": {"hidden": 8}, "algorithm": algorithm, "training": {"batch_size": 4}})
    model = build_model(made.model, Dimensions.of(task))
    assert counted(made, task, model)["scores of all words"] == 3 * 4 * sentences * 5 * 9


def test_the_model_of_the_kl_term_is_counted_and_measured(task):
    settings = Config.parse({"model": {"hidden": 8}, "algorithm": {"kl": 0.1}, "training": {"batch_size": 4}})
    model = build_model(settings.model, Dimensions.of(task))
    n = sum(weight.numel() for weight in model.state_dict().values())
    memory = counted(settings, task, model)
    assert memory == need(4 * n, 2, 3 * 4 * 4 * 5 * 9) | {"reference model": 4 * n}
    assert "scores of all words 0.0 MiB, reference model 0.0 MiB)" in str(fits(memory, 10 * GIB))
    assert (
        disk(settings, memory) - disk(settings, counted(config(), task, model)) == 3 * 4 * n
    )  # last, last.1, last.new
    algorithm = Reinforce(sentence_bleu, LinearBaseline(model.features), kl=0.1)
    assert len(measured(settings, task, model, algorithm, epochs=1).first) == 1


def test_the_disk_estimate_holds_for_a_real_run(task, tmp_path):
    model = build_model(Config.parse({"model": {"hidden": 64}}).model, Dimensions.of(task))
    estimate = disk(config(keep=2), counted(config(keep=2), task, model))
    Training(model, Xent(), task, tmp_path, epochs=5, settings=config(keep=2).training).run()
    used = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert 0.5 * estimate < used < estimate  # it has one more of each: the one being written


@pytest.mark.parametrize(
    ("available", "level", "end"),
    [
        (10 * GIB, "ok", "scores of all words 1.0 GiB)"),
        (
            5 * GIB,
            "warning",
            "scores of all words 1.0 GiB): the device has 5.0 GiB, and not all is counted; lower training.batch_size",
        ),
        (
            3 * GIB,
            "problem",
            "scores of all words 1.0 GiB): the device has 3.0 GiB; lower training.batch_size, data.target_max_size or "
            "model.hidden",
        ),
    ],
)
def test_memory_against_what_the_device_has(available, level, end):
    found = fits(need(GIB // 4, 10, GIB), available)
    assert (found.level, str(found)) == (
        level,
        "67,108,864 parameters; an update needs at least 4.0 GiB (weights 256.0 MiB, gradients 256.0 MiB, optimiser 2.5 "
        f"GiB, {end}",
    )


def test_a_disk_too_full_for_the_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(cost.shutil, "disk_usage", lambda path: type("Usage", (), {"free": GIB})())
    needed = disk(config(), need(GIB, 2, 0))
    assert str(room(needed, tmp_path / "not/yet")) == (
        f"checkpoints take up to 12.0 GiB of disk: {tmp_path} has 1.0 GiB left; make room, lower training.keep, or choose "
        "another folder with --out"
    )
    assert room(needed, tmp_path).level == "problem"
    assert str(room(GIB, tmp_path)) == "checkpoints take up to 1.0 GiB of disk, 1.0 GiB are free"


def test_time_is_the_sum_over_the_epochs_that_are_left(task):
    timing = Timing(first=[10, 20, 30], last=[40, 50, 90], validation=6)
    stages = ["XENT", "XENT", "MIXER 3", "MIXER 0", "MIXER 0"]
    expected = 20 * 2 + 3 * 50 * 2 + 4 * 6  # two updates an epoch: 364
    least, most = 10 * 2 + 3 * 40 * 2 + 4 * 6, 30 * 2 + 3 * 90 * 2 + 4 * 6
    assert (expected, least, most) == (6 * 60 + 4, 4 * 60 + 44, 10 * 60 + 24)
    assert str(lasts(config(), task, timing, stages, done=1)) == (
        "4 epochs of 2 updates and a validation take about 6 min 4 s here (4 min 44 s to 10 min 24 s by the fastest and "
        "the slowest of 3 measured updates)"
    )
    assert str(lasts(config(), task, timing, stages, done=5)) == "no epochs are left to train"


def test_updates_are_measured_and_the_first_is_not_counted(task):
    model = build_model(config().model, Dimensions.of(task))
    timing = measured(config(batch_size=1), task, model, Xent(), epochs=2)
    assert len(timing.first) == len(timing.last) == 5
    assert all(seconds > 0 for seconds in (*timing.first, *timing.last, timing.validation))
    one = measured(config(batch_size=8), task, model, Xent(), epochs=1)
    assert len(one.first) == 1  # an epoch of one update has no other
