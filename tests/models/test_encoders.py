import math

import pytest
import torch
from torch import nn

from seqmixer.models import AttentiveEncoder, ImageEncoder, NoEncoder
from seqmixer.types import PAD

H = 3


def encoder(window=5, sum_positions=False, positions=8):
    made = AttentiveEncoder(10, H, positions, window, sum_positions).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def attended(made, source, query):
    """Eqs. 12-14 for one sentence without padding, in lists and loops."""
    w = [made.words.weight[i].tolist() for i in source]
    position = [made.positions.weight[min(i, made.positions.num_embeddings - 1)].tolist() for i in range(len(source))]
    a = [[x + y for x, y in zip(*pair, strict=True)] for pair in zip(w, position, strict=True)]

    q = made.window
    z = []
    for i in range(len(source)):
        inside = [a[i + h] if 0 <= i + h < len(source) else [0.0] * H for h in range(-(q // 2), q // 2 + 1)]
        z.append([sum(column) / q for column in zip(*inside, strict=True)])

    weights = [math.exp(sum(x * y for x, y in zip(row, query, strict=True))) for row in z]
    alpha = [weight / sum(weights) for weight in weights]
    summed = a if made.sum_positions else w
    return [sum(alpha[j] * summed[j][d] for j in range(len(source))) for d in range(H)]


@pytest.mark.parametrize("sum_positions", [False, True], ids=["paper", "released"])
@pytest.mark.parametrize("window", [1, 3, 5, 7])
@pytest.mark.parametrize("length", [1, 2, 6])
def test_attention_is_equations_12_to_14(window, sum_positions, length):
    made = encoder(window, sum_positions)
    source = torch.randint(1, 10, (2, length))
    query = torch.randn(2, H, dtype=torch.double)

    c = made.attend(query, made(source))

    for b in range(2):
        expected = attended(made, source[b].tolist(), query[b].tolist())
        torch.testing.assert_close(c[b], torch.tensor(expected, dtype=torch.double))


def test_the_window_of_the_paper_is_5():
    assert AttentiveEncoder(10, H, positions=8).window == 5


def test_a_window_of_1_without_positions_attends_to_plain_words():
    made = encoder(window=1)
    nn.init.zeros_(made.positions.weight)
    source = torch.tensor([[4, 7, 9]])
    query = torch.randn(1, H, dtype=torch.double)

    w = made.words.weight[source[0]]  # (N, H)
    torch.testing.assert_close(made.attend(query, made(source))[0], (w @ query[0]).softmax(0) @ w)


@pytest.mark.parametrize("sum_positions", [False, True], ids=["paper", "released"])
@pytest.mark.parametrize("padding", [1, 2, 5])
def test_padding_changes_nothing(sum_positions, padding):
    made = encoder(sum_positions=sum_positions, positions=20)
    alone = torch.randint(1, 10, (2, 4))
    padded = torch.cat([alone, torch.full((2, padding), PAD)], 1)
    query = torch.randn(2, H, dtype=torch.double)

    torch.testing.assert_close(made.attend(query, made(padded)), made.attend(query, made(alone)))
    values, z, real = made(padded)
    torch.testing.assert_close(z[:, :4], made(alone)[1])
    torch.testing.assert_close(values[:, :4], made(alone)[0])
    assert real.tolist() == [[True] * 4 + [False] * padding] * 2


def test_padding_gets_no_gradient():
    made = encoder()
    source = torch.tensor([[4, 7, PAD, PAD], [4, 7, 9, 3]])

    made.attend(torch.randn(2, H, dtype=torch.double), made(source)).square().sum().backward()

    assert (made.words.weight.grad[PAD] == 0).all()
    for parameter in made.parameters():
        assert parameter.grad.isfinite().all()


def test_words_beyond_the_last_position_share_it():
    made, query = encoder(positions=2), torch.randn(1, H, dtype=torch.double)
    source = [4, 5, 6, 7]

    c = made.attend(query, made(torch.tensor([source])))

    torch.testing.assert_close(c[0], torch.tensor(attended(made, source, query[0].tolist()), dtype=torch.double))


def test_an_image_is_the_first_word_and_is_not_attended_to():
    made = ImageEncoder(6, H)
    features = torch.randn(2, 6)

    context = made(features)

    assert not made.attentive
    assert made.attend(torch.randn(2, H), context) is None
    torch.testing.assert_close(made.first_word(context), features @ made.project.weight.T + made.project.bias)


def test_a_language_model_has_neither_context_nor_first_word():
    made = NoEncoder().double()

    context = made(torch.zeros(4, 0, dtype=torch.long))

    assert not made.attentive
    assert made.attend(torch.randn(4, H), context) is None
    assert made.first_word(context) is None
    assert context[0].dtype is torch.double
    assert len(context[0]) == 4
    assert made.state_dict() == {}


def test_text_has_no_first_word():
    made = encoder()

    assert made.attentive
    assert made.first_word(made(torch.tensor([[4, 5]]))) is None
