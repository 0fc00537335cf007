import itertools

import pytest
import torch
from torch import nn

from seqmixer.algorithms import LinearBaseline, Reinforce, Stage, StepBaseline
from seqmixer.algorithms.baselines import NoBaseline
from seqmixer.config import TrainingConfig
from seqmixer.decoding import generate, sample, shift
from seqmixer.kernels import plain
from seqmixer.losses import log_prob
from seqmixer.models import AttentiveEncoder, ElmanCell, LSTMCell, Recurrent
from seqmixer.types import BOS, EOS, PAD, Batch

V, H, T = 6, 3, 3
TARGET = torch.tensor([[3, EOS, PAD], [5, 4, EOS]])
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1), meta=[{"source": "a"}, {"source": "b"}])
WRITTEN = torch.tensor([[4, EOS, PAD], [3, 5, 5]])  # a sentence that ends early, and one that is cut
R = torch.tensor([0.7, -0.2], dtype=torch.double)


def translator(cell=LSTMCell, dropout=0.0):
    return random(Recurrent(cell, AttentiveEncoder(9, H, positions=6, window=3), V, H, dropout=dropout))


def random(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def baselines():
    return [random(LinearBaseline(H)), random(StepBaseline(H, T)), NoBaseline()]


def writing(words):
    """A `generate` that writes these words."""
    return lambda model, source, given, keep, choose: words


def sentences():
    """Every finished sentence: words up to EOS and then PAD, or T words without EOS."""
    words = [v for v in range(V) if v not in (PAD, BOS, EOS)]
    ended = [[*start, EOS] + [PAD] * (T - n - 1) for n in range(T) for start in itertools.product(words, repeat=n)]
    return torch.tensor(ended + [list(cut) for cut in itertools.product(words, repeat=T)])


def probabilities(model, source, every):
    """p(w) of each sentence, with gradient; source (1, N)."""
    o = model.scores(model.unroll(shift(every), model.encode(source.expand(len(every), -1))))
    return (log_prob(o, every) * (every != PAD)).sum(-1).exp()


@pytest.mark.parametrize("which", [0, 1, 2], ids=["linear", "per step", "none"])
@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell])
def test_the_estimator_is_unbiased_over_every_sentence(cell, which):
    """Summed over all sentences, p(w) * gradient(w) is the gradient of -E[r] (Eq. 9), whatever the baseline."""
    model, baseline = translator(cell), baselines()[which]
    every = sentences()
    r = torch.rand(len(every), dtype=torch.double)
    source = SOURCE[1:]
    p = probabilities(model, source, every)
    parameters = list(model.parameters())

    estimated = [torch.zeros_like(parameter) for parameter in parameters]
    for i in range(len(every)):
        one = Batch(source, TARGET[1:], TARGET[1:].unsqueeze(1))
        algorithm = Reinforce(lambda rollout, i=i: r[i : i + 1], baseline, writing(every[i : i + 1]))
        for total, g in zip(estimated, torch.autograd.grad(algorithm(model, one, 0).value, parameters), strict=True):
            total += p[i].detach() * g

    assert p.sum().item() == pytest.approx(1)
    exact = torch.autograd.grad(-(p * r).sum(), parameters)
    for a, b in zip(estimated, exact, strict=True):
        torch.testing.assert_close(a, b)


def recorded(model, algorithm, batch=BATCH):
    """The loss, and the h and o it was made of."""
    logits, seen = model.scores, []
    model.scores = lambda h: seen.append((h, logits(h))) or seen[-1][1]
    with plain():
        loss = algorithm(model, batch, 0)
    model.scores = logits
    ((h, o),) = seen
    return loss, h, o


@pytest.mark.parametrize("which", [0, 1], ids=["linear", "per step"])
def test_the_gradient_at_each_step_is_equation_11(which):
    model, baseline = translator(), baselines()[which]

    loss, h, o = recorded(model, Reinforce(lambda rollout: R, baseline, writing(WRITTEN)))

    (gradient,) = torch.autograd.grad(loss.value, o)
    r_bar, p = baseline(h), o.softmax(-1)
    for b in range(2):
        for t in range(T):
            expected = (R[b] - r_bar[b, t]) * (p[b, t] - nn.functional.one_hot(WRITTEN[b, t], V)) / 2
            expected = expected if WRITTEN[b, t] != PAD else torch.zeros(V, dtype=torch.double)
            torch.testing.assert_close(gradient[b, t], expected.detach())
    assert (gradient[0, 2] == 0).all()  # the first sentence ended at its second word


def test_the_words_fed_are_those_written():
    model = translator()

    _, h, _ = recorded(model, Reinforce(lambda rollout: R, LinearBaseline(H).double(), writing(WRITTEN)))

    fed = torch.tensor([[BOS, 4, EOS], [BOS, 3, 5]])
    torch.testing.assert_close(h, model.unroll(fed, model.encode(SOURCE)))


