import itertools

import pytest
import torch
from torch import nn

from seqmixer.algorithms import LinearBaseline, Mixer, Reinforce, Stage, Xent
from seqmixer.decoding import generate, sample, shift
from seqmixer.kernels import plain
from seqmixer.losses import log_prob
from seqmixer.models import AttentiveEncoder, ElmanCell, LSTMCell, Recurrent
from seqmixer.schedules import forced_words
from seqmixer.types import BOS, EOS, PAD, Batch

V, H, T = 6, 3, 4
TARGET = torch.tensor([[3, EOS, PAD, PAD], [5, 4, 3, EOS], [4, 4, 5, 3]])
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD], [7, PAD, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1), meta=[{"source": "a"}, {"source": "b"}, {"source": "c"}])
R = torch.tensor([0.7, -0.2, 0.4], dtype=torch.double)


def translator(cell=LSTMCell):
    return random(Recurrent(cell, AttentiveEncoder(9, H, positions=6, window=3), V, H))


def random(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def writing(words):
    """A `generate` that writes these words."""
    return lambda model, source, given, keep, choose: words


class Spy:
    """`generate` and reward, remembering what they were asked and what was written."""

    def generate(self, model, source, given, keep, choose):
        self.given, self.keep, self.choose = given, keep, choose
        self.words = generate(model, source, given, keep, choose)
        return self.words

    def reward(self, rollout):
        self.rollout = rollout
        return R


def gradients(loss, *modules):
    return torch.autograd.grad(loss.value, [p for module in modules for p in module.parameters()])


def assert_all_close(some, others):
    for a, b in zip(some, others, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("s", [T, T + 2])
@pytest.mark.parametrize("overlap", [False, True])
def test_with_all_words_forced_mixer_is_xent(s, overlap):
    model = translator()
    mixer = Mixer(lambda rollout: R, random(LinearBaseline(H)), T, [s], overlap=overlap)

    got, expected = mixer(model, BATCH, 0), Xent()(model, BATCH, 0)

    torch.testing.assert_close(got.value, expected.value)
    torch.testing.assert_close(got.metrics, expected.metrics)
    assert_all_close(gradients(got, model), gradients(expected, model))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell])
def test_with_no_word_forced_mixer_is_reinforce(cell, overlap):
    model, baseline = translator(cell), random(LinearBaseline(H))

    def reward(rollout):
        assert rollout.start == 0
        return rollout.words.double().mean(-1)

    torch.manual_seed(5)
    got = Mixer(reward, baseline, T, [0], reinforce_weight=1.0, overlap=overlap)(model, BATCH, 0)
    torch.manual_seed(5)
    expected = Reinforce(reward, baseline)(model, BATCH, 0)

    torch.testing.assert_close(got.value, expected.value)
    torch.testing.assert_close(got.metrics, expected.metrics)
    assert_all_close(gradients(got, model, baseline), gradients(expected, model, baseline))


@pytest.mark.parametrize("s", [0, 1, 2, 3])
def test_exactly_the_first_s_words_are_given(s):
    spy, model = Spy(), translator()

    Mixer(spy.reward, LinearBaseline(H).double(), T, [s], generate=spy.generate)(model, BATCH, 0)

    assert spy.keep.tolist() == [[t < s for t in range(T)]] * 3
    assert spy.given is TARGET
    assert spy.choose is sample
    assert torch.equal(spy.words[:, :s], TARGET[:, :s])
    assert spy.rollout.start == s
    assert torch.equal(spy.rollout.words, spy.words)
    assert spy.rollout.references is BATCH.references
    assert spy.rollout.source is SOURCE
    assert spy.rollout.meta is BATCH.meta


def test_the_word_after_the_first_s_is_drawn_from_the_model():
    n, spy, model = 20_000, Spy(), translator()
    target = TARGET[2:].expand(n, -1)
    batch = Batch(SOURCE[2:].expand(n, -1), target, target.unsqueeze(1))

    Mixer(lambda rollout: torch.zeros(n).double(), LinearBaseline(H).double(), T, [2], generate=spy.generate)(
        model, batch, 0
    )

    h = model.unroll(torch.tensor([[BOS, 4, 4]]), model.encode(SOURCE[2:]))[:, -1]
    p = model.scores(h)[0].softmax(-1).detach()
    frequency = torch.bincount(spy.words[:, 2], minlength=V) / n
    assert ((frequency - p).abs() <= 5 * (p * (1 - p) / n).sqrt() + 1e-9).all()
    assert ((p > 0.01) & (p < 0.99)).sum() > 1  # there was something to draw


def recorded(model, algorithm):
    """The loss, the h it was made of, and the o: of the words written, and with overlap of the target too."""
    logits, seen = model.scores, []
    model.scores = lambda h: seen.append((h, logits(h))) or seen[-1][1]
    with plain():
        loss = algorithm(model, BATCH, 0)
    model.scores = logits
    return loss, seen[0][0], [o for _, o in seen]


