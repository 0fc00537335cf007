"""The queue, its thread and its limits, without a server."""

import json
import sys
import threading

import numpy
import pytest
import torch

from seqmixer.errors import ConfigError, DataError, RunError
from seqmixer.files import checked
from seqmixer.serve import service as module
from seqmixer.serve.limits import WAITING, Busy, Question, Rate
from seqmixer.serve.service import Served, Service, opened
from served import SOURCES, trained


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("served"))


def question(**asked):
    return checked({"sources": ["a b"], **asked}, Question, "request", DataError)


@pytest.fixture
def served(run):
    return Served("run", run)


@pytest.fixture
def service(served):
    made = Service([served])
    yield made
    made.close()
    assert not made.thread.is_alive()


@pytest.fixture
def gate(monkeypatch):
    """Batches are held up until the gate opens, and are noted."""
    opened, real = threading.Event(), module.answered
    opened.batches = []

    def answered(batch):
        opened.batches.append([each.source for each in batch])
        opened.wait(20)
        return real(batch)

    monkeypatch.setattr(module, "answered", answered)
    return opened


def results(*asked):
    return [future.result(20) for _, futures in asked for future in futures]


def waiting_for(service, count):
    with service.changed:
        service.changed.wait_for(lambda: len(service.waiting) <= count, 0)
    while len(service.waiting) > count:
        threading.Event().wait(0.01)


def test_answers_are_those_of_the_run_each_to_its_own_source(service, run):
    asked = [service.ask(question(sources=[source], beam=3, attention=True)) for source in SOURCES[:7]]
    together = service.ask(question(sources=SOURCES[:7], beam=3, attention=True))
    for source, found, again in zip(SOURCES, results(*asked), results(together), strict=False):
        alone = run.explain(source, beam=3)
        for each in (found, again):
            assert each.source == source
            assert each.words == alone.words
            assert [h.words for h in each.beam] == [h.words for h in alone.beam]
            assert each.greedy.probabilities == pytest.approx(alone.greedy.probabilities, abs=1e-5)
            assert torch.allclose(torch.tensor(each.greedy.attention), torch.tensor(alone.greedy.attention), atol=1e-5)


def test_what_is_alike_is_one_batch(service, gate):
    asked = [service.ask(question(sources=["d"]))]
    waiting_for(service, 0)
    asked += [service.ask(question(sources=[source])) for source in ("a", "b")]
    asked += [service.ask(question(sources=["c", "e"], beam=2)), service.ask(question(sources=["a b c"]))]
    gate.set()
    assert [found.source for found in results(*asked)] == ["d", "a", "b", "c", "e", "a b c"]
    assert gate.batches == [["d"], ["a", "b", "a b c"], ["c", "e"]]


def test_a_batch_has_no_more_than_there_is_room_for(service, gate, monkeypatch):
    monkeypatch.setattr(module, "ROOM", 24)  # words with the end, twice: of greedy search and of a beam of 1
    asked = [service.ask(question(sources=["d"]))]
    waiting_for(service, 0)
    asked.append(service.ask(question(sources=["a b c", "a", "b", "a b c d e a b c d e a b c d e", "c"])))
    gate.set()
    assert len(results(*asked)) == 6
    assert gate.batches == [["d"], ["a b c", "a", "b"], ["a b c d e a b c d e a b c d e"], ["c"]]


def test_a_full_queue_takes_nothing_of_a_question_and_says_so(service, gate):
    asked = [service.ask(question(sources=["d"]))]
    waiting_for(service, 0)
    asked += [service.ask(question(sources=["a"] * 63)) for _ in range(WAITING // 63)]
    with pytest.raises(Busy, match=r"^1008 sources are waiting, at most 1024 may; try again in a second$"):
        service.ask(question(sources=["a"] * 63))
    assert len(service.waiting) == 1008
    asked.append(service.ask(question(sources=["a"] * 16)))
    gate.set()
    assert len(results(*asked)) == 1025


def test_an_error_is_told_to_those_of_the_batch_and_the_next_is_answered(service, monkeypatch):
    real = module.answered
    monkeypatch.setattr(module, "answered", lambda batch: 1 / 0)
    (failed,) = service.ask(question())[1]
    with pytest.raises(ZeroDivisionError):
        failed.result(20)
    monkeypatch.setattr(module, "answered", real)
    assert len(results(service.ask(question()))) == 1


def test_what_nobody_waits_for_is_not_computed(service, gate):
    first = service.ask(question(sources=["d"]))
    waiting_for(service, 0)
    (left,), (kept,) = (service.ask(question(sources=[source]))[1] for source in ("a", "b"))
    assert left.cancel()
    gate.set()
    assert kept.result(20).source == "b"
    assert gate.batches == [["d"], ["b"]]
    assert len(results(first)) == 1


def test_a_closed_service_leaves_nobody_waiting(served, gate):
    service = Service([served])
    first = service.ask(question(sources=["d"]))
    waiting_for(service, 0)
    (second,) = service.ask(question(sources=["a"]))[1]
    service.close()
    assert second.cancelled()
    gate.set()
    assert len(results(first)) == 1


def test_scores_are_those_of_the_run(run):
    (served,) = opened([run.folder])
    service = Service([served])
    asked = service.ask(question(sources=["a b c", "b c"], references=["a b c", None], samples=2))
    first, second = results(asked)
    service.close()
    assert first.greedy.reward == pytest.approx(run.explain("a b c", "a b c").greedy.reward)
    assert all(each.reward is not None for each in first.samples)
    assert second.greedy.reward is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sources": []}, "run reads text: give it as 'sources', a list with at least one"),
        ({"features": [[1.0]]}, "run reads text: give it as 'sources', a list with at least one"),
        ({"sources": ["a", " "]}, "source 2 is empty; give it at least one word"),
        ({"sources": ["a " * 1001]}, "the source has 1,001 words; at most 1,000 are read"),
        ({"sources": ["a" * 10_001]}, "the source has 10,001 characters; at most 10,000 are read"),
        ({"sources": ["a"] * 65}, "request: sources: list should have at most 64 items after validation, not 65"),
        ({"sources": "a"}, "request: sources: input should be a valid array"),
        ({"references": ["a", "b"]}, "2 references of 1 sources; give one for each, or null"),
        ({"references": ["a " * 1001]}, "the reference has 1,001 words; at most 1,000 are read"),
        ({"beam": 21}, "request: beam: input should be less than or equal to 20"),
        ({"beam": 0}, "request: beam: input should be greater than or equal to 1"),
        ({"samples": 21}, "request: samples: input should be less than or equal to 20"),
        ({"temperature": 0.0}, "request: temperature: input should be greater than or equal to 0.01"),
        ({"temperature": float("nan")}, "request: temperature: input should be less than or equal to 10"),
        ({"length_penalty": 6}, "request: length_penalty: input should be less than or equal to 5"),
        ({"beem": 2}, "request: beem: extra inputs are not permitted"),
        ({"run": "other"}, "unknown run 'other'. Known: run."),
    ],
)
def test_what_cannot_be_answered_is_refused(service, asked, message):
    with pytest.raises((DataError, ConfigError)) as refused:
        service.ask(question(**asked))
    assert str(refused.value) == message


