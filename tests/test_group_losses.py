"""Losses of candidates against one another: the formulas in plain Python, finite differences, limits, ties."""

import math
from functools import partial
from itertools import combinations

import pytest
import torch

from seqmixer.losses import (
    best_of_n,
    contrastive_preference,
    expected_risk,
    max_margin,
    preference,
    ranking,
    sequence_nll,
    softmax_margin,
)

S = torch.tensor([[-2.0, -1.0, -3.5, -1.5], [-0.5, -4.0, -2.5, -1.0]], dtype=torch.double)  # (B, k) log p
R = torch.tensor([[0.3, 0.9, 0.1, 0.4], [0.2, 0.6, 0.8, 0.0]], dtype=torch.double)
ALL = torch.ones(2, 4, dtype=torch.bool)
LOSSES = {
    "risk": partial(expected_risk, alpha=0.7),
    "sequence NLL": sequence_nll,
    "max-margin": partial(max_margin, margin=2.0),
    "softmax-margin": partial(softmax_margin, margin=2.0),
    "ranking": partial(ranking, rank_margin=0.8),
    "preference": partial(preference, beta=0.7),
    "contrastive preference": partial(contrastive_preference, beta=0.7),
    "best of n": best_of_n,
}


def gradient(loss, s, *given):
    s = s.clone().requires_grad_()
    return torch.autograd.grad(loss(s, *given).sum(), s)[0]


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite_differences(name):
    s = S.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: LOSSES[name](s, R, ALL), s)
    assert gradient(LOSSES[name], S, R, ALL).abs().max() > 0.01


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reward", [0.9, 0.8, 0.5, 0.0])
def test_a_candidate_that_does_not_count_changes_nothing(name, reward):
    """Whether its reward is the highest, the lowest or another's."""
    loss, mask = LOSSES[name], torch.tensor([[True, True, False, True], [True, False, True, True]])
    r = R.masked_fill(~mask, reward)
    for b, kept in enumerate([[0, 1, 3], [0, 2, 3]]):
        expected = loss(S[b : b + 1, kept], R[b : b + 1, kept], ALL[:1, :3])
        torch.testing.assert_close(loss(S, r, mask)[b], expected[0])
    assert (gradient(loss, S, r, mask)[~mask] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_is_learnt_from_equal_rewards_or_from_a_single_candidate(name):
    single = torch.tensor([[True, False, False, False]] * 2)
    for r, mask in ((torch.full_like(R, 0.4), ALL), (R, single)):
        torch.testing.assert_close(gradient(LOSSES[name], S, r, mask), torch.zeros_like(S))


@pytest.mark.parametrize("name", LOSSES)
def test_the_order_of_candidates_does_not_matter_also_among_equal_rewards(name):
    r, order = R.clone(), torch.tensor([2, 0, 3, 1])
    r[:, 3] = r[:, 1] = r.amax(-1)
    torch.testing.assert_close(LOSSES[name](S, r, ALL), LOSSES[name](S[:, order], r[:, order], ALL))
    torch.testing.assert_close(
        gradient(LOSSES[name], S, r, ALL)[:, order], gradient(LOSSES[name], S[:, order], r[:, order], ALL)
    )


@pytest.mark.parametrize("name", LOSSES)
def test_sentences_that_are_all_but_impossible_leave_the_gradient_finite(name):
    assert (
        gradient(LOSSES[name], torch.tensor([[-1e4, -3.0, -1e4], [-1e4, -1e4, -1e4]]), R[:, :3], ALL[:, :3])
        .isfinite()
        .all()
    )


@pytest.mark.parametrize("alpha", [0.005, 1.0, 3.0])
def test_the_risk_is_that_of_the_definition(alpha):
    for s, r, found in zip(S.tolist(), R.tolist(), expected_risk(S, R, ALL, alpha).tolist(), strict=True):
        powers = [math.exp(x) ** alpha for x in s]
        risk = sum(p * (1 - x) for p, x in zip(powers, r, strict=True)) / sum(powers)  # with cost 1 - r
        constant = 1 - sum(r) / 4
        assert found == pytest.approx((risk - constant) / alpha)


def test_the_risk_as_alpha_falls_to_0_and_rises_without_end():
    even = gradient(lambda s: expected_risk(s, R, ALL, 1e-8), S)
    torch.testing.assert_close(even, -(R - R.mean(-1, keepdim=True)) / 4, rtol=1e-6, atol=1e-9)
    likeliest = R[torch.arange(2), S.argmax(-1)]
    torch.testing.assert_close(1e4 * expected_risk(S, R, ALL, 1e4), R.mean(-1) - likeliest)


def lists():
    return zip(S.tolist(), R.tolist(), strict=True)


def test_the_losses_are_those_of_the_papers():
    """In plain Python, candidates sorted by reward as the papers have them."""
    margin, beta = 2.0, 0.7
    for b, (s, r) in enumerate(lists()):
        order = sorted(range(4), key=lambda i: -r[i])
        best, worst = order[0], order[-1]
        all_of_them = math.log(sum(math.exp(x) for x in s))
        augmented = math.log(sum(math.exp(x + margin * (1 - y)) for x, y in zip(s, r, strict=True)))
        expected = {
            "sequence NLL": -s[best] + all_of_them,
            "softmax-margin": -s[best] + augmented - margin * (1 - r[best]),
            "max-margin": max(x + margin * (r[best] - y) for x, y in zip(s, r, strict=True)) - s[best],
            "ranking": sum(
                max(0, s[order[j]] - s[order[i]] + 0.8 * (j - i)) for i, j in combinations(range(4), 2)
            ) / 6,
            "preference": -math.log(1 / (1 + math.exp(-beta * (s[best] - s[worst])))) / beta,
            "contrastive preference": -math.log(1 / (1 + math.exp(-beta * (s[best] - s[worst])))) - s[best],
            "best of n": -s[best],
        }  # fmt: skip
        for name, value in expected.items():
            assert LOSSES[name](S, R, ALL)[b].item() == pytest.approx(value), name


def test_candidates_that_share_the_highest_reward_are_best_together():
    r = torch.tensor([[0.9, 0.9, 0.1, 0.4]], dtype=torch.double)
    s, mask = S[:1], ALL[:1]
    p = s[0].exp()
    assert sequence_nll(s, r, mask).item() == pytest.approx(-math.log((p[0] + p[1]) / p.sum()))
    assert max_margin(s, r, mask, 1.0).item() == 0  # one of them is ahead of all by the margin
    assert best_of_n(s, r, mask).item() == pytest.approx(1.5)
    assert preference(s, r, mask, 1e-9).item() * 1e-9 == pytest.approx(math.log(2))
    difference = -1.5 - -3.5
    assert preference(s, r, mask, 0.5).item() == pytest.approx(2 * math.log(1 + math.exp(-0.5 * difference)))


def test_ranks_count_the_candidates_that_are_better():
    """Two share the second reward: the last one is two ranks below them, and they are not compared."""
    s = torch.zeros(1, 4, dtype=torch.double)
    r = torch.tensor([[0.5, 0.9, 0.5, 0.1]], dtype=torch.double)
    assert ranking(s, r, ALL[:1], 1.0).item() == pytest.approx((1 + 1 + 3 + 2 + 2) / 5)


def test_without_a_margin_the_soft_maximum_is_sequence_nll_and_a_sharp_one_is_the_maximum():
    torch.testing.assert_close(softmax_margin(S, R, ALL, 0.0), sequence_nll(S, R, ALL))
    sharp = 1e-4 * softmax_margin(1e4 * S, R, ALL, 1e4 * 2.0)
    torch.testing.assert_close(sharp, max_margin(S, R, ALL, 2.0), rtol=0, atol=1e-3)


def test_preferences_as_beta_falls_to_0_and_rises_without_end():
    """A pair teaches evenly, then only where it is in the wrong order; CPO is then XENT on the best."""
    best, worst = R.argmax(-1, keepdim=True), R.argmin(-1, keepdim=True)
    apart = torch.zeros_like(S).scatter(-1, best, -1.0).scatter(-1, worst, 1.0)
    torch.testing.assert_close(gradient(preference, S, R, ALL, 1e-9), apart / 2)
    wrong = (S.gather(-1, best) < S.gather(-1, worst)).double()
    assert wrong.sum() == 1
    torch.testing.assert_close(gradient(preference, S, R, ALL, 1e4), apart * wrong)
    torch.testing.assert_close(
        gradient(contrastive_preference, S, R, ALL, 1e-9), gradient(best_of_n, S, R, ALL), rtol=0, atol=1e-8
    )
