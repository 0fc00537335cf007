"""What every `SequenceModel` owes to algorithms and searches."""

import itertools

import pytest
import torch
from torch import nn

from seqmixer.models import AttentiveEncoder, ElmanCell, GRUCell, ImageEncoder, LSTMCell, NoEncoder, Recurrent
from seqmixer.types import BOS, PAD, SequenceModel

B, T, V, H = 3, 5, 7, 4
WORDS = torch.tensor([[1, 3, 4, 2, 0], [1, 6, 5, 4, 3], [1, 2, 0, 0, 0]])  # (B, T) inputs
TEXT = torch.tensor([[4, 5, 6, 7, 3, 8], [8, 3, 0, 0, 0, 0], [5, 5, 5, 0, 0, 0]])  # (B, N)
FEATURES = torch.randn(B, 6, dtype=torch.double, generator=torch.Generator().manual_seed(1))  # (B, D)
NOTHING = torch.zeros(B, 0, dtype=torch.long)

CELLS = [ElmanCell, LSTMCell, GRUCell]
ENCODERS = {
    "words": (lambda: AttentiveEncoder(9, H, positions=6), TEXT),
    "positions": (lambda: AttentiveEncoder(9, H, positions=6, window=3, sum_positions=True), TEXT),
    "image": (lambda: ImageEncoder(6, H), FEATURES),
    "nothing": (NoEncoder, NOTHING),
}
MODELS = list(itertools.product(CELLS, ENCODERS, [False, True], [1, 2]))


@pytest.fixture(params=MODELS, ids=lambda p: f"{p[0].__name__}-{p[1]}-{'released' if p[2] else 'paper'}-{p[3]}")
def model_and_source(request):
    cell, name, released, layers = request.param
    encoder, source = ENCODERS[name]
    model = Recurrent(cell, encoder(), V, H, layers=layers, released=released).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model, source


def stepped(model, words, context):
    state, features = model.start(context), []
    for t in range(words.shape[1]):
        h, state = model.step(model.embed(words[:, t]), state, context)
        features.append(h)
    return torch.stack(features, 1)


def leaves(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    assert type(tree) is tuple
    return [leaf for branch in tree for leaf in leaves(branch)]


def rows(tree, index):
    return tree[index] if isinstance(tree, torch.Tensor) else tuple(rows(branch, index) for branch in tree)


def test_the_contract_has_six_methods():
    assert SequenceModel.__abstractmethods__ == {"encode", "start", "embed", "step", "logits", "unroll"}


def test_stepping_equals_unrolling(model_and_source):
    model, source = model_and_source
    context = model.encode(source)

    h = model.unroll(WORDS, context)

    assert h.shape == (B, T, model.features)
    torch.testing.assert_close(h, stepped(model, WORDS, context))


def test_stepping_and_unrolling_have_the_same_gradient(model_and_source):
    model, source = model_and_source
    weight = torch.randn(B, T, V, dtype=torch.double)

    def gradients(features):
        model.zero_grad()
        (model.logits(features(model.encode(source))) * weight).sum().backward()
        return {name: p.grad for name, p in model.named_parameters()}

    unrolled = gradients(lambda context: model.unroll(WORDS, context))
    by_steps = gradients(lambda context: stepped(model, WORDS, context))
    for name, gradient in unrolled.items():
        assert gradient is not None, name
        torch.testing.assert_close(gradient, by_steps[name], msg=name)


def test_shapes_and_types_are_those_of_the_contract(model_and_source):
    model, source = model_and_source
    context = model.encode(source)
    x = model.embed(WORDS[:, 0])
    h, state = model.step(x, model.start(context), context)

    assert model.embed(WORDS).shape == (B, T, H)
    assert h.shape == (B, model.features)
    assert model.logits(h).shape == (B, V)
    assert model.logits(model.unroll(WORDS, context)).shape == (B, T, V)
    for leaf in leaves(context) + leaves(state):
        assert len(leaf) == B
    for old, new in zip(leaves(model.start(context)), leaves(state), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype) == ((B, H), torch.double)


def test_rows_of_context_and_state_can_be_reordered(model_and_source):
    model, source = model_and_source
    order = torch.tensor([2, 0, 0])
    context = model.encode(source)
    _, state = model.step(model.embed(WORDS[:, 0]), model.start(context), context)

    expected, _ = model.step(model.embed(WORDS[:, 1]), state, context)
    got, _ = model.step(model.embed(WORDS[order, 1]), rows(state, order), rows(context, order))

    torch.testing.assert_close(got, expected[order])


def test_sentences_of_a_batch_do_not_see_each_other(model_and_source):
    model, source = model_and_source
    together = model.unroll(WORDS, model.encode(source))

    for b in range(B):
        alone = model.unroll(WORDS[b : b + 1], model.encode(source[b : b + 1]))
        torch.testing.assert_close(together[b : b + 1], alone)


def test_no_step_sees_a_later_word(model_and_source):
    model, source = model_and_source
    context = model.encode(source)
    other = WORDS.clone()
    other[:, 3:] = torch.tensor([[5, 6], [6, 6], [3, 4]])

    before, after = model.unroll(WORDS, context), model.unroll(other, context)

    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.isclose(before[:, 3], after[:, 3]).all(-1).any()


def test_what_is_written_depends_on_the_source_where_there_is_one(model_and_source):
    model, source = model_and_source

    h = model.unroll(WORDS[1:2].expand(B, -1), model.encode(source))

    there_is_none = source.shape[1] == 0
    assert bool(torch.isclose(h[0], h[1]).all()) is there_is_none


def test_pad_and_bos_are_never_written(model_and_source):
    model, source = model_and_source
    p = model.logits(model.unroll(WORDS, model.encode(source))).softmax(-1)

    assert (p[..., [PAD, BOS]] == 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(B, T, dtype=torch.double))