def test_the_model_writes_every_word_itself_by_sampling():
    asked = {}

    def spy(model, source, given, keep, choose):
        asked.update(keep=keep, choose=choose, source=source)
        return generate(model, source, given, keep, choose)

    def reward(rollout):
        asked["rollout"] = rollout
        return R

    Reinforce(reward, LinearBaseline(H).double(), spy)(translator(), BATCH, 0)

    assert not asked["keep"].any()
    assert asked["choose"] is sample
    assert asked["source"] is SOURCE
    rollout = asked["rollout"]
    assert rollout.start == 0
    assert rollout.words.shape == (2, T)
    assert rollout.references is BATCH.references
    assert rollout.source is SOURCE
    assert rollout.meta is BATCH.meta


def losses_by_hand(model, baseline, words, r):
    o_h = model.unroll(shift(words), model.encode(SOURCE))
    o, r_bar, mask = model.scores(o_h), baseline(o_h.detach()), words != PAD
    policy = -(log_prob(o, words) * (r.unsqueeze(-1) - r_bar.detach()) * mask).sum() / 2
    error = ((r_bar - r.unsqueeze(-1)).square() * mask).sum() / 2
    return policy, error


@pytest.mark.parametrize("which", [0, 1], ids=["linear", "per step"])
def test_each_of_model_and_baseline_is_trained_by_its_own_loss_only(which):
    """No baseline gradient reaches the model (Sec. 3.2.1), and no policy gradient reaches the baseline."""
    model, baseline = translator(), baselines()[which]

    loss = Reinforce(lambda rollout: R, baseline, writing(WRITTEN))(model, BATCH, 0)

    policy, error = losses_by_hand(model, baseline, WRITTEN, R)
    torch.testing.assert_close(loss.value, policy + error)
    of_model, of_baseline = list(model.parameters()), list(baseline.parameters())
    got = torch.autograd.grad(loss.value, of_model + of_baseline)
    expected = torch.autograd.grad(policy, of_model) + torch.autograd.grad(error, of_baseline)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_the_gradient_of_the_baseline_is_that_of_linear_regression():
    model, baseline = translator(), random(LinearBaseline(H))

    loss, h, _ = recorded(model, Reinforce(lambda rollout: R, baseline, writing(WRITTEN)))
    of_weight, of_bias = torch.autograd.grad(loss.value, [baseline.weight, baseline.bias])

    weight, bias = torch.zeros(H, dtype=torch.double), 0.0
    for b, t in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]:  # nothing after EOS
        x = (h[b, t] / h[b, t].square().sum().sqrt()).detach()
        distance = (x @ baseline.weight + baseline.bias - R[b]).detach()
        weight += 2 * distance * x / 2
        bias += 2 * distance.item() / 2
    torch.testing.assert_close(of_weight, weight)
    assert of_bias.item() == pytest.approx(bias)


def test_a_reward_with_a_gradient_hands_none_on():
    model, learnt = translator(), torch.tensor([0.3, 0.4], dtype=torch.double, requires_grad=True)

    Reinforce(lambda rollout: learnt, random(LinearBaseline(H)), writing(WRITTEN))(model, BATCH, 0).value.backward()

    assert learnt.grad is None


def test_what_the_model_says_after_eos_is_neither_paid_nor_trained():
    model, baseline = translator(), random(LinearBaseline(H))
    algorithm = Reinforce(lambda rollout: R, baseline, writing(WRITTEN))
    parameters = [*model.parameters(), *baseline.parameters()]
    logits, unrolled = model.scores, model.unroll
    after = (WRITTEN == PAD).unsqueeze(-1)

    expected = algorithm(model, BATCH, 0)
    before = torch.autograd.grad(expected.value, parameters)
    model.unroll = lambda words, context: unrolled(words, context) * (1 + 7 * after)
    model.scores = lambda h: logits(h) + 50 * after * torch.arange(V).remainder(3)
    with plain():
        disturbed = algorithm(model, BATCH, 0)

    torch.testing.assert_close(disturbed.value, expected.value)
    torch.testing.assert_close(disturbed.metrics, expected.metrics)
    for a, b in zip(torch.autograd.grad(disturbed.value, parameters), before, strict=True):
        torch.testing.assert_close(a, b)


def test_a_reward_equal_to_the_baseline_teaches_the_model_nothing():
    model, baseline = translator(), LinearBaseline(H).double()  # 0.01 for every state

    loss = Reinforce(lambda rollout: torch.full((2,), 0.01).double(), baseline)(model, BATCH, 0)

    for gradient in torch.autograd.grad(loss.value, list(model.parameters())):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-8, rtol=0)


