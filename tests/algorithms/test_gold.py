"""GOLD by hand, and its limits."""

import math

import pytest
import torch
from torch import nn

from seqmixer.algorithms import Gold, Xent
from seqmixer.config import TrainingConfig
from seqmixer.decoding import shift
from seqmixer.errors import ConfigError
from seqmixer.losses import log_prob
from seqmixer.models import AttentiveEncoder, GRUCell, Recurrent
from seqmixer.training.regime import Regime
from seqmixer.types import EOS, PAD, Batch

TARGET = torch.tensor([[3, 5, EOS, PAD, PAD], [5, 4, 3, 4, EOS], [4, 4, 5, 3, 5]])  # the last one is cropped
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD], [7, PAD, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1))


def translator():
    model = Recurrent(GRUCell, AttentiveEncoder(9, 4, positions=6, window=3), 6, 4).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


def begun(gold, model):
    gold.set_reference(model)
    return gold


def probabilities(model):
    p = log_prob(model.scores(model.unroll(shift(TARGET), model.encode(SOURCE))), TARGET).exp()
    return p.masked_fill(TARGET == PAD, 1)  # whose logarithm is 0


def gradients(model, value):
    return torch.autograd.grad(value, list(model.parameters()))


def assert_all_close(some, others):
    for a, b in zip(some, others, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("u", "c", "horizon"), [(0.2, 0.1, 5), (0.0, 0.0, 2), (0.5, 0.3, 0)])
def test_each_word_is_weighted_by_its_own_probability_and_those_of_the_next_under_the_first_model(u, c, horizon):
    first, model = translator(), translator()
    loss = begun(Gold(u, c, horizon), first)(model, BATCH, 0)

    p, q, expected = probabilities(model), probabilities(first).tolist(), 0.0
    for b in range(3):
        words = [t for t in range(5) if TARGET[b, t] != PAD]
        for t in words:
            to_go = [max(c, q[b][i]) if i in words else 1.0 for i in range(t, t + horizon + 1)]
            weight = max(u, p[b, t].item()) * sum(to_go) / (horizon + 1)
            expected = expected - weight * p[b, t].log() / 3
    torch.testing.assert_close(loss.value, expected)
    assert_all_close(gradients(model, loss.value), gradients(model, expected))


def test_with_both_floors_at_one_it_is_xent():
    model = translator()
    loss, xent = Gold(weight_floor=1.0, reward_floor=1.0)(model, BATCH, 0), Xent()(model, BATCH, 0)

    torch.testing.assert_close(loss.value, xent.value)
    assert_all_close(gradients(model, loss.value), gradients(model, xent.value))
    assert torch.equal(loss.metrics["xent"], xent.metrics["xent"])
    assert loss.metrics["weight"].tolist() == [13, 13]


def test_with_rewards_of_one_it_is_gold_delta_and_needs_no_first_model():
    model, delta = translator(), Gold(weight_floor=0.3, reward_floor=1.0)
    delta.set_reference(model)
    p = probabilities(model)

    expected = -(p.detach().clamp(min=0.3) * p.log()).sum() / 3
    torch.testing.assert_close(delta(model, BATCH, 0).value, expected)
    assert delta.reference is None


def test_the_first_model_is_kept_and_no_gradient_reaches_it():
    model = translator()
    gold = begun(Gold(), model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    before = [parameter.clone() for parameter in gold.parameters()]
    gold.set_reference(model)
    gold(model, BATCH, 0).value.backward()

    assert all(torch.equal(a, b) for a, b in zip(gold.parameters(), before, strict=True))
    assert all(parameter.grad is None for parameter in gold.parameters())
    message = "GOLD has no reference model yet"
    with pytest.raises(ConfigError, match=message):
        Gold()(model, BATCH, 0)


def test_a_run_keeps_its_first_model_and_trains_as_with_xent():
    settings = TrainingConfig(rl_lr=0.1)
    regime, xent = (Regime.of(algorithm.stage(0), settings) for algorithm in (Gold(), Xent()))
    assert (regime.sets_reference, xent.sets_reference) == (True, False)
    assert (regime.rate, regime.dropout, regime.patience) == (xent.rate, xent.dropout, xent.patience)


def test_the_weights_are_constants():
    """The gradient of a weighted sum is the weighted sum of gradients: that of p log p would be another."""
    model = translator()
    gold = Gold(weight_floor=0.0, reward_floor=1.0)
    p = probabilities(model)
    assert math.isclose(gold(model, BATCH, 0).value.item(), -(p * p.log()).sum().item() / 3)
    wrong = gradients(model, -(p * p.log()).sum() / 3)
    right = gradients(model, gold(model, BATCH, 0).value)
    assert any(not torch.allclose(a, b) for a, b in zip(right, wrong, strict=True))
