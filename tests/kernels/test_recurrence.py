from itertools import product

import pytest
import torch
from torch import nn

from recurrences import KINDS, by_formula, layer, with_gradients
from seqmixer.kernels import plain, recur
from seqmixer.models import AttentiveEncoder, ElmanCell, GRUCell, ImageEncoder, LSTMCell, NoEncoder, Recurrent
from seqmixer.models.recurrent import step_by_step
from seqmixer.types import PAD

H, V = 3, 7


def recurred(*arguments):
    states, c = recur(*arguments)
    return states[0], c


@pytest.mark.parametrize(("T", "B"), [(1, 1), (1, 3), (6, 1), (6, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_all_gradients_are_those_of_autograd(kind, T, B):
    made = layer(kind, T, B, H)

    for got, expected in zip(with_gradients(recurred, made), with_gradients(by_formula, made), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind):
    """Also where only one of the two outputs has a gradient."""
    made = layer(kind, T=3, B=2, H=2, N=3)

    def outputs(*leaves):
        h, c = recurred(*made.arguments)
        return h if c is None else (h, c)

    assert torch.autograd.gradcheck(outputs, made.leaves)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_is_not_written_to_and_m_is_there_without_gradient(kind):
    made = layer(kind, T=4, B=2, H=H)
    before = [leaf.clone() for leaf in made.leaves]

    states, _ = recur(*made.arguments)
    states[0].sum().backward()

    assert all(torch.equal(leaf, old) for leaf, old in zip(made.leaves, before, strict=True))
    assert len(states) == len(made.state)
    assert states[0].requires_grad
    assert not any(part.requires_grad for part in states[1:])


SOURCES = {
    "text": (lambda: AttentiveEncoder(9, H, 6), torch.tensor([[4, 5, 6, 7, 3, 8], [8, 3, PAD, PAD, PAD, PAD]])),
    "image": (lambda: ImageEncoder(4, H), torch.randn(2, 4, generator=torch.Generator().manual_seed(1)).double()),
    "nothing": (NoEncoder, torch.zeros(2, 0, dtype=torch.long)),
}


def made_of(cell, encoder, released, layers=1):
    model = Recurrent(cell, encoder, V, H, layers=layers, released=released).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize(("T", "B"), [(1, 1), (1, 2), (5, 1), (5, 2)])
@pytest.mark.parametrize(
    ("cell", "source", "released"), list(product([ElmanCell, LSTMCell, GRUCell], SOURCES, [False, True]))
)
def test_unrolling_a_model_is_its_steps_under_autograd(cell, source, released, T, B):
    encoder, given = SOURCES[source]
    model = made_of(cell, encoder(), released)
    words, weight = torch.randint(V, (B, T)), torch.randn(B, T, model.features, dtype=torch.double)

    def unrolled(unroll):
        h = unroll(words, model.encode(given[:B]))
        return [h, *torch.autograd.grad((h * weight).sum(), model.parameters(), allow_unused=True)]

    with plain():
        expected = unrolled(lambda *given: step_by_step(model, *given))
    for a, b in zip(unrolled(model.unroll), expected, strict=True):
        assert (a is None) is (b is None)  # the output layer has none
        if a is not None:
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("cell", "layers", "fused"), [(ElmanCell, 1, 1), (LSTMCell, 1, 1), (GRUCell, 1, 0), (LSTMCell, 2, 0)])  # fmt: skip
def test_one_layer_of_elman_or_lstm_is_one_function_and_nothing_is_inside_plain(monkeypatch, cell, layers, fused):
    model, calls = made_of(cell, NoEncoder(), False, layers), []
    monkeypatch.setattr("seqmixer.models.recurrent.recur", lambda *given: calls.append(1) or recur(*given))
    context = model.encode(torch.zeros(2, 0, dtype=torch.long))

    model.unroll(torch.randint(V, (2, 5)), context)
    assert len(calls) == fused
    with plain():
        model.unroll(torch.randint(V, (2, 5)), context)
    assert len(calls) == fused


@pytest.mark.parametrize("kind", KINDS)
def test_the_recurrence_is_float32_in_an_autocast_region_whatever_the_gates_and_the_first_state_are(kind):
    made = layer(kind, T=4, B=2, H=H, dtype=torch.float32)
    gates, state, *rest = made.arguments
    expected, _ = recur(gates.bfloat16().float(), tuple(part.bfloat16().float() for part in state), *rest)

    with torch.autocast("cpu", torch.bfloat16):
        got, _ = recur(gates.bfloat16(), tuple(part.bfloat16() for part in state), *rest)

    for a, b in zip(got, expected, strict=True):
        assert a.dtype is torch.float32
        torch.testing.assert_close(a, b)