def test_words_are_sampled_without_dropout_and_scored_with_it():
    model, modes = translator(dropout=0.5).train(), {}
    unrolled = model.unroll

    def spy(network, source, given, keep, choose):
        def note(logits):
            modes.setdefault("sampling", set()).add(network.training)
            return choose(logits)

        return generate(network, source, given, keep, note)

    def unroll(words, context):
        modes["scoring"] = model.training
        return unrolled(words, context)

    model.unroll = unroll
    Reinforce(lambda rollout: R, LinearBaseline(H).double(), spy)(model, BATCH, 0)

    assert modes == {"sampling": {False}, "scoring": True}


def test_baselines_begin_at_0_01_as_released():
    h = torch.randn(2, T, H)

    for baseline in (LinearBaseline(H), StepBaseline(H, T)):
        torch.testing.assert_close(baseline(h), torch.full((2, T), 0.01))


def test_baselines_are_linear_in_the_direction_of_the_hidden_state():
    linear, per_step, _ = baselines()
    h = torch.randn(2, T, H, dtype=torch.double)

    for b, t in itertools.product(range(2), range(T)):
        x = h[b, t] / sum(h[b, t, d] ** 2 for d in range(H)) ** 0.5
        expected = sum(x[d] * linear.weight[d] for d in range(H)) + linear.bias
        torch.testing.assert_close(linear(h)[b, t], expected)
        expected = sum(x[d] * per_step.weight[t, d] for d in range(H)) + per_step.bias[t]
        torch.testing.assert_close(per_step(h)[b, t], expected)


def trained(baseline, optimiser, steps, h, r):
    """The loss of the baseline, of the algorithm's own making, on fixed features."""

    class Fixed(nn.Module):  # a model that always says h
        def encode(self, source):
            return ()

        def unroll(self, words, context):
            return h

        def log_prob(self, features, words):
            return torch.zeros(words.shape)

    words = torch.full(h.shape[:2], 4)
    batch = Batch(words[:, :0], words, words.unsqueeze(1))
    algorithm = Reinforce(lambda rollout: r, baseline, writing(words))
    for _ in range(steps):
        optimiser.zero_grad()
        algorithm(Fixed(), batch, 0).value.backward()
        optimiser.step()
    return baseline(h)


LARGE = torch.rand(16, 5, 256, generator=torch.Generator().manual_seed(2)) * 2  # |h|^2 is about 340
REWARDS = torch.rand(16, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("kind", [lambda: LinearBaseline(256), lambda: StepBaseline(256, 5)], ids=["linear", "step"])
def test_the_baseline_with_an_adam_of_its_own_converges_to_the_mean_reward(kind):
    baseline = kind()
    same = LARGE[:1].expand(16, -1, -1)  # one state for all rewards: the best prediction is their mean

    r_bar = trained(baseline, torch.optim.Adam(baseline.parameters(), lr=1e-3), 300, same, REWARDS)

    torch.testing.assert_close(r_bar, REWARDS.mean().expand(16, 5), atol=0.01, rtol=0)


@pytest.mark.parametrize("features", [16, 512])
def test_the_baseline_adds_little_to_the_variance_of_the_reward_whatever_the_size_of_the_state(features):
    """States with a large common part, such as the sigmoids of the released network; rewards that nothing predicts."""
    noise = torch.Generator().manual_seed(4)
    baseline, errors = LinearBaseline(features), []
    adam = torch.optim.Adam(baseline.parameters(), lr=TrainingConfig().baseline_lr)
    for _ in range(300):
        h = torch.randn(32, 5, features, generator=noise).sigmoid()
        r = torch.rand(32, generator=noise)
        errors.append((baseline(h).detach() - r.unsqueeze(-1)).square().mean().item())
        trained(baseline, adam, 1, h, r)
    assert sum(errors[100:]) / 200 < 1.1 / 12  # the variance of a uniform reward is 1 / 12


def test_every_epoch_is_the_same_stage():
    algorithm = Reinforce(lambda rollout: R, LinearBaseline(H))

    assert algorithm.stage(0) == algorithm.stage(9) == Stage("REINFORCE", program="REINFORCE", rewarded=True)


def test_the_parameters_of_the_algorithm_are_those_of_the_baseline():
    baseline = LinearBaseline(H)

    assert list(Reinforce(lambda rollout: R, baseline).parameters()) == list(baseline.parameters())


@pytest.mark.parametrize("baseline", [LinearBaseline(64), StepBaseline(64, 5)])
def test_what_is_expected_is_never_computed_in_a_short_type(baseline):
    with torch.no_grad():
        baseline.weight.normal_()
    h = torch.randn(3, 5, 64)
    with torch.autocast("cpu", torch.bfloat16):
        short = baseline(h)
    torch.testing.assert_close(short, baseline(h), rtol=0, atol=0)