# For s = 2: the first sentence ended among the given words, the second ends early, the third is cut.
SPLIT = torch.tensor([[3, EOS, PAD, PAD], [5, 4, EOS, PAD], [4, 4, 3, 5]])
# The same with word 2 sampled: the first goes on, the second ends at once.
OVERLAPPED = torch.tensor([[3, 4, EOS, PAD], [5, EOS, PAD, PAD], [4, 5, 3, 5]])


@pytest.mark.parametrize("weights", [(0.5, 0.5), (1.0, 1.0), (0.1, 2.0)])
@pytest.mark.parametrize(("overlap", "words", "start"), [(False, SPLIT, 2), (True, OVERLAPPED, 1)])
def test_each_step_has_the_gradient_of_its_own_loss(overlap, words, start, weights):
    """XENT's p - 1(w) on steps 1..s, Eq. 11 on the rest; with overlap both at step s; each with its weight."""
    s, model, baseline = 2, translator(), random(LinearBaseline(H))
    mixer = Mixer(
        lambda rollout: R,
        baseline,
        T,
        [s],
        xent_weight=weights[0],
        reinforce_weight=weights[1],
        overlap=overlap,
        generate=writing(words),
    )

    loss, h, o = recorded(model, mixer)

    gradient = sum(torch.autograd.grad(loss.value, o))
    p, r_bar = o[0].softmax(-1).detach(), baseline(h).detach()
    for b, t in itertools.product(range(3), range(T)):
        expected = torch.zeros(V, dtype=torch.double)
        if t < s and TARGET[b, t] != PAD:
            expected += weights[0] * (p[b, t] - nn.functional.one_hot(TARGET[b, t], V))
        if t >= start and words[b, t] != PAD:
            expected += weights[1] * (R[b] - r_bar[b, t]) * (p[b, t] - nn.functional.one_hot(words[b, t], V))
        torch.testing.assert_close(gradient[b, t], expected / 3, msg=f"sentence {b}, step {t}")


def test_the_weights_of_the_mixed_stages_are_a_half_each_as_released():
    mixer = Mixer(lambda rollout: R, LinearBaseline(H), T, [2])

    assert (mixer.prefix.xent_weight, mixer.prefix.weight, mixer.prefix.overlap) == (0.5, 0.5, False)


def weighted(baseline, xent_weight, reinforce_weight):
    """MIXER with s = 2 and these weights, which writes SPLIT."""
    weights = {"xent_weight": xent_weight, "reinforce_weight": reinforce_weight}
    return Mixer(lambda rollout: R, baseline, T, [2], **weights, generate=writing(SPLIT))


def test_the_loss_is_the_weighted_sum_and_the_baseline_has_no_weight():
    model, baseline = translator(), random(LinearBaseline(H))

    def value(xent_weight, reinforce_weight):
        mixer = weighted(baseline, xent_weight, reinforce_weight)
        return mixer(model, BATCH, 0).value

    h = model.unroll(shift(SPLIT), model.encode(SOURCE))
    log_p, r_bar = log_prob(model.scores(h), SPLIT), baseline(h)
    xent = -log_p[:, :2].sum() / 3
    advantage = R.unsqueeze(-1) - r_bar
    free = (SPLIT != PAD) & (torch.arange(T) >= 2)
    reinforce = -(log_p * advantage * free).sum() / 3
    error = (advantage.square() * free).sum() / 3
    torch.testing.assert_close(value(0.0, 0.0), error)
    torch.testing.assert_close(value(1.0, 0.0), xent + error)
    torch.testing.assert_close(value(0.0, 1.0), reinforce + error)
    torch.testing.assert_close(value(0.3, 0.6), 0.3 * xent + 0.6 * reinforce + error)


def continuations(given):
    """Every finished sentence that begins with the words `given`, none of them EOS."""
    words, rest = [v for v in range(V) if v not in (PAD, BOS, EOS)], T - len(given)
    ended = [
        [*given, *more, EOS] + [PAD] * (rest - n - 1)
        for n in range(rest)
        for more in itertools.product(words, repeat=n)
    ]
    return torch.tensor(ended + [[*given, *cut] for cut in itertools.product(words, repeat=rest)])


