import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seqmixer.kernels import linear, linear_log_prob

R, H, V = 7, 3, 5


def layer(dtype=torch.double, rows=R, words=V):
    """h, weight, bias, and the words asked for."""
    h, weight, bias = (torch.randn(shape, dtype=dtype) for shape in ((rows, H), (words, H), (words,)))
    return h.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), torch.randint(words, (rows,))


def by_formula(h, weight, bias, words):
    return F.linear(h, weight, bias).log_softmax(-1)[torch.arange(len(words)), words]


def with_gradients(run, h, weight, bias, words, *more):
    log_p = run(h, weight, bias, words, *more)
    grad = torch.randn(len(words), generator=torch.Generator().manual_seed(1)).to(log_p)
    return [log_p, *torch.autograd.grad((log_p * grad).sum(), [h, weight, bias])]


@pytest.mark.parametrize("room", [1, V, 3 * V, R * V, 10**6], ids=lambda room: f"{max(1, room // V)} rows at a time")
def test_values_and_gradients_are_those_of_log_softmax_whatever_the_room(room):
    given = layer()

    got, expected = with_gradients(linear_log_prob, *given, room), with_gradients(by_formula, *given)

    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("room", [1, 10**6])
def test_gradients_are_those_of_finite_differences(room):
    h, weight, bias, words = layer()

    assert torch.autograd.gradcheck(lambda *given: linear_log_prob(*given, words, room), (h, weight, bias))


def test_no_more_scores_are_held_than_there_is_room_for():
    sizes = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **kwargs or {})
            sizes.extend(part.numel() for part in torch.utils._pytree.tree_leaves(result) if torch.is_tensor(part))
            return result

    given, room = layer(rows=90, words=40), 10 * 40
    with Watch():
        with_gradients(linear_log_prob, *given, room)

    assert max(sizes) == room  # all scores would be 3600


@pytest.mark.parametrize("room", [1, 10**6])
def test_under_autocast_products_are_short_and_the_result_is_float32_near_the_exact_one(room):
    given = layer(torch.float32, rows=60, words=40)
    expected = with_gradients(by_formula, *given)

    with torch.autocast("cpu", torch.bfloat16):
        got = with_gradients(linear_log_prob, *given, room)

    for a, b in zip(got, expected, strict=True):
        assert a.dtype is torch.float32
        assert 1e-4 < (a - b).norm() / b.norm() < 0.02  # bfloat16 has 8 bits, float32 24


def test_a_word_without_chance_has_a_finite_logarithm_and_no_gradient_of_its_own():
    """PAD's score is -1e4: it is scored where a sentence has ended, and masked."""
    h, weight, bias, words = layer(torch.float32)
    bias.data[0], words[:] = -1e4, 0

    log_p, *gradients = with_gradients(linear_log_prob, h, weight, bias, words)

    assert (log_p < -9000).all()
    assert all(gradient.isfinite().all() for gradient in (log_p, *gradients))


def test_linear_is_the_layer():
    h, weight, bias, _ = layer()

    assert torch.equal(linear(h, weight, bias), F.linear(h, weight, bias))
