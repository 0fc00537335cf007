import math

import pytest
import torch
from torch.nn import functional as F

from seqmixer.losses import (
    baseline_error,
    clipped_ratio,
    cross_entropy,
    differences,
    entropy,
    log_prob,
    policy_gradient,
    sentence_ratio,
)

B, T, V = 2, 4, 5
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)


@pytest.fixture
def o():
    return torch.randn(B, T, V, dtype=torch.double, requires_grad=True)


@pytest.fixture
def words():
    return torch.randint(V, (B, T))


def probability(o, b, t, v):
    """Softmax in plain Python (the paper, below Eq. 5)."""
    row = [math.exp(x) for x in o[b, t].tolist()]
    return row[v] / sum(row)


def each_step():
    return [(b, t) for b in range(B) for t in range(T)]


def test_log_prob_is_the_log_of_the_softmax_of_equation_5(o, words):
    got = log_prob(o, words)

    assert got.shape == (B, T)
    for b, t in each_step():
        assert got[b, t].item() == pytest.approx(math.log(probability(o, b, t, words[b, t])))


@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
def test_log_prob_of_short_logits_is_taken_in_single_precision(o, words, short):
    brief = o.detach().to(short)

    got = log_prob(brief, words)

    assert got.dtype is torch.float32
    torch.testing.assert_close(got.double(), log_prob(brief.double(), words), rtol=1e-6, atol=1e-6)


def test_cross_entropy_is_the_sum_of_equation_6(o, words):
    expected = -sum(math.log(probability(o, b, t, words[b, t])) for b, t in each_step() if MASK[b, t])

    assert cross_entropy(log_prob(o, words), MASK).item() == pytest.approx(expected)
    torch.testing.assert_close(
        cross_entropy(log_prob(o, words), MASK), F.cross_entropy(o[MASK], words[MASK], reduction="sum")
    )


def test_the_gradient_of_cross_entropy_is_prediction_minus_target(o, words):
    cross_entropy(log_prob(o, words), MASK).backward()

    expected = MASK.unsqueeze(-1) * (o.detach().softmax(-1) - F.one_hot(words, V))
    torch.testing.assert_close(o.grad, expected)


def test_the_gradient_of_policy_gradient_is_equation_11_term_by_term(o, words):
    r = torch.randn(B, dtype=torch.double)
    r_bar = torch.randn(B, T, dtype=torch.double)

    policy_gradient(log_prob(o, words), r.unsqueeze(-1) - r_bar, MASK).backward()

    for b, t in each_step():
        for v in range(V):
            chosen = 1.0 if words[b, t] == v else 0.0
            expected = (r[b] - r_bar[b, t]).item() * (probability(o, b, t, v) - chosen) if MASK[b, t] else 0.0
            assert o.grad[b, t, v].item() == pytest.approx(expected), (b, t, v)


def test_an_advantage_of_one_makes_policy_gradient_cross_entropy(o, words):
    ones = torch.ones(B, T, dtype=torch.double)

    torch.testing.assert_close(policy_gradient(log_prob(o, words), ones, MASK), cross_entropy(log_prob(o, words), MASK))


def test_the_advantage_is_a_constant(o, words):
    advantage = torch.randn(B, T, dtype=torch.double, requires_grad=True)

    policy_gradient(log_prob(o, words), advantage, MASK).backward()

    assert advantage.grad is None


def test_policy_gradient_is_unbiased_over_every_sequence_of_independent_steps():
    """Summed over all V^T sequences, p(w) * estimator(w) is the gradient of -E[r] (Eq. 9), whatever the baseline."""
    o = torch.randn(1, 3, 4, dtype=torch.double, requires_grad=True)
    every = torch.cartesian_prod(*[torch.arange(4)] * 3)  # (V^T, T)
    r = torch.rand(len(every), dtype=torch.double)
    r_bar = torch.randn(3, dtype=torch.double)  # by step
    mask = torch.ones_like(every, dtype=torch.bool)
    all_o = o.expand(len(every), -1, -1)

    p = log_prob(all_o, every).sum(-1).exp()
    (exact,) = torch.autograd.grad(-(p * r).sum(), o, retain_graph=True)
    weighted = p.detach().unsqueeze(-1) * (r.unsqueeze(-1) - r_bar)
    (estimated,) = torch.autograd.grad(policy_gradient(log_prob(all_o, every), weighted, mask), o)

    assert p.sum().item() == pytest.approx(1)
    torch.testing.assert_close(estimated, exact)


