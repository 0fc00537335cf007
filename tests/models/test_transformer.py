import cmath
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqmixer.algorithms import LinearBaseline, Reinforce, Xent
from seqmixer.config import TrainingConfig
from seqmixer.data import toy
from seqmixer.decoding import beam_search, free, generate, greedy
from seqmixer.errors import ConfigError
from seqmixer.evaluation import evaluate
from seqmixer.models import Blueprint, ImageMemory, TextMemory, Transformer, initialise
from seqmixer.models.transformer import Positions, rotate
from seqmixer.rewards import BLEU, sentence_bleu
from seqmixer.training import Training
from seqmixer.types import PAD

V, H, HEADS, T = 7, 8, 2, 5
d = H // HEADS
WORDS = torch.tensor([[1, 3, 4, 5, 6], [1, 6, 2, 0, 0]])  # (B, T)
TEXT = torch.tensor([[4, 5, 6, 7, 3, 8], [8, 3, 7, 4, 0, 0]])  # (B, N)
NOTHING = torch.zeros(2, 0, dtype=torch.long)
KINDS = ["words", "image", "nothing"]


def blueprint(**changes):
    return Blueprint(**{"hidden": H, "heads": HEADS, "feedforward": 12, "layers": 2, **changes})


def random(model):
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.double()


def translator(length=T, **changes):
    made = blueprint(**changes)
    return random(Transformer(made, TextMemory(made, 9, positions=6), V, length))


def of_kind(kind, **changes):
    """A model and a source for it."""
    made = blueprint(**changes)
    features = torch.randn(2, 3, dtype=torch.double)
    memory, source = {
        "words": (TextMemory(made, 9, positions=6), TEXT),
        "image": (ImageMemory(made, 3), features),
        "nothing": (None, NOTHING),
    }[kind]
    return random(Transformer(made, memory, V, T)), source


def attended(q, k, v):
    """softmax(q k^T / sqrt(d)) v for one query, in lists and loops: (d,), (n, d), (n, d) -> (d,)"""
    weights = [math.exp(sum(a * b for a, b in zip(q, row, strict=True)) / math.sqrt(len(q))) for row in k]
    return [sum(w * row[j] for w, row in zip(weights, v, strict=True)) / sum(weights) for j in range(len(q))]


def by_heads(q, k, v, sees):
    """Attention of one sentence, (T, H) x (N, H) -> (T, H); the query at t looks at the keys that `sees(t, j)` allows."""
    rows = []
    for t in range(len(q)):
        looked = [j for j in range(len(k)) if sees(t, j)]
        parts = [slice(head * d, head * d + d) for head in range(HEADS)]
        heads = [attended(q[t, p].tolist(), k[looked][:, p].tolist(), v[looked][:, p].tolist()) for p in parts]
        rows.append([value for head in heads for value in head])
    return torch.tensor(rows, dtype=torch.double)


