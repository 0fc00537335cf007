import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqmixer.training.averages import Averages
from seqmixer.training.clock import Clock

CPU = torch.device("cpu")


def means_of(*batches):
    """Of (metrics, how many things each is a mean of) each."""
    means = Averages(CPU)
    for metrics, count in batches:
        means.add({name: torch.tensor([value * count, count]) for name, value in metrics.items()})
    return means


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.integers(1, 9)), min_size=1, max_size=9))
def test_means_are_over_all_that_was_counted(batches):
    means = means_of(*(({"a": a, "b": b}, n) for a, b, n in batches))

    sentences = sum(n for _, _, n in batches)
    expected = {"a": sum(a * n for a, _, n in batches) / sentences, "b": sum(b * n for _, b, n in batches) / sentences}
    assert means.values() == pytest.approx(expected, abs=1e-5)
    assert means.bad() == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_batch_with_a_bad_number_does_not_count_and_the_number_is_named(bad):
    means = means_of(({"a": 1.0, "b": 2.0}, 3), ({"a": 50.0, "b": bad}, 100), ({"a": 3.0, "b": 4.0}, 1))

    assert means.values() == {"a": 1.5, "b": 2.5}
    assert means.bad() == ["b"]


def test_metrics_of_which_no_batch_counted_have_no_mean():
    assert means_of(({"a": 1.0, "b": math.nan}, 3)).values() == {}
    assert means_of().values() == {}


def test_a_batch_with_nothing_to_count_changes_no_mean():
    """As a batch of sentences shorter than s, of which MIXER writes nothing."""
    means = means_of(({"a": 2.0, "b": 1.0}, 3))
    means.add({"a": torch.zeros(2), "b": torch.tensor([5.0, 1.0])})
    assert means.values() == {"a": 2.0, "b": 2.0}


def test_batches_with_other_metrics_have_means_of_their_own():
    """As the stages of an algorithm do, and as a resumed epoch needs them."""
    assert means_of(({"a": 1.0}, 1), ({"b": 3.0}, 2), ({"a": 2.0}, 3)).values() == {"a": 1.75, "b": 3.0}


def test_beginning_anew_keeps_the_memory():
    means = means_of(({"a": 1.0}, 1))
    (before,) = means.sums.values()
    means.clear()
    assert means.values() == {}
    assert means.bad() == []
    means.add({"a": torch.tensor([14.0, 2.0])})
    assert means.values() == {"a": 7.0}
    assert next(iter(means.sums.values())) is before


def test_many_small_numbers_are_added_exactly():
    """In float32 a million of them would lose one in a hundred."""
    means = means_of(({"a": 1.0}, 1))
    means.sums[("a",)][:2] = torch.tensor([[1e9], [1e9]])
    for _ in range(100):
        means.add({"a": torch.tensor([11.0, 1.0])})
    assert means.sums[("a",)][0].item() == 1e9 + 1100


def test_what_is_being_timed_counts_so_far(monkeypatch):
    """A checkpoint in the middle of an epoch has the seconds of that epoch."""
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    clock = Clock()
    for done in (0.0, 3.0):
        with clock.time("train"):
            now += 1.0
            assert clock.so_far() == {"train": done + 1.0}
            now += 2.0
        assert clock.so_far() == clock.seconds == {"train": done + 3.0}


def test_the_parts_of_a_clock_add_up_to_its_training():
    clock = Clock()
    clock.seconds = {"train": 10.0, "forward": 5.0, "sample": 2.0, "reward": 1.0, "backward": 3.0, "update": 0.5}

    parts = clock.split()

    assert parts == {"sample": 2.0, "reward": 1.0, "score": 2.0, "backward": 3.0, "update": 0.5, "rest": 1.5}
    assert sum(parts.values()) == 10.0
    assert Clock().split() == {}
