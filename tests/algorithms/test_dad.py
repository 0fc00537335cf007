import pytest
import torch
from torch import nn

from seqmixer.algorithms import Dad, Parts, Stage, Xent
from seqmixer.config import Config
from seqmixer.decoding import generate, greedy, sample, shift
from seqmixer.kernels import plain
from seqmixer.losses import cross_entropy, log_prob
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.types import BOS, EOS, PAD, Batch

V, H, T = 8, 4, 5
TARGET = torch.tensor([[3, EOS, PAD, PAD, PAD], [5, 4, 3, 6, EOS], [4, 4, 5, 3, 7]])
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD], [7, PAD, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1))


def translator():
    model = Recurrent(LSTMCell, AttentiveEncoder(9, H, positions=6, window=3), V, H).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


def many(n):
    """A batch of n times the same sentence."""
    target = TARGET[1:2].expand(n, -1)
    return Batch(SOURCE[1:2].expand(n, -1), target, target.unsqueeze(1))


class Spy:
    """`generate`, remembering what it was asked and what it answered."""

    def __call__(self, model, source, given, keep, choose):
        self.given, self.keep, self.choose = given, keep, choose
        self.words = generate(model, source, given, keep, choose)
        return self.words


def gradients(model, loss):
    return torch.autograd.grad(loss.value, list(model.parameters()))


def assert_same(model, one, other):
    torch.testing.assert_close(one.value, other.value)
    for a, b in zip(gradients(model, one), gradients(model, other), strict=True):
        torch.testing.assert_close(a, b)


def test_with_probability_one_dad_is_xent():
    model = translator()

    assert_same(model, Dad([1.0])(model, BATCH, 0), Xent()(model, BATCH, 0))


def test_with_probability_near_one_dad_goes_to_xent_through_the_coins():
    model, spy = translator(), Spy()

    loss = Dad([1 - 1e-12], generate=spy)(model, BATCH, 0)

    assert spy.keep.all()
    assert_same(model, loss, Xent()(model, BATCH, 0))


def test_there_is_a_coin_for_each_step_of_each_sentence():
    spy = Spy()

    Dad([0.3], generate=spy)(translator(), many(4000), 0)

    keep = spy.keep.double()  # (B, T)
    assert keep.shape == (4000, T)
    torch.testing.assert_close(keep.mean(0), torch.full((T,), 0.3, dtype=torch.double), atol=0.04, rtol=0)
    correlation = torch.corrcoef(keep.T) - torch.eye(T)
    assert (correlation.abs() < 0.08).all()  # a coin per sentence would give 1


def test_the_probability_follows_the_epoch_and_its_last_value_goes_on():
    spy = Spy()
    dad = Dad([1.0, 0.8, 0.2], generate=spy)
    model, batch = translator(), many(2000)

    for epoch, expected in [(1, 0.8), (2, 0.2), (9, 0.2)]:
        dad(model, batch, epoch)
        assert spy.keep.double().mean().item() == pytest.approx(expected, abs=0.03)


def test_the_reference_is_fed_where_the_coin_says_so_and_the_model_elsewhere():
    spy, model = Spy(), translator()

    Dad([0.5], choose=greedy, generate=spy)(model, BATCH, 0)

    assert torch.equal(spy.given, TARGET)
    assert torch.equal(spy.words[spy.keep], TARGET[spy.keep])
    assert not spy.keep.all()
    o = model.scores(model.unroll(shift(spy.words), model.encode(SOURCE)))
    o[..., EOS] = -torch.inf
    ended = (shift(spy.words) == EOS) | (shift(spy.words) == PAD)
    own = ~spy.keep & ~ended
    assert own.any()
    assert torch.equal(spy.words[own], o.argmax(-1)[own])