def images(folder):
    numpy.save(folder / "features.npy", numpy.random.default_rng(0).normal(size=(3, 5)).astype(numpy.float32))
    entries = [
        {"id": str(i), "row": i, "split": split, "captions": ["A cat."]}
        for i, split in enumerate(("train", "valid", "test"))
    ]
    (folder / "captions.json").write_text(json.dumps(entries))
    return trained(folder, "images", data={"task": "captions", "folder": str(folder)})


def test_runs_of_images_take_features(tmp_path, run):
    (served,) = opened([images(tmp_path).folder])
    service = Service([served])
    (found,) = results(service.ask(question(sources=[], features=[[0.0, 1, 2, 3, 4]], references=["A cat!"])))
    assert found.greedy.reward is not None
    for features, message in [
        ([0.0, 1], "the source has 2 features; images reads 5"),
        ([1e39] * 5, "request: features.0.0: input should be less than or equal to 10000"),
    ]:
        with pytest.raises(DataError, match=f"^{message}$"):
            service.ask(question(sources=[], features=[features]))
    service.close()
    with pytest.raises(RunError, match=r"^images reads 5 image features, run reads text; serve them one by one$"):
        opened([run.folder, served.run.folder])


def test_runs_have_the_names_of_their_folders_or_their_paths(run, tmp_path):
    other = trained(tmp_path, "run")
    assert [each.name for each in opened([run.folder, other.folder])] == [str(run.folder), str(other.folder)]
    assert [each.name for each in opened([run.folder])] == ["run"]
    with pytest.raises(RunError, match=r"is given twice; name each run once$"):
        opened([run.folder, run.folder])


def test_a_run_without_its_data_is_served_without_examples(tmp_path):
    run = trained(tmp_path)
    (tmp_path / "a").write_text("e d c\n" * 8)
    (served,) = opened([run.folder])
    assert (served.test, served.metric) == (None, None)
    assert served.lacks.startswith("no examples and no scores: ")
    (tmp_path / "a").unlink()
    assert f"no such files: {tmp_path / 'a'}" in opened([run.folder])[0].lacks
    service = Service([served])
    (found,) = results(service.ask(question(references=["a"])))
    service.close()
    assert found.greedy.reward is None


def test_nothing_of_a_folder_is_executed(tmp_path, monkeypatch):
    (tmp_path / "lengths.py").write_text(
        "def own(hypothesis, references):\n    return 1.0 / len(references[0].split())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = trained(tmp_path, evaluation={"metrics": ["lengths:own", "edit"]}, reward={"name": "lengths:own"})
    (tmp_path / "lengths.py").write_text("raise SystemExit('executed')\n")
    sys.modules.pop("lengths")
    (served,) = opened([run.folder])
    assert (served.lacks, served.metric.name) == ("", "edit")
    assert "lengths" not in sys.modules


def test_the_rate_is_counted_for_each_address_and_grows_again():
    now = [100.0]
    rate = Rate(60, lambda: now[0])
    for _ in range(60):
        rate.take("a")
    with pytest.raises(Busy, match=r"^more than 60 requests a minute; try again in a few seconds$"):
        rate.take("a")
    rate.take("b")
    now[0] += 1.5
    rate.take("a")
    with pytest.raises(Busy):
        rate.take("a")
    now[0] += 1000
    for _ in range(60):
        rate.take("a")
    with pytest.raises(Busy):
        rate.take("a")
    Rate(None).take("a")


def test_the_rate_of_many_addresses_takes_no_more_memory(monkeypatch):
    monkeypatch.setattr("seqmixer.serve.limits.ADDRESSES", 100)
    rate = Rate(2, lambda: 0.0)
    rate.take("first")
    for number in range(1000):
        rate.take(str(number))
    assert len(rate.left) == 100
    assert "first" not in rate.left


def test_damaged_folders_are_one_line(tmp_path):
    with pytest.raises(RunError, match=str(tmp_path / "gone")):
        opened([tmp_path / "gone"])
    run = trained(tmp_path)
    (run.folder / "target.vocab").write_text("changed\n")
    with pytest.raises(RunError):
        opened([run.folder])