@pytest.mark.parametrize(("s", "overlap"), [(1, False), (2, False), (2, True), (3, True)])
def test_the_estimator_is_unbiased_over_every_continuation(s, overlap):
    """Summed over them, p(w) * gradient(w) is that of 0.5 XENT on the first s words - 0.5 E[r | words given]."""
    model, baseline = translator(ElmanCell), random(LinearBaseline(H))
    source, target = SOURCE[2:], TARGET[2:]
    one = Batch(source, target, target.unsqueeze(1))
    start = s - 1 if overlap else s
    every = continuations(target[0, :start].tolist())
    r = torch.rand(len(every), dtype=torch.double)
    parameters = list(model.parameters())

    o = model.scores(model.unroll(shift(every), model.encode(source.expand(len(every), -1))))
    log_p = log_prob(o, every) * (every != PAD)
    p = log_p[:, start:].sum(-1).exp()
    reference = model.scores(model.unroll(shift(target), model.encode(source)))
    xent = -log_prob(reference, target)[0, :s].sum()
    exact = torch.autograd.grad(0.5 * xent - 0.5 * (p * r).sum(), parameters)

    estimated = [torch.zeros_like(parameter) for parameter in parameters]
    for i in range(len(every)):
        mixer = Mixer(
            lambda rollout, i=i: r[i : i + 1], baseline, T, [s], overlap=overlap, generate=writing(every[i : i + 1])
        )
        for total, g in zip(estimated, gradients(mixer(model, one, 0), model), strict=True):
            total += p[i].detach() * g

    assert p.sum().item() == pytest.approx(1)
    assert_all_close(estimated, exact)


@pytest.mark.parametrize("s", [1, 2, 3])
def test_with_overlap_word_s_is_sampled(s):
    spy = Spy()

    Mixer(spy.reward, LinearBaseline(H).double(), T, [s], overlap=True, generate=spy.generate)(translator(), BATCH, 0)

    assert spy.keep.tolist() == [[t < s - 1 for t in range(T)]] * 3
    assert spy.rollout.start == s - 1


@pytest.mark.parametrize("s", [2, 3])
def test_a_sentence_that_ended_among_the_given_words_is_not_paid(s):
    spy, model, baseline = Spy(), translator(), random(LinearBaseline(H))
    short = Batch(SOURCE[:1], TARGET[:1], TARGET[:1].unsqueeze(1))

    def loss(reward):
        return Mixer(lambda rollout: reward, baseline, T, [s], generate=spy.generate)(model, short, 0)

    poor, rich = (loss(torch.tensor([r], dtype=torch.double)) for r in (-5.0, 5.0))

    assert torch.equal(spy.words, TARGET[:1])
    torch.testing.assert_close(poor.value, rich.value)
    torch.testing.assert_close(poor.value, 0.5 * Xent()(model, short, 0).value)
    of_poor, of_rich = gradients(poor, model, baseline), gradients(rich, model, baseline)
    assert_all_close(of_poor, of_rich)
    assert all((g == 0).all() for g in of_rich[-2:])  # the two parameters of the baseline


def test_what_the_model_says_after_eos_is_neither_paid_nor_trained():
    model, baseline = translator(), random(LinearBaseline(H))
    mixer = Mixer(lambda rollout: R, baseline, T, [2], generate=writing(SPLIT))
    logits, unrolled = model.scores, model.unroll
    after = (SPLIT == PAD).unsqueeze(-1)

    expected = mixer(model, BATCH, 0)
    before = gradients(expected, model, baseline)
    model.unroll = lambda words, context: unrolled(words, context) * (1 + 7 * after)
    model.scores = lambda h: logits(h) + 50 * after * torch.arange(V).remainder(3)
    with plain():
        disturbed = mixer(model, BATCH, 0)

    torch.testing.assert_close(disturbed.value, expected.value)
    torch.testing.assert_close(disturbed.metrics, expected.metrics)
    assert_all_close(gradients(disturbed, model, baseline), before)


def test_each_of_model_and_baseline_is_trained_by_its_own_loss_only():
    model, baseline = translator(), random(LinearBaseline(H))

    def mixed(xent_weight, reinforce_weight):
        mixer = weighted(baseline, xent_weight, reinforce_weight)
        return mixer(model, BATCH, 0)

    assert all((g == 0).all() for g in gradients(mixed(0.0, 0.0), model))  # what is left is the baseline's error
    assert_all_close(gradients(mixed(1.0, 1.0), baseline), gradients(mixed(0.0, 0.0), baseline))


def test_s_follows_the_epoch_and_the_last_stage_goes_on():
    spy = Spy()
    mixer = Mixer(spy.reward, LinearBaseline(H).double(), T, forced_words(T, 2, 1, 2), generate=spy.generate)

    for epoch in (1, 2, 3, 50):
        mixer(translator(), BATCH, epoch)
        assert spy.rollout.start == 2
    assert [mixer.stage(epoch).rewarded for epoch in range(4)] == [False, True, True, True]


def test_stages_say_s():
    mixer = Mixer(lambda rollout: R, LinearBaseline(H), 15, [15, 13, 0])

    assert mixer.stage(0) == Stage("XENT", program="xent")
    assert mixer.stage(1) == Stage(
        "MIXER, XENT on the first s = 13 words, REINFORCE on the rest", "MIXER", scheduled=13, rewarded=True
    )
    assert mixer.stage(9) == Stage(
        "MIXER, XENT on the first s = 0 words, REINFORCE on the rest", "MIXER", scheduled=0, rewarded=True
    )
