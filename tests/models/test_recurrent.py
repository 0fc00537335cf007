import pytest
import torch
from torch import nn

from seqmixer.models import (
    AttentiveEncoder,
    ElmanCell,
    GRUCell,
    ImageEncoder,
    LSTMCell,
    NoEncoder,
    Recurrent,
    initialise,
)

V, H = 7, 4
WORDS = torch.tensor([[1, 3, 4, 5], [1, 6, 2, 0]])  # (B, T)
# Longer than the window: in a shorter one every z_i is the same, and the query would not matter.
TEXT = torch.tensor([[4, 5, 6, 7, 3, 8], [8, 3, 7, 4, 0, 0]])  # (B, N)
NOTHING = torch.zeros(2, 0, dtype=torch.long)


def random(model):
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.double()


def attentive():
    return AttentiveEncoder(9, H, positions=6)


def test_elman_is_equations_3_to_5_in_raw_matrices():
    model = random(Recurrent(ElmanCell, attentive(), V, H))
    M_i, M_o = model.M_i.weight, model.M_o.weight
    M_h, M_c = model.cells[0].M_h.weight, model.cells[0].M_c.weight
    context = model.encode(TEXT)

    o = model.logits(model.unroll(WORDS, context))

    h = torch.zeros(2, H, dtype=torch.double)  # h_1
    for t in range(4):
        c = model.encoder.attend(h, context)
        one_hot = torch.eye(V, dtype=torch.double)[WORDS[:, t]]  # 1(w_t)
        h = torch.sigmoid(one_hot @ M_i + h @ M_h.T + model.cells[0].M_h.bias + c @ M_c.T)  # Eq. 3
        expected = h @ M_o.T + model.M_o.bias  # Eq. 4
        torch.testing.assert_close(o[:, t], expected)


def test_elman_without_context_leaves_m_c_out():
    model = random(Recurrent(ElmanCell, NoEncoder(), V, H))

    h = torch.zeros(2, H, dtype=torch.double)
    for t in range(4):
        h = torch.sigmoid(model.M_i.weight[WORDS[:, t]] + model.cells[0].M_h(h))

    torch.testing.assert_close(model.unroll(WORDS, model.encode(NOTHING))[:, -1], h)


def reference(model, kind):
    """torch's own network with the weights of ours."""
    other = kind(H, H, num_layers=len(model.cells), batch_first=True).double()
    for layer, cell in enumerate(model.cells):
        for name, parameter in cell.cell.named_parameters():
            other.get_parameter(f"{name}_l{layer}").data.copy_(parameter.data)
    return other


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(("cell", "kind"), [(LSTMCell, nn.LSTM), (GRUCell, nn.GRU)], ids=["LSTM", "GRU"])
def test_gated_cells_equal_those_of_torch(cell, kind, layers):
    model = random(Recurrent(cell, NoEncoder(), V, H, layers=layers))

    expected, _ = reference(model, kind)(model.M_i.weight[WORDS])

    torch.testing.assert_close(model.unroll(WORDS, model.encode(NOTHING)), expected)


@pytest.mark.parametrize(("cell", "kind"), [(LSTMCell, nn.LSTM), (GRUCell, nn.GRU)], ids=["LSTM", "GRU"])
def test_image_features_are_fed_as_the_first_word(cell, kind):
    model = random(Recurrent(cell, ImageEncoder(6, H), V, H, layers=2))
    features = torch.randn(2, 6, dtype=torch.double)
    first = features @ model.encoder.project.weight.T + model.encoder.project.bias

    expected, _ = reference(model, kind)(torch.cat([first.unsqueeze(1), model.M_i.weight[WORDS]], 1))

    torch.testing.assert_close(model.unroll(WORDS, model.encode(features)), expected[:, 1:])


def lstm(cell, x, h, memory):
    """One step of long short-term memory, gates in torch's order."""
    gates = x @ cell.weight_ih.T + cell.bias_ih + h @ cell.weight_hh.T + cell.bias_hh
    into, forget, new, out = gates.chunk(4, -1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(into) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(memory), memory


def gru(cell, x, h):
    """One step of a gated recurrent unit, gates in torch's order."""
    reset, update, new = (x @ cell.weight_ih.T + cell.bias_ih).chunk(3, -1)
    old_reset, old_update, old_new = (h @ cell.weight_hh.T + cell.bias_hh).chunk(3, -1)
    update = torch.sigmoid(update + old_update)
    return (1 - update) * torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new) + update * h


