"""The number of CPU threads, where nobody says: measured, written down, and the same when the run resumes."""

import time

import pytest
import torch

from seqmixer.build import Dimensions, build_model, build_task
from seqmixer.config import Config
from seqmixer.runs import load, threads, train
from seqmixer.storage import checkpoint
from seqmixer.training import read_log


@pytest.fixture
def two_threads(monkeypatch):
    """As on a machine with two cores; and measurements of milliseconds."""
    monkeypatch.setattr(threads, "SECONDS", 0.01)
    monkeypatch.setattr(threads, "BLOCK", 0.001)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def config(tmp_path, name, **training):
    lines = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]
    (tmp_path / "a").write_text("\n".join(lines) + "\n")
    files = {split: ["a", "a"] for split in ("train", "valid", "test")}
    return Config.parse(
        {
            "name": name,
            "data": {"task": "text", "folder": str(tmp_path), "length": 6, **files},
            "model": {"hidden": 8, "dropout": 0.3},
            "algorithm": {"name": "mixer", "xent_epochs": 1, "mixed_epochs": 1, "delta": 3},
            "training": {"epochs": 3, "batch_size": 4, "device": "cpu", **training},
        }
    )


def weights(run):
    return checkpoint.load(run.folder / "last")[0]


def test_what_is_measured_is_written_down_and_changes_nothing_else(tmp_path, two_threads):
    run = train(config(tmp_path, "unset"), tmp_path)
    chosen = run.config.training.threads
    first, *rest = read_log(run.folder)
    assert (first["event"], first["threads"]) == ("threads", chosen)
    assert set(first["seconds"]) == {"2", "1"}
    assert all(event["event"] == "epoch" for event in rest)
    assert torch.get_num_threads() == 2  # as before
    told = train(config(tmp_path, "told", threads=chosen), tmp_path)
    assert [event["event"] for event in read_log(told.folder)] == ["epoch"] * 3
    found, expected = weights(run), weights(told)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_measuring_leaves_no_gradient_and_the_generator_as_it_was(tmp_path, two_threads):
    mine = config(tmp_path, "run")
    task = build_task(mine.data)
    model = build_model(mine.model, Dimensions.of(task))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    generator = torch.get_rng_state()
    assert set(threads.measured(model, task, mine.training, samples=True)) == {1, 2}
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert threads.measured(model, task, mine.training.model_copy(update={"threads": 2}), samples=True) == {}


@pytest.mark.parametrize(("told", "expected"), [(None, 2), (1, 1)])
def test_a_resumed_run_keeps_its_threads_unless_it_is_told(tmp_path, two_threads, monkeypatch, told, expected):
    monkeypatch.setattr("seqmixer.runs.run.fewest", max)
    first = train(config(tmp_path, "run", epochs=2), tmp_path)
    assert first.config.training.threads == 2
    monkeypatch.setattr(threads, "timed", None)  # not measured again
    torch.set_num_threads(4)
    seen = []
    monkeypatch.setattr("seqmixer.training.loop.evaluate", spy("seqmixer.evaluation.evaluate", seen))
    train(config(tmp_path, "run", epochs=3, threads=told), tmp_path)
    assert seen == [expected]
    assert load(tmp_path / "run").config.training.threads == expected
    assert torch.get_num_threads() == 4


def spy(path, seen):
    """A function that also notes the number of threads it is called with."""
    import importlib

    module, name = path.rsplit(".", 1)
    function = getattr(importlib.import_module(module), name)

    def call(*arguments, **named):
        seen.append(torch.get_num_threads())
        return function(*arguments, **named)

    return call


@pytest.mark.parametrize(
    ("costs", "tried"),
    [
        ({8: 0.02, 4: 0.025, 1: 0.09}, [8, 4, 1]),
        ({8: 0.02, 4: 0.04, 1: 0.09}, [8, 4]),  # with half of them it is twice as long: 1 is not tried
        ({8: 0.02, 4: 0.02, 1: 0.021}, [8, 4, 1]),
        ({8: 0.9, 4: 0.02, 1: 0.01}, [8, 4, 1]),
    ],
)
def test_steps_are_timed_for_a_second_and_what_is_hopeless_is_not_tried(monkeypatch, costs, tried):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    now = [8]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))

    def step():
        clock[0] += costs[now[0]]

    found = threads.timed(step, [8, 4, 1])
    assert found == pytest.approx({count: costs[count] for count in tried})
    assert 1.0 <= clock[0] < 2.5
