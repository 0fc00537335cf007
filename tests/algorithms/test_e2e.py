import pytest
import torch
from torch import nn

from seqmixer.algorithms import E2E, Parts, Stage, Xent
from seqmixer.algorithms.e2e import mixture
from seqmixer.config import Config
from seqmixer.models import AttentiveEncoder, ElmanCell, LSTMCell, NoEncoder, Recurrent
from seqmixer.types import BOS, EOS, PAD, Batch

V, H, T = 6, 3, 4
TARGET = torch.tensor([[3, EOS, PAD, PAD], [5, 4, 3, EOS]])
SOURCE = torch.tensor([[4, 5, 3, 6], [6, 3, 5, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1))


def translator(cell=ElmanCell):
    return random(Recurrent(cell, AttentiveEncoder(7, H, positions=4, window=3), V, H))


def random(model):
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.double()


def gradients(model, loss):
    return torch.autograd.grad(loss.value, list(model.parameters()))


def margin(model, loss_of, k):
    """The least distance, over all steps, between the k-th and the next score: how far the k best are from a tie."""
    plain, seen = model.scores, []
    model.scores = lambda h: seen.append(plain(h)) or seen[-1]
    loss_of(model)
    model.scores = plain
    best = torch.stack(seen).sort(-1, descending=True).values
    return (best[..., k - 1] - best[..., k]).min().item()


@pytest.mark.parametrize(("k", "s"), [(1, 1), (2, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell])
def test_the_gradient_is_that_of_finite_differences_on_every_parameter(cell, k, s):
    model = translator(cell)
    e2e, step = E2E([s], k), 1e-5

    def loss_of(network):
        return e2e(network, BATCH, 0)

    assert margin(model, loss_of, k) > 1e-3  # so that no finite step changes which words are the k best
    exact = gradients(model, loss_of(model))
    with torch.no_grad():
        for (name, parameter), gradient in zip(model.named_parameters(), exact, strict=True):
            flat, expected = parameter.view(-1), gradient.flatten()
            for i in range(len(flat)):
                old = flat[i].item()
                flat[i] = old + step
                above = loss_of(model).value.item()
                flat[i] = old - step
                below = loss_of(model).value.item()
                flat[i] = old
                assert (above - below) / (2 * step) == pytest.approx(expected[i].item(), abs=1e-6, rel=1e-5), name


def test_the_gradient_passes_through_the_words_fed():
    """With the mixture held constant the gradient would be another one."""
    model = translator()

    with_mixture = gradients(model, E2E([1], 3)(model, BATCH, 0))
    plain = model.embed
    model.embed = lambda words: plain(words) if words.shape == TARGET.shape else plain(words).detach()
    held = gradients(model, E2E([1], 3)(model, BATCH, 0))

    assert not all(torch.allclose(a, b) for a, b in zip(with_mixture, held, strict=True))


@pytest.mark.parametrize("s", [T, T + 3])
def test_with_all_words_given_e2e_is_xent(s):
    model = translator(LSTMCell)
    e2e, xent = E2E([s], 2)(model, BATCH, 0), Xent()(model, BATCH, 0)

    torch.testing.assert_close(e2e.value, xent.value)
    torch.testing.assert_close(e2e.metrics, xent.metrics)
    for a, b in zip(gradients(model, e2e), gradients(model, xent), strict=True):
        torch.testing.assert_close(a, b)


def fed_by(model, e2e):
    """The inputs of the T steps, (B, T, E)."""
    plain, seen = model.step, []

    def step(x, state, context):
        seen.append(x.detach())
        return plain(x, state, context)

    model.step = step
    e2e(model, BATCH, 0)
    model.step = plain
    return torch.stack(seen, 1)


@pytest.mark.parametrize("s", [0, 1, 2, 3, 4])
def test_the_reference_is_fed_for_the_first_s_steps_and_bos_always(s):
    model = translator()

    x = fed_by(model, E2E([s], 2))

    reference = model.M_i.weight[torch.tensor([[BOS, 3, EOS, PAD], [BOS, 5, 4, 3]])]
    given = max(s, 1)  # the first word fed is BOS, which nobody predicts
    torch.testing.assert_close(x[:, :given], reference[:, :given])
    for t in range(given, T):
        assert not torch.isclose(x[:, t], reference[:, t]).all(-1).any()


@pytest.mark.parametrize("s", [0, 1, 2, 3])
def test_the_k_best_are_fed_with_their_probabilities_renormalised(s):
    """Eq. 8 by hand, for k = 2, from step s on."""
    model = translator()

    x = fed_by(model, E2E([s], 2))

    for b in range(2):
        context = model.encode(SOURCE[b : b + 1])
        state = model.start(context)
        for t in range(T - 1):
            h, state = model.step(x[b : b + 1, t], state, context)
            if t + 1 < s:
                continue  # the reference comes next
            p = model.scores(h)[0].softmax(-1).tolist()
            i, j = sorted(range(V), key=lambda v: -p[v])[:2]
            expected = (p[i] * model.M_i.weight[i] + p[j] * model.M_i.weight[j]) / (p[i] + p[j])
            torch.testing.assert_close(x[b, t + 1], expected)


def test_one_best_is_the_embedding_of_the_argmax():
    model = translator()
    o = torch.randn(5, V, dtype=torch.double)

    torch.testing.assert_close(mixture(model, o, 1), model.M_i.weight[o.argmax(-1)])


@pytest.mark.parametrize("k", [V, V + 10])
def test_all_best_are_the_expected_embedding(k):
    model = translator()
    o = torch.randn(5, V, dtype=torch.double)

    torch.testing.assert_close(mixture(model, o, k), o.softmax(-1) @ model.M_i.weight)


def test_the_gradient_through_one_best_is_that_of_a_constant_weight():
    """v = 1 whatever the score: with k = 1 nothing reaches the scores through the input."""
    model = translator()
    o = torch.randn(5, V, dtype=torch.double, requires_grad=True)

    (gradient,) = torch.autograd.grad(mixture(model, o, 1).square().sum(), o)

    assert (gradient == 0).all()


def test_what_comes_after_eos_is_not_trained():
    """The first sentence ends at its second word: what is fed later matters to no gradient."""
    model = random(Recurrent(LSTMCell, NoEncoder(), V, H))
    short = Batch(torch.zeros(1, 0, dtype=torch.long), TARGET[:1], TARGET[:1].unsqueeze(1))
    cropped = Batch(short.source, TARGET[:1, :2], TARGET[:1, :2].unsqueeze(1))

    padded, exact = E2E([1], 2)(model, short, 0), E2E([1], 2)(model, cropped, 0)

    torch.testing.assert_close(padded.value, exact.value)
    for a, b in zip(gradients(model, padded), gradients(model, exact), strict=True):
        torch.testing.assert_close(a, b)


def test_s_follows_the_epoch():
    model = translator()
    scheduled = E2E([4, 2, 1], 2)

    for epoch, s in [(0, 4), (1, 2), (2, 1), (7, 1)]:
        torch.testing.assert_close(scheduled(model, BATCH, epoch).value, E2E([s], 2)(model, BATCH, 0).value)


def test_stages_say_s_and_k():
    e2e = E2E([15, 13], 5)

    assert e2e.stage(0) == Stage("E2E, reference fed for s = 15 steps, then 5-max", "e2e, s = 15", scheduled=15)
    assert e2e.stage(3) == Stage("E2E, reference fed for s = 13 steps, then 5-max", "e2e, s = 13", scheduled=13)
    assert e2e.reward is None


def test_by_default_s_falls_over_the_epochs_of_the_run_whatever_the_stages_of_mixer():
    def forced(epochs, **settings):
        settings = Config.parse({"algorithm": {"name": "e2e", "delta": 4, "mixed_epochs": 1, **settings}}).algorithm
        return E2E.of(settings, Parts(lambda rollout: rollout.words, H, 9, V, epochs)).forced

    assert forced(4, xent_epochs=0) == [7, 5, 3, 1]
    assert forced(6, xent_epochs=2) == [9, 9, 7, 5, 3, 1]
    assert forced(6, xent_epochs=2, annealing="stages") == [9, 9, 5, 1, 0]
