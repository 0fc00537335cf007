"""MIXER's falling s and XENT's share, as settings of everything that learns from samples."""

import pytest
import torch

from networks import H, T, V, batch_for, network
from seqmixer.algorithms import ALGORITHMS, Parts, SampledSettings
from seqmixer.build import build_algorithm
from seqmixer.config import Config
from seqmixer.rewards import sentence_bleu

SAMPLED = [name for name, kind in ALGORITHMS.items() if issubclass(kind.Settings, SampledSettings)]
SCHEDULE = {"xent_epochs": 1, "mixed_epochs": 1, "delta": 3}  # s = 6, 3 and 0
WHOLE, HALF, NONE = 0, 1, 2  # epochs


def made(name, **settings):
    config = Config.parse({"algorithm": {"name": name, **settings}}).algorithm
    torch.manual_seed(2)  # what an algorithm has of its own begins alike
    return build_algorithm(config, Parts(sentence_bleu, H, T, V, 3))


def learnt(algorithm, epoch):
    """The loss, what is logged, and the gradients of the model and of the algorithm, from the same noise."""
    model = network("lstm-text")
    algorithm.set_reference(network("lstm-text"))
    torch.manual_seed(7)
    loss = algorithm(model, batch_for("lstm-text"), epoch)
    loss.value.backward()
    parameters = [*model.parameters(), *algorithm.parameters()]
    return loss, [parameter.grad for parameter in parameters]


def assert_same(one, other):
    assert one[0].value.item() == other[0].value.item()
    assert {name: value.tolist() for name, value in one[0].metrics.items()} == {
        name: value.tolist() for name, value in other[0].metrics.items()
    }
    for a, b in zip(one[1], other[1], strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


@pytest.mark.parametrize("epoch", [WHOLE, HALF, NONE])
@pytest.mark.parametrize(
    "settings",
    [{}, {"samples": 3, "baseline": "leave-one-out", "kl": 0.1}, {"overlap": True, "xent_weight": 0.2}],
    ids=["one", "three, kl", "overlap"],
)
def test_reinforce_annealed_is_mixer(settings, epoch):
    annealed, mixer = (made(name, anneal=True, **SCHEDULE, **settings) for name in ("reinforce", "mixer"))
    assert_same(learnt(annealed, epoch), learnt(mixer, epoch))
    assert annealed.stage(epoch).rewarded == mixer.stage(epoch).rewarded == (epoch != WHOLE)
    assert made("reinforce", **SCHEDULE).stage(epoch).rewarded


@pytest.mark.parametrize("name", SAMPLED)
def test_what_is_annealed_begins_as_xent_and_ends_as_if_it_were_not(name):
    annealed = made(name, anneal=True, reinforce_weight=1.0, **SCHEDULE)
    (loss, gradients), (xent, expected) = learnt(annealed, WHOLE), learnt(made("xent"), WHOLE)
    nothing = [None] * len([*annealed.parameters()])  # for what the algorithm has of its own
    assert_same((loss, gradients), (xent, expected + nothing))
    if name != "mixer":
        assert_same(learnt(annealed, NONE), learnt(made(name), NONE))


@pytest.mark.parametrize("name", SAMPLED)
def test_the_shares_of_xent_and_of_the_rest_add_up(name):
    """With s words given, the gradient is a sum of two, each times its weight."""

    def gradients(xent, rest):
        algorithm = made(name, anneal=True, xent_weight=xent, reinforce_weight=rest, **SCHEDULE)
        found = learnt(algorithm, HALF)[1]
        return found[: len(found) - len(list(algorithm.parameters()))]

    one, other, both = gradients(1.0, 0.0), gradients(0.0, 1.0), gradients(0.3, 2.0)
    assert any(g.abs().max() > 1e-4 for g in other)
    for a, b, c in zip(one, other, both, strict=True):
        torch.testing.assert_close(0.3 * a + 2.0 * b, c, rtol=1e-4, atol=1e-6)


def test_a_stage_says_what_is_learnt_from_what():
    stage = made("reinforce", anneal=True, **SCHEDULE).stage(HALF)
    assert stage.label == "REINFORCE, XENT on the first s = 3 words, REINFORCE on the rest"