def turned(x):
    """RoFormer: pair j of each head of the word at place m, as a complex number, times e^{i m 10000^(-2j/d)}."""
    turned = x.clone()
    for m in range(len(x)):
        for head in range(HEADS):
            for j in range(d // 2):
                at = head * d + 2 * j
                z = complex(x[m, at], x[m, at + 1]) * cmath.exp(1j * m * 10000 ** (-2 * j / d))
                turned[m, at], turned[m, at + 1] = z.real, z.imag
    return turned


def plain_layer(layer, x, sees, rotary, memory=None, real=None):
    """One layer of one sentence (T, H) with loops for the attention."""
    q, k, v = layer.own_qkv(layer.own_norm(x)).detach().chunk(3, -1)
    if rotary:
        q, k = turned(q), turned(k)
    x = x + layer.own_out(by_heads(q, k, v, sees))
    if memory is not None:
        q = layer.memory_q(layer.memory_norm(x)).detach()
        k, v = layer.memory_kv(memory).detach().chunk(2, -1)
        x = x + layer.memory_out(by_heads(q, k, v, lambda t, j: real[j]))
    return x + layer.narrow(F.gelu(layer.wide(layer.wide_norm(x))))


def placed(x, positions, rotary):
    return x if rotary else x + positions.learned.weight[: len(x)]


@pytest.mark.parametrize("rotary", [True, False], ids=["rotary", "learned"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_whole_model_is_its_formula_in_loops(kind, rotary):
    model, source = of_kind(kind, rotary=rotary)

    o = model.logits(model.unroll(WORDS, model.encode(source)))

    for b in range(2):
        memory = real = None
        if kind == "words":
            real = (source[b] != PAD).tolist()
            x = placed(model.memory.words.weight[source[b]], model.memory.positions, rotary)
            for layer in model.memory.layers:
                x = plain_layer(layer, x, lambda t, j, real=real: real[j], rotary)
            memory = F.layer_norm(x, (H,), model.memory.norm.weight, model.memory.norm.bias)
        elif kind == "image":
            real = [True]
            memory = model.memory.norm(source[b] @ model.memory.project.weight.T + model.memory.project.bias)[None]
        x = placed(model.M_i.weight[WORDS[b]], model.positions, rotary)
        for layer in model.layers:
            x = plain_layer(layer, x, lambda t, j: j <= t, rotary, memory, real)
        h = F.layer_norm(x, (H,), model.norm.weight, model.norm.bias)
        expected = h @ model.M_o.weight.T + model.M_o.bias
        torch.testing.assert_close(o[b], expected, atol=1e-5, rtol=1e-5)  # frequencies are single precision


def test_a_decoder_without_rotation_equals_the_encoder_layers_of_torch():
    """torch's pre-norm encoder with a causal mask, given our weights."""
    model, source = of_kind("nothing", rotary=False)
    other = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(H, HEADS, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True),
        num_layers=2,
        norm=nn.LayerNorm(H),
        enable_nested_tensor=False,
    ).double()
    names = {
        "self_attn.in_proj_": "own_qkv.",
        "self_attn.out_proj.": "own_out.",
        "linear1.": "wide.",
        "linear2.": "narrow.",
        "norm1.": "own_norm.",
        "norm2.": "wide_norm.",
    }
    for theirs, ours in zip(other.layers, model.layers, strict=True):
        for (name, mine), kind in [(pair, kind) for pair in names.items() for kind in ("weight", "bias")]:
            theirs.get_parameter(name + kind).data.copy_(ours.get_parameter(mine + kind).data)
    other.norm.load_state_dict(model.norm.state_dict())
    x = model.M_i.weight[WORDS] + model.positions.learned.weight

    expected = other(x, mask=nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.double), is_causal=True)

    torch.testing.assert_close(model.unroll(WORDS, model.encode(source)), expected)


def test_attention_to_the_memory_equals_that_of_torch():
    layer = translator(layers=1).layers[0]
    other = nn.MultiheadAttention(H, HEADS, batch_first=True).double()
    other.in_proj_weight.data.copy_(torch.cat([layer.memory_q.weight, layer.memory_kv.weight]))
    other.in_proj_bias.data.copy_(torch.cat([layer.memory_q.bias, layer.memory_kv.bias]))
    other.out_proj.load_state_dict(layer.memory_out.state_dict())
    x, memory = torch.randn(2, T, H, dtype=torch.double), torch.randn(2, 6, H, dtype=torch.double)
    real = TEXT != PAD

    got = layer.memory_out(layer.attention(layer.split(layer.memory_q(x)), *layer.memory(memory), real[:, None, None]))

    expected, _ = other(x, memory, memory, key_padding_mask=~real)
    torch.testing.assert_close(got, expected)


def test_rotary_scores_depend_on_the_distance_only():
    positions = Positions(blueprint(), count=20)
    q, k = torch.randn(2, 1, HEADS, 1, d)
    x = torch.zeros(1, 1, H)

    def score(m, n):
        turns = [positions(x, torch.tensor([[place]]))[1] for place in (m, n)]
        return (rotate(q, turns[0]) * rotate(k, turns[1])).sum(-1)

    torch.testing.assert_close(score(3, 1), score(9, 7))
    torch.testing.assert_close(score(4, 4), (q * k).sum(-1))
    assert not torch.isclose(score(3, 1), score(1, 3)).any()


def test_embeddings_know_no_position():
    """Else the mixtures that E2E feeds would have several."""
    model = translator(rotary=False)

    torch.testing.assert_close(model.embed(WORDS), model.M_i.weight[WORDS])


@pytest.mark.parametrize("rotary", [True, False], ids=["rotary", "learned"])
def test_the_order_of_the_words_before_matters(rotary):
    """One layer of attention without positions would see a bag of words."""
    model, source = of_kind("nothing", rotary=rotary, layers=1)
    initialise(model, 0.3)  # with large weights a word may attend to one place only
    swapped = WORDS[:, [0, 2, 1, 3, 4]]

    h, other = (model.unroll(words, model.encode(source)) for words in (WORDS, swapped))

    assert not torch.isclose(h[0, 3], other[0, 3]).all()


def test_sources_longer_than_any_seen_are_read():
    for rotary in (True, False):
        model = translator(rotary=rotary)
        longer = torch.cat([TEXT.clamp(min=3)] * 2, 1)  # 12 words; 6 positions

        h = model.unroll(WORDS, model.encode(longer))

        assert h.isfinite().all()


def test_a_language_model_is_a_decoder_only():
    model, source = of_kind("nothing")
    context = model.encode(source)

    assert not [name for name in model.state_dict() if "memory" in name]
    assert context[1] == ((), ())
    torch.testing.assert_close(model.unroll(WORDS[:1], model.encode(source[:1])), model.unroll(WORDS, context)[:1])


def test_the_state_is_a_counter_and_keys_and_values_of_fixed_size():
    model = translator(length=9)
    context = model.encode(TEXT)
    state = model.start(context)
    for t in range(3):
        _, state = model.step(model.embed(WORDS[:, t]), state, context)

    position, caches = state
    assert position.tolist() == [3, 3]
    assert [tensor.shape for cache in caches for tensor in cache] == [(2, HEADS, 9, d)] * 4
    for cache in caches:
        for tensor in cache:
            assert (tensor[:, :, :3] != 0).all()
            assert (tensor[:, :, 3:] == 0).all()


def test_rows_of_one_state_may_be_at_different_positions():
    model = translator()
    context = model.encode(TEXT)
    states = [model.start(context)]
    for t in range(3):
        states.append(model.step(model.embed(WORDS[:, t]), states[-1], context)[1])

    def mixed(early, late):  # the first row of one state, the second of the other
        if isinstance(early, torch.Tensor):
            return torch.stack([early[0], late[1]])
        return tuple(mixed(a, b) for a, b in zip(early, late, strict=True))

    h, _ = model.step(model.embed(torch.stack([WORDS[0, 1], WORDS[1, 3]])), mixed(states[1], states[3]), context)

    expected = model.unroll(WORDS, context)
    torch.testing.assert_close(h, torch.stack([expected[0, 1], expected[1, 3]]))


def test_more_words_than_the_model_was_built_for_are_refused():
    model = translator(length=4)
    context = model.encode(TEXT)

    with pytest.raises(ConfigError) as error:
        model.unroll(WORDS, context)
    assert str(error.value) == "5 words were fed to a transformer built for at most 4; raise its length"

    state = model.start(context)
    for t in range(4):
        _, state = model.step(model.embed(WORDS[:, t]), state, context)
    with pytest.raises(RuntimeError, match="index 4 is out of bounds"):
        model.step(model.embed(WORDS[:, 4]), state, context)


def test_heads_that_do_not_divide_the_hidden_size_are_refused():
    with pytest.raises(ConfigError) as error:
        blueprint(hidden=12, heads=4)
    assert str(error.value) == (
        "hidden must be a multiple of twice the heads, so that the values of a head pair up; got hidden = 12, heads = 4"
    )


def test_dropout_acts_in_training_only():
    model = translator(dropout=0.5)
    undropped = translator()
    undropped.load_state_dict(model.state_dict())

    def logits(network):
        return network.logits(network.unroll(WORDS, network.encode(TEXT)))

    assert not torch.equal(logits(model.train()), logits(model))
    torch.testing.assert_close(logits(undropped.train()), logits(undropped.eval()))
    torch.testing.assert_close(logits(model.eval()), logits(undropped))


def test_dropout_acts_on_embeddings_and_on_what_each_part_adds():
    """Dropped wholly, nothing is left but the bias of the last norm."""
    model, source = of_kind("nothing", dropout=1.0)

    h = model.train().unroll(WORDS, model.encode(source))

    torch.testing.assert_close(h, model.norm.bias.expand(2, T, H))


@torch.no_grad()
def test_dropout_acts_on_attention_weights():
    """Dropped wholly, they attend to nothing."""
    layer = translator(dropout=1.0).layers[0].train()
    q, k, v = torch.randn(3, 2, HEADS, T, d, dtype=torch.double)

    assert (layer.attention(q, k, v, torch.ones(T, T, dtype=torch.bool)) == 0).all()


def test_initialise_leaves_the_gains_of_norms_at_1():
    wide = blueprint(hidden=32, feedforward=64)
    model = Transformer(wide, TextMemory(wide, 90, positions=40), 70, 40)

    initialise(model, std=0.05)

    for name, parameter in model.named_parameters():
        if "bias" in name:
            assert (parameter == 0).all(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            assert parameter.std().item() == pytest.approx(0.05, rel=0.1), name
            assert parameter.mean().item() == pytest.approx(0, abs=0.01), name


def test_only_what_is_learned_is_in_the_checkpoint():
    model = translator()

    assert model.state_dict().keys() == dict(model.named_parameters()).keys()


def test_words_are_written_in_lower_precision_too():
    made = blueprint()
    for memory in (TextMemory(made, 9, positions=6), None):
        model = Transformer(made, memory, V, T)
        source = NOTHING if memory is None else TEXT
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert generate(model, source, *free(source, T), greedy).shape == (2, T)
            assert beam_search(model, source, T, beam=2).words.shape == (2, 2, T)
        model.bfloat16()
        assert generate(model, source, *free(source, T), greedy).shape == (2, T)


@pytest.mark.slow
def test_a_transformer_learns_to_translate_and_reinforce_raises_its_score(tmp_path):
    """As on the recurrent models of docs/results/toy.md: more XENT would stay near 52, BLEU as the reward comes near 60."""
    task = toy.translation(seed=1, train=5000, valid=100, test=300)
    made = Blueprint(hidden=64, heads=4, feedforward=128, layers=2)
    memory = TextMemory(made, len(task.source_vocab), positions=12)
    model = Transformer(made, memory, len(task.target_vocab), task.length)
    initialise(model, 0.1)

    settings = TrainingConfig(batch_size=64, lr=0.003)
    Training(model, Xent(), task, tmp_path / "xent", epochs=8, settings=settings).run()
    xent = evaluate(model, task, task.test, BLEU).score
    reinforce = Reinforce(sentence_bleu, LinearBaseline(model.features))
    settings = TrainingConfig(batch_size=64, lr=0.0003, baseline_lr=0.01)
    Training(model, reinforce, task, tmp_path / "reinforce", epochs=4, settings=settings).run()
    paid = evaluate(model, task, task.test, BLEU).score

    assert xent > 45
    assert paid > max(56, xent + 3)
