"""The Triton programs against plain torch: on a CUDA device, or anywhere in Triton's interpreter (TRITON_INTERPRET=1)."""

import math
import os

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which comes with torch for CUDA")

from recurrences import KINDS, layer, with_gradients
from seqmixer.kernels import projection, recur, recurrence, steps, triton_drawing, triton_output, triton_steps

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

pytestmark = [
    pytest.mark.skipif(
        not (INTERPRETED or torch.cuda.is_available()), reason="needs a CUDA device, or the variable TRITON_INTERPRET=1"
    ),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the interpreter's, of -inf - -inf where it is not used
    *([] if INTERPRETED else [pytest.mark.gpu]),
]


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("T", "B", "H", "N"), [(2, 1, 20, 1), (2, 17, 33, 40), (1, 3, 64, 7)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recurrence_has_the_values_and_gradients_of_plain_steps(monkeypatch, kind, T, B, H, N):
    made = layer(kind, T, B, H, N, torch.float32, DEVICE)

    def run(*arguments):
        states, c = recur(*arguments)
        return states[0], c

    def by(module):
        monkeypatch.setattr(recurrence, "_steps", lambda tensor: module)
        return with_gradients(run, made)

    for got, expected in zip(by(triton_steps), by(steps), strict=True):
        close(got, expected)


@pytest.mark.parametrize("B", [1, 130])
def test_a_batch_of_any_size_is_covered(B):
    """There are programs of 16 rows, and of 32 for large batches."""
    h, m, U = (torch.randn(shape, device=DEVICE) for shape in ((B, 33), (B, 33), (4 * 33, 33)))
    gates = torch.randn(B, 4 * 33, device=DEVICE)
    results = []
    for module in (triton_steps, steps):
        activations, new_h, new_m = torch.empty_like(gates), torch.empty_like(h), torch.empty_like(h)
        module.cell(gates, h, m, None, U, None, activations, new_h, new_m)
        results.append((activations, new_h, new_m))
    close(*results)


def output_layer(R, H, V, dtype=torch.float32):
    """h, weight, bias, words, and the gradient of log p."""
    h, weight, bias = (torch.randn(shape).to(DEVICE, dtype) for shape in ((R, H), (V, H), (V,)))
    return h, weight, bias, torch.randint(V, (R,)).to(DEVICE), torch.randn(R).to(DEVICE)


@pytest.mark.parametrize(("R", "H", "V"), [(1, 20, 5), (17, 33, 301), (140, 40, 128)])
def test_the_output_layer_is_that_of_plain_torch(R, H, V):
    h, weight, bias, words, grad = output_layer(R, H, V)
    log_p, normaliser = triton_output.log_prob(h, weight, bias, words)

    logits = h @ weight.t() + bias
    close(triton_output.scores(h, weight, bias), logits)
    close(normaliser, logits.logsumexp(-1))
    close(log_p, logits.log_softmax(-1)[torch.arange(R), words])
    got = triton_output.gradient(h, weight, bias, words, normaliser, grad)
    one = torch.nn.functional.one_hot(words, V)
    close(got, (one - logits.softmax(-1)) * grad.unsqueeze(-1))


def test_the_output_layer_takes_words_that_are_never_written():
    h, weight, bias, words, grad = output_layer(17, 20, 301)
    bias[0], words[3] = -1e4, 0
    log_p, normaliser = triton_output.log_prob(h, weight, bias, words)

    with torch.no_grad():
        assert torch.equal(log_p < -9000, torch.arange(17, device=DEVICE) == 3)
    assert triton_output.gradient(h, weight, bias, words, normaliser, grad).isfinite().all()


@pytest.mark.skipif(INTERPRETED, reason="the interpreter has no bfloat16 products")
def test_the_output_layer_in_bfloat16_is_near_plain_torch():
    h, weight, bias, words, grad = output_layer(140, 40, 301, torch.bfloat16)
    log_p, normaliser = triton_output.log_prob(h, weight, bias, words)
    gradient = triton_output.gradient(h, weight, bias, words, normaliser, grad)

    logits = h.float() @ weight.float().t() + bias.float()
    expected = logits.log_softmax(-1)[torch.arange(140), words]
    exact = (torch.nn.functional.one_hot(words, 301) - logits.softmax(-1)) * grad.unsqueeze(-1)
    assert log_p.dtype is torch.float32
    assert gradient.dtype is torch.bfloat16
    assert (log_p - expected).norm() < 0.02 * expected.norm()
    assert (gradient.float() - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("V", [1, 7, 512, 1301])
@pytest.mark.parametrize("B", [1, 17])
def test_the_same_words_are_drawn(B, V):
    logits = 3 * torch.randn(B, V, device=DEVICE)
    logits[:, 1:] = torch.where(torch.rand(B, V - 1, device=DEVICE) < 0.2, -torch.inf, logits[:, 1:])
    for _ in range(3):
        u = torch.rand(B, dtype=torch.double, device=DEVICE)
        assert torch.equal(triton_drawing.draw(logits, u), plainly_drawn(logits, u))


def plainly_drawn(logits, u):
    return projection.draw(logits.cpu(), u.cpu()).to(logits.device)


def test_rows_of_a_wider_tensor_are_drawn_from():
    """As `triton_output.scores` makes them."""
    wide, u = torch.randn(17, 640, device=DEVICE), torch.rand(17, dtype=torch.double, device=DEVICE)

    assert torch.equal(triton_drawing.draw(wide[:, :601], u), plainly_drawn(wide[:, :601], u))


def test_words_of_probability_0_are_never_drawn_not_even_where_u_is_at_the_border_of_a_tile():
    """Sums of tiles are rounded, so that a level may fall behind the last word of its tile."""
    logits = torch.full((1301,), -torch.inf)
    there = torch.tensor([3, 100, 501, 700, 701, 1011, 1100, 1200])  # none is the first or the last of a tile
    logits[there] = torch.randn(len(there))
    borders = logits.double().softmax(-1).cumsum(-1)[[501, 1011, 1300]]
    u = (borders + torch.linspace(-3e-7, 3e-7, 201).double().unsqueeze(-1)).flatten()
    u = torch.cat([u[u < 1], torch.tensor([0.0, math.nextafter(1.0, 0.0)]).double()])

    drawn = triton_drawing.draw(logits.expand(len(u), -1).contiguous().to(DEVICE), u.to(DEVICE)).cpu()

    assert torch.isin(drawn, there).all()
    assert {501, 700, 1011, 1100, 1200, 3} == set(drawn.tolist())


@pytest.mark.parametrize("certain", [0, 511, 512, 1300])
def test_a_certain_word_is_drawn_by_every_u(certain):
    logits = torch.full((3, 1301), -torch.inf, device=DEVICE)
    logits[:, certain] = 0.0
    u = torch.tensor([0.0, 0.5, math.nextafter(1.0, 0.0)], dtype=torch.double, device=DEVICE)

    assert triton_drawing.draw(logits, u).tolist() == [certain] * 3
