import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqmixer.kernels import draw

ALMOST_ONE = math.nextafter(1.0, 0.0)  # the largest number that torch.rand gives in double precision


def drawn(logits, u):
    """One word for each u, from the same logits."""
    u = torch.as_tensor(u, dtype=torch.double)
    return draw(torch.as_tensor(logits, dtype=torch.float32).expand(len(u), -1), u).tolist()


@given(
    st.lists(st.floats(-30, 30, width=32) | st.just(-math.inf), min_size=1, max_size=20).filter(
        lambda row: max(row) > -math.inf
    ),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5),
)
def test_a_word_is_where_numpy_finds_u_in_the_cumulated_probabilities(logits, u):
    p = np.exp(np.array(logits) - max(logits))
    cumulated = p.cumsum() / p.sum()
    distance = np.abs(cumulated[:, None] - np.array(u)).min(0)

    for word, x, near in zip(drawn(logits, u), u, distance, strict=True):
        if near > 1e-12:  # else rounding decides
            assert word == np.searchsorted(cumulated, x, side="right")
        assert logits[word] > -math.inf


def test_the_share_of_u_that_gives_a_word_is_its_probability():
    p = torch.tensor([0.5, 0.0, 0.125, 0.3, 0.075])

    words = drawn(p.log(), (torch.arange(1000) + 0.5) / 1000)

    assert words == sorted(words)
    assert np.bincount(words).tolist() == [500, 0, 125, 300, 75]


@pytest.mark.parametrize("never", [-math.inf, -1e4])
def test_words_of_probability_0_are_drawn_by_no_u(never):
    logits = [never, never, 0.0, never, 1.0, never]

    assert drawn(logits, [0.0, 5e-324, ALMOST_ONE]) == [2, 2, 4]
    assert set(drawn(logits, torch.rand(1000))) == {2, 4}


@pytest.mark.parametrize("certain", [0, 3, 6])
def test_a_certain_word_is_drawn_by_every_u(certain):
    logits = [0.0 if word == certain else -math.inf for word in range(7)]

    assert drawn(logits, [0.0, 0.3, ALMOST_ONE]) == [certain] * 3


def test_rare_words_of_a_large_vocabulary_keep_their_share():
    """Each has one of 10^10: float32 could not tell their levels apart."""
    logits = torch.full((50_000,), -math.log(1e10))
    logits[0] = 0.0
    asked = torch.tensor([1, 2, 777, 25_000, 49_998, 49_999])
    p = logits.double().softmax(-1)

    assert drawn(logits, p.cumsum(-1)[asked] - p[asked] / 2) == asked.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.double, torch.bfloat16])
def test_rows_are_drawn_for_themselves_whatever_their_type(dtype):
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 0.0]], dtype=dtype)

    assert draw(logits, torch.tensor([0.5, 0.5, 0.9], dtype=torch.double)).tolist() == [0, 1, 2]
