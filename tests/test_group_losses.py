"""Losses of candidates against one another: the formulas in plain Python, finite differences, limits, ties."""

import math

import pytest
import torch

from seqmixer.losses import expected_risk

S = torch.tensor([[-2.0, -1.0, -3.5, -1.5], [-0.5, -4.0, -2.5, -1.0]], dtype=torch.double)  # (B, k) log p
R = torch.tensor([[0.3, 0.9, 0.1, 0.4], [0.2, 0.6, 0.8, 0.0]], dtype=torch.double)
ALL = torch.ones(2, 4, dtype=torch.bool)
LOSSES = {
    "risk": lambda s, r, mask: expected_risk(s, r, mask, alpha=0.7),
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
def test_a_candidate_that_does_not_count_changes_nothing(name):
    loss, mask = LOSSES[name], torch.tensor([[True, True, False, True], [True, False, True, True]])
    for b, kept in enumerate([[0, 1, 3], [0, 2, 3]]):
        expected = loss(S[b : b + 1, kept], R[b : b + 1, kept], ALL[:1, :3])
        torch.testing.assert_close(loss(S, R, mask)[b], expected[0])
    assert (gradient(loss, S, R, mask)[~mask] == 0).all()


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
