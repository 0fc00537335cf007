"""RAML's distribution by enumeration, and its limit."""

import itertools
import math
from collections import Counter

import pytest
import torch
from torch import nn

from seqmixer.algorithms import Raml, Xent
from seqmixer.algorithms.raml import edited, replaced_probability
from seqmixer.models import AttentiveEncoder, GRUCell, Recurrent
from seqmixer.types import BOS, EOS, PAD, Batch

V = 7
WORDS = [word for word in range(V) if word not in (PAD, BOS, EOS)]
TARGET = torch.tensor([[3, 5, EOS, PAD, PAD], [5, 4, 3, 4, EOS], [4, 4, 5, 3, 5]])
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD], [7, PAD, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1))
DRAWN = 40_000


def translator():
    model = Recurrent(GRUCell, AttentiveEncoder(9, 4, positions=6, window=3), V, 4).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_sentences_are_drawn_from_the_exponentiated_payoff_of_all_sentences(tau):
    """Chi-square against exp(r / tau), normalised over every sentence of three words of four."""
    star = (5, 3, 5)
    payoff = {
        y: -(1 + math.log(len(WORDS) - 1)) * sum(a != b for a, b in zip(y, star, strict=True))
        for y in itertools.product(WORDS, repeat=3)
    }
    total = sum(math.exp(r / tau) for r in payoff.values())
    target = torch.tensor([*star, EOS]).expand(DRAWN, -1)

    drawn = edited(target, replaced_probability(tau, len(WORDS) - 1), V)

    assert (drawn[:, 3] == EOS).all()
    counts = Counter(map(tuple, drawn[:, :3].tolist()))
    assert set(counts) <= set(payoff)
    expected = {y: DRAWN * math.exp(r / tau) / total for y, r in payoff.items()}
    distance = sum((counts[y] - expected[y]) ** 2 / expected[y] for y in payoff)
    assert distance < 103.4  # 99.9 % of chi-square with 63 degrees of freedom


def test_at_temperature_zero_it_is_xent():
    model = translator()
    loss, xent = Raml(0.0, V)(model, BATCH, 0), Xent()(model, BATCH, 0)

    assert torch.equal(loss.value, xent.value)
    assert loss.metrics["edited"].tolist() == [0, 13]


def test_the_edited_sentence_is_fed_and_learnt_and_ends_where_the_reference_does():
    model = translator()
    torch.manual_seed(3)
    words = edited(TARGET, Raml(2.0, V).probability, V)
    torch.manual_seed(3)
    loss = Raml(2.0, V)(model, BATCH, 0)

    assert (words != TARGET).sum() == loss.metrics["edited"][0] > 0
    assert torch.equal(words <= EOS, TARGET <= EOS)
    torch.testing.assert_close(loss.value, Xent()(model, Batch(SOURCE, words, words.unsqueeze(1)), 0).value)


def test_every_temperature_has_a_probability():
    found = [replaced_probability(tau, 30_000) for tau in (1e-9, 1e-3, 0.85, 1.0, 50.0, 100.0)]
    assert found == sorted(found)
    assert found[0] < 1e-300
    assert found[-1] < 1
    assert replaced_probability(1.0, 0) == 0.0  # a vocabulary of one word
