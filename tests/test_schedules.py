import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqmixer.schedules import (
    at,
    decayed,
    exponential,
    falling_words,
    forced_words,
    inverse_sigmoid,
    linear,
    stages,
    truth_probability,
)

SUMMARIZATION = CAPTIONING = [15] * 20 + [13] * 5 + [11] * 5 + [9] * 5 + [7] * 5 + [5] * 5 + [3] * 5 + [1] * 5
TRANSLATION = [25] * 25 + [22] * 5 + [19] * 5 + [16] * 5 + [13] * 5 + [10] * 5 + [7] * 5 + [4] * 5 + [1] * 5


@pytest.mark.parametrize(
    ("length", "delta", "xent_epochs", "mixed_epochs", "expected"),
    [(15, 2, 20, 5, SUMMARIZATION), (25, 3, 25, 5, TRANSLATION), (15, 2, 20, 5, CAPTIONING)],
    ids=["summarization", "translation", "captioning"],
)
def test_forced_words_is_algorithm_1_for_the_settings_of_the_paper(length, delta, xent_epochs, mixed_epochs, expected):
    assert forced_words(length, delta, xent_epochs, mixed_epochs) == expected


small = st.integers(1, 12)


@given(small, small, small, small)
def test_forced_words_is_the_loop_of_algorithm_1(length, delta, xent_epochs, mixed_epochs):
    """for s = T, 1, -Delta: N^XENT epochs if s == T, else N^XE+R epochs."""
    expected, s = [], length
    while s >= 1:
        expected += [s] * (xent_epochs if s == length else mixed_epochs)
        s -= delta

    assert forced_words(length, delta, xent_epochs, mixed_epochs) == expected


def test_forced_words_is_never_empty():
    assert forced_words(length=4, delta=4, xent_epochs=0, mixed_epochs=3) == [4]
    assert forced_words(length=4, delta=2, xent_epochs=0, mixed_epochs=1) == [2]


def test_the_last_value_of_a_schedule_goes_on():
    assert [at([5, 3, 1], epoch) for epoch in range(6)] == [5, 3, 1, 1, 1, 1]


def test_stages_of_the_translation_schedule():
    assert stages(TRANSLATION)[:3] == [(25, 1, 25), (22, 26, 30), (19, 31, 35)]
    assert stages(TRANSLATION)[-1] == (1, 61, 65)


@given(small, small, small, small)
def test_stages_hold_every_epoch_once(length, delta, xent_epochs, mixed_epochs):
    forced = forced_words(length, delta, xent_epochs, mixed_epochs)

    assert [s for s, first, last in stages(forced) for _ in range(first, last + 1)] == forced
    assert [epoch for _, first, last in stages(forced) for epoch in range(first, last + 1)] == list(
        range(1, len(forced) + 1)
    )


def test_the_three_annealings_of_scheduled_sampling():
    assert [linear(i, 4) for i in range(7)] == [1, 0.75, 0.5, 0.25, 0, 0, 0]
    assert [exponential(i, 0.5) for i in range(4)] == [1, 0.5, 0.25, 0.125]
    assert inverse_sigmoid(0, 5) == pytest.approx(5 / 6)
    assert inverse_sigmoid(10, 5) == pytest.approx(5 / (5 + math.e**2))


@pytest.mark.parametrize(("annealing", "k"), [(linear, 6), (exponential, 0.7), (inverse_sigmoid, 3)])
def test_truth_probability_begins_with_the_reference_only_and_falls_to_the_floor(annealing, k):
    p = truth_probability(annealing, k, warmup=3, epochs=20, floor=0.1)

    assert len(p) == 20
    assert p[:3] == [1, 1, 1]
    assert p[3:] == [max(0.1, annealing(i, k)) for i in range(17)]
    assert p == sorted(p, reverse=True)
    assert p[-1] == 0.1


def test_truth_probability_goes_on_past_a_warmup_as_long_as_the_run():
    assert truth_probability(linear, k=2, warmup=3, epochs=3, floor=0.0) == [1, 1, 1, 1]


def test_the_rate_is_divided_by_1_2_unless_entropy_fell_by_a_ten_thousandth():
    assert decayed(0.2, entropy=0.99985, best=1.0) == 0.2
    assert decayed(0.2, entropy=0.99995, best=1.0) == pytest.approx(0.2 / 1.2)
    assert decayed(0.2, entropy=1.5, best=1.0) == pytest.approx(0.2 / 1.2)
    assert decayed(0.2, entropy=1.5, best=math.inf) == 0.2


@given(st.integers(1, 60), st.integers(0, 10), st.integers(1, 60))
def test_falling_words_uses_every_epoch_and_ends_with_one_word(length, warmup, epochs):
    found = falling_words(length, warmup, warmup + epochs)
    falling = found[warmup:]

    assert found[:warmup] == [length] * warmup
    assert (len(falling), falling[-1]) == (epochs, 1)
    steps = [a - b for a, b in itertools.pairwise([length, *falling])]
    assert max(steps) - min(steps) <= 1  # evenly
    assert falling_words(length, warmup, warmup) == [*[length] * warmup, 1]  # of one epoch more that never comes