@pytest.mark.parametrize("loss", ["cross_entropy", "policy_gradient"])
def test_logits_where_the_mask_is_false_change_neither_value_nor_gradient(o, words, loss):
    advantage = torch.randn(B, T, dtype=torch.double)

    def value(logits):
        if loss == "cross_entropy":
            return cross_entropy(log_prob(logits, words), MASK)
        return policy_gradient(log_prob(logits, words), advantage, MASK)

    garbage = torch.where(MASK.unsqueeze(-1), o, 1000 * torch.randn(B, T, V)).detach().requires_grad_()
    (expected,) = torch.autograd.grad(value(o), o)
    (got,) = torch.autograd.grad(value(garbage), garbage)

    torch.testing.assert_close(value(garbage), value(o))
    torch.testing.assert_close(got, expected)
    assert (got[~MASK] == 0).all()


def ratios():
    """log ratios on both sides of the band and far inside, advantages of both signs."""
    log_ratio = torch.tensor([[0.5, -0.5, 0.05, 9.0], [-0.4, 0.3, -0.02, 0.6]], dtype=torch.double, requires_grad=True)
    return log_ratio, torch.tensor([[1.0, 2.0, -0.5, 3.0], [-1.0, -0.7, 0.4, 0.2]], dtype=torch.double)


def test_the_clipped_ratio_is_the_smaller_of_both_products_on_every_word():
    log_ratio, advantage = ratios()

    got = clipped_ratio(log_ratio, advantage, MASK, low=0.2, high=0.3)
    (gradient,) = torch.autograd.grad(got.sum(), log_ratio)

    for b, t in each_step():
        rho, a = math.exp(log_ratio[b, t].item()), advantage[b, t].item()
        held = min(max(rho, 0.8), 1.3)
        expected = -min(rho * a, held * a) if MASK[b, t] else 0.0
        assert got[b, t].item() == pytest.approx(expected)
        teaches = MASK[b, t] and (rho <= 1.3 if a > 0 else rho >= 0.8)
        assert gradient[b, t].item() == pytest.approx(-rho * a if teaches else 0.0)


def test_the_clipped_ratio_at_1_has_the_gradient_of_the_policy_gradient(o, words):
    advantage, log_p = torch.randn(B, T, dtype=torch.double), log_prob(o, words)

    got = clipped_ratio(log_p - log_p.detach(), advantage, MASK, low=0.2, high=0.2).sum()

    (gradient,) = torch.autograd.grad(got, o, retain_graph=True)
    torch.testing.assert_close(gradient, torch.autograd.grad(policy_gradient(log_p, advantage, MASK), o)[0])


def test_the_ratio_of_a_sentence_is_the_geometric_mean_and_hands_its_gradient_to_every_word():
    """GSPO's loss written out: one clipped ratio of the sentence. Here it is a mean over words that share it."""
    log_ratio, _ = ratios()
    log_ratio = (0.2 * log_ratio).detach().requires_grad_()
    n = MASK.sum(-1)

    got = sentence_ratio(log_ratio, MASK)
    for b in range(B):
        mean = math.prod(math.exp(log_ratio[b, t].item()) for t in range(T) if MASK[b, t]) ** (1 / n[b].item())
        assert got[b].exp().tolist() == pytest.approx([mean] * T)

    for advantage in (torch.tensor([[1.5], [-0.5]]).double(), torch.tensor([[-1.5], [0.5]]).double()):
        s = ((log_ratio * MASK).sum(-1) / n).exp()  # (B,)
        a = advantage.squeeze(-1)
        direct = -torch.minimum(s * a, s.clamp(0.8, 1.01) * a).sum()
        ours = clipped_ratio(sentence_ratio(log_ratio, MASK), advantage.expand(B, T), MASK, low=0.2, high=0.01)
        ours = (ours.sum(-1) / n).sum()
        assert ours.item() == pytest.approx(direct.item())
        torch.testing.assert_close(*(torch.autograd.grad(each, log_ratio)[0] for each in (ours, direct)))