def test_the_target_is_always_the_reference():
    """Whatever was fed, the loss is Eq. 6 towards the reference; no gradient passes through the words fed."""
    model, spy = translator(), Spy()

    loss = Dad([0.25], generate=spy)(model, BATCH, 0)

    assert not torch.equal(spy.words, TARGET)
    o = model.scores(model.unroll(shift(spy.words), model.encode(SOURCE)))
    expected = cross_entropy(log_prob(o, TARGET), TARGET != PAD) / 3
    torch.testing.assert_close(loss.value, expected)
    expected_gradients = torch.autograd.grad(expected, list(model.parameters()))
    for a, b in zip(gradients(model, loss), expected_gradients, strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(loss.metrics["xent"], torch.tensor([3 * expected.item(), (TARGET != PAD).sum().item()]))


def test_the_target_after_eos_is_not_trained():
    model = translator()
    logits = model.scores
    pad = (TARGET == PAD).unsqueeze(-1)

    torch.manual_seed(3)
    expected = Dad([0.5])(model, BATCH, 0)
    before = gradients(model, expected)
    model.scores = lambda h: logits(h) + 50 * pad * torch.arange(V).remainder(3) if h.dim() == 3 else logits(h)
    torch.manual_seed(3)
    with plain():
        disturbed = Dad([0.5])(model, BATCH, 0)

    torch.testing.assert_close(disturbed.value, expected.value)
    for a, b in zip(gradients(model, disturbed), before, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("choose", [greedy, sample])
def test_the_eos_of_the_model_is_never_fed(choose):
    model, spy = translator(), Spy()
    model.M_o.bias.data[EOS] = 30.0  # the model would end at once

    Dad([0.0], choose=choose, generate=spy)(model, many(200), 0)

    assert not torch.isin(spy.words, torch.tensor([PAD, BOS, EOS])).any()


def test_with_probability_zero_and_greedy_choice_the_argmax_is_fed():
    model, spy = translator(), Spy()

    Dad([0.0], choose=greedy, generate=spy)(model, BATCH, 0)

    for b in range(3):
        context = model.encode(SOURCE[b : b + 1])
        state, word = model.start(context), BOS
        for t in range(T):
            h, state = model.step(model.embed(torch.tensor([word])), state, context)
            scores = model.scores(h)[0].tolist()
            word = max((v for v in range(V) if v != EOS), key=lambda v: scores[v])
            assert spy.words[b, t] == word


def test_with_sampling_the_first_word_fed_is_drawn_from_the_softmax_without_eos():
    model, spy, n = translator(), Spy(), 20_000

    Dad([0.0], generate=spy)(model, many(n), 0)  # sampling is the default

    context = model.encode(SOURCE[1:2])
    h, _ = model.step(model.embed(torch.tensor([BOS])), model.start(context), context)
    o = model.scores(h)[0].detach()
    o[EOS] = -torch.inf
    p = o.softmax(-1)
    frequency = torch.bincount(spy.words[:, 0], minlength=V) / n
    assert ((frequency - p).abs() <= 5 * (p * (1 - p) / n).sqrt() + 1e-9).all()
    assert ((p > 0.01) & (p < 0.99)).sum() > 1  # there was something to draw


def test_the_probability_is_logged():
    dad, model = Dad([1.0, 0.75]), translator()

    assert [dad(model, BATCH, epoch).metrics["truth"].tolist() for epoch in (0, 1, 5)] == [[1, 1], [0.75, 1], [0.75, 1]]


def test_the_stage_is_xent_as_long_as_only_the_reference_is_fed():
    dad = Dad([1.0, 0.75])

    assert dad.stage(0) == Stage("XENT", program="xent")
    assert dad.stage(5) == Stage("DAD, the model's own words fed more and more", "dad", scheduled=0.75)
    assert dad.reward is None


def test_by_default_the_probability_falls_over_the_epochs_of_the_run():
    settings = Config.parse({"algorithm": {"name": "dad", "xent_epochs": 1, "delta": 2, "mixed_epochs": 5}}).algorithm
    assert Dad.of(settings, Parts(lambda rollout: rollout.words, H, 30, V, epochs=5)).truth == [1, 1, 0.75, 0.5, 0.25]