@pytest.mark.parametrize("cell", [LSTMCell, GRUCell])
def test_the_context_enters_every_gate_of_the_first_layer_only(cell):
    model = random(Recurrent(cell, attentive(), V, H, layers=2))
    first, second = model.cells[0].cell, model.cells[1].cell
    context = model.encode(TEXT)

    got = model.unroll(WORDS, context)

    h1 = h2 = m1 = m2 = torch.zeros(2, H, dtype=torch.double)
    for t in range(4):
        c = model.encoder.attend(h2, context)  # the query is h_t of the top layer
        x = torch.cat([model.M_i.weight[WORDS[:, t]], c], -1)
        if cell is LSTMCell:
            h1, m1 = lstm(first, x, h1, m1)
            h2, m2 = lstm(second, h1, h2, m2)
        else:
            h1 = gru(first, x, h1)
            h2 = gru(second, h1, h2)
        torch.testing.assert_close(got[:, t], h2)


def test_the_released_lstm_is_its_formula():
    """query = x + W_h h + W_m cell; the output reads [h; sigmoid(W_c c)]."""
    encoder = AttentiveEncoder(9, H, positions=6, sum_positions=True)
    model = random(Recurrent(LSTMCell, encoder, V, H, released=True))
    W_h, W_m = model.query.weight.chunk(2, -1)
    context = model.encode(TEXT)

    h = model.unroll(WORDS, context)
    o = model.logits(h)

    top = memory = torch.zeros(2, H, dtype=torch.double)
    for t in range(4):
        x = model.M_i.weight[WORDS[:, t]]
        c = encoder.attend(x + top @ W_h.T + memory @ W_m.T, context)
        top, memory = lstm(model.cells[0].cell, torch.cat([x, c], -1), top, memory)
        features = torch.cat([top, torch.sigmoid(c @ model.output.weight.T + model.output.bias)], -1)
        torch.testing.assert_close(h[:, t], features)
        torch.testing.assert_close(o[:, t], features @ model.M_o.weight.T + model.M_o.bias)


def test_the_released_elman_is_its_formula():
    model = random(Recurrent(ElmanCell, attentive(), V, H, released=True))
    cell, context = model.cells[0], model.encode(TEXT)

    got = model.unroll(WORDS, context)

    h = torch.zeros(2, H, dtype=torch.double)
    for t in range(4):
        x = model.M_i.weight[WORDS[:, t]]
        c = model.encoder.attend(x + h @ model.query.weight.T, context)
        h = torch.sigmoid(x + cell.M_h(h) + c @ cell.M_c.weight.T)
        expected = torch.cat([h, torch.sigmoid(c @ model.output.weight.T + model.output.bias)], -1)
        torch.testing.assert_close(got[:, t], expected)


def test_without_attention_the_two_readings_are_the_same():
    paper = random(Recurrent(LSTMCell, ImageEncoder(6, H), V, H))
    released = Recurrent(LSTMCell, ImageEncoder(6, H), V, H, released=True).double()

    released.load_state_dict(paper.state_dict())

    features = torch.randn(2, 6, dtype=torch.double)
    torch.testing.assert_close(
        released.unroll(WORDS, released.encode(features)), paper.unroll(WORDS, paper.encode(features))
    )


def test_dropout_acts_in_training_only():
    model = random(Recurrent(LSTMCell, attentive(), V, H, dropout=0.5))
    undropped = Recurrent(LSTMCell, attentive(), V, H).double()
    undropped.load_state_dict(model.state_dict())

    def logits(network):
        return network.logits(network.unroll(WORDS, network.encode(TEXT)))

    assert not torch.equal(logits(model.train()), logits(model))
    torch.testing.assert_close(logits(undropped.train()), logits(undropped.eval()))
    torch.testing.assert_close(logits(model.eval()), logits(undropped))


def test_dropout_acts_on_what_enters_a_layer_and_the_output_and_not_on_the_recurrence():
    """Dropped wholly, nothing is left of the words: every input gives the same h, and o is the bias of M_o."""
    model = random(Recurrent(LSTMCell, NoEncoder(), V, H, dropout=1.0)).train()
    context = model.encode(NOTHING)

    h = model.unroll(WORDS, context)

    torch.testing.assert_close(h[0], h[1])
    assert not torch.isclose(h[:, 0], h[:, 1]).all()
    torch.testing.assert_close(model.logits(h), model.M_o.bias.expand(2, 4, V))


def test_initialise_draws_weights_and_zeroes_biases():
    model = Recurrent(LSTMCell, AttentiveEncoder(90, 30, positions=60), 70, 30, layers=2, released=True)

    initialise(model, std=0.05)

    for name, parameter in model.named_parameters():
        if "bias" in name:
            assert (parameter == 0).all(), name
        else:
            assert parameter.std().item() == pytest.approx(0.05, rel=0.1), name
            assert parameter.mean().item() == pytest.approx(0, abs=0.01), name


def test_words_that_are_never_written_are_not_in_the_checkpoint():
    assert "never" not in Recurrent(LSTMCell, NoEncoder(), V, H).state_dict()