@pytest.mark.parametrize("trace", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("width", [1, T], ids=["at the end", "word by word"])
def test_temporal_differences_are_those_of_the_definition(trace, width):
    to_go, value = torch.randn(B, width, dtype=torch.double), torch.randn(B, T, dtype=torch.double)

    got = differences(to_go, value, MASK, trace)

    for b in range(B):
        rest = [to_go[b, min(t, width - 1)].item() if MASK[b, t] else 0.0 for t in range(T)] + [0.0]
        v = [value[b, t].item() if MASK[b, t] else 0.0 for t in range(T)] + [0.0]
        advantage = 0.0
        for t in reversed(range(T)):
            reward = rest[t] - rest[t + 1]  # of this word; all of it at the last where it comes at the end
            advantage = reward + v[t + 1] - v[t] + trace * advantage
            assert got[b, t].item() == pytest.approx(advantage if MASK[b, t] else 0.0)
    if trace == 1:
        torch.testing.assert_close(got, (to_go - value) * MASK)


def test_baseline_error_is_the_squared_distance_to_the_reward():
    r_bar = torch.randn(B, T, dtype=torch.double, requires_grad=True)
    r = torch.randn(B, dtype=torch.double, requires_grad=True)

    error = baseline_error(r_bar, r.unsqueeze(-1), MASK)
    error.backward()

    expected = sum((r_bar[b, t] - r[b]).item() ** 2 for b, t in each_step() if MASK[b, t])
    assert error.item() == pytest.approx(expected)
    torch.testing.assert_close(r_bar.grad, 2 * (r_bar - r.unsqueeze(-1)).detach() * MASK)
    assert r.grad is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_number_where_the_mask_is_false_reaches_neither_value_nor_gradient(bad):
    log_p, advantage, r_bar = (torch.randn(B, T, dtype=torch.double, requires_grad=True) for _ in range(3))
    paid, r = torch.tensor([[True], [False]]).expand(B, T), torch.tensor([0.5, bad], dtype=torch.double)

    def broken(values):
        return torch.where(paid, values, bad)

    for loss, leaf, expected in [
        (cross_entropy(broken(log_p), paid), log_p, -log_p[0].sum()),
        (policy_gradient(broken(log_p), advantage, paid), log_p, -(log_p[0] * advantage[0].detach()).sum()),
        (policy_gradient(log_p, broken(advantage), paid), log_p, -(log_p[0] * advantage[0].detach()).sum()),
        (baseline_error(r_bar, r.unsqueeze(-1), paid), r_bar, (r_bar[0] - 0.5).square().sum()),
        (baseline_error(broken(r_bar), r.unsqueeze(-1), paid), r_bar, (r_bar[0] - 0.5).square().sum()),
    ]:
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(torch.autograd.grad(loss, leaf), torch.autograd.grad(expected, leaf))


def test_entropy_is_in_nats_and_takes_impossible_words():
    assert entropy(torch.zeros(V)).item() == pytest.approx(math.log(V))
    assert entropy(torch.tensor([0.0, -1e4, -1e4])).item() == 0
    assert entropy(torch.tensor([3.0, 3.0, -1e4])).item() == pytest.approx(math.log(2))
    p = [0.5, 0.3, 0.2]
    expected = -sum(x * math.log(x) for x in p)
    assert entropy(torch.tensor([p]).log() + 7).item() == pytest.approx(expected)
