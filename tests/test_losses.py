import math

import pytest
import torch
from torch.nn import functional as F

from seqmixer.losses import baseline_error, cross_entropy, entropy, log_prob, policy_gradient

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


def test_baseline_error_is_the_squared_distance_to_the_reward():
    r_bar = torch.randn(B, T, dtype=torch.double, requires_grad=True)
    r = torch.randn(B, dtype=torch.double, requires_grad=True)

    error = baseline_error(r_bar, r, MASK)
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
        (baseline_error(r_bar, r, paid), r_bar, (r_bar[0] - 0.5).square().sum()),
        (baseline_error(broken(r_bar), r, paid), r_bar, (r_bar[0] - 0.5).square().sum()),
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
