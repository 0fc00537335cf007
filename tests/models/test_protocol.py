"""What every `SequenceModel` owes to algorithms and searches."""

import itertools

import pytest
import torch
from torch import nn

import tiny
from seqmixer.algorithms import E2E, Dad, LinearBaseline, Mixer, Reinforce, Xent
from seqmixer.decoding import beam_search, free, generate, greedy, sample, score
from seqmixer.models import (
    AttentiveEncoder,
    Blueprint,
    Decoder,
    ElmanCell,
    EncoderDecoder,
    GRUCell,
    ImageEncoder,
    ImageMemory,
    LSTMCell,
    NoEncoder,
    Recurrent,
    TextMemory,
    Transformer,
)
from seqmixer.rewards import sentence_bleu
from seqmixer.types import BOS, EOS, PAD, Batch, SequenceModel

B, T, V, H = 3, 5, 9, 4
WORDS = torch.tensor([[1, 3, 4, 2, 0], [1, 6, 5, 4, 3], [1, 2, 0, 0, 0]])  # (B, T) inputs
TARGET = torch.tensor([[3, 4, 2, 0, 0], [6, 5, 4, 3, 2], [2, 0, 0, 0, 0]])  # (B, T)
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
MEMORIES = {
    "words": (lambda blueprint: TextMemory(blueprint, 9, positions=6), TEXT),
    "image": (lambda blueprint: ImageMemory(blueprint, 6), FEATURES),
    "nothing": (lambda blueprint: None, NOTHING),
}


def recurrent(cell, encoder, released, layers):
    return Recurrent(cell, encoder(), V, H, layers=layers, released=released)


def transformer(memory, rotary, layers):
    blueprint = Blueprint(hidden=H, heads=2, feedforward=6, layers=layers, rotary=rotary)
    return Transformer(blueprint, memory(blueprint), V, length=T)


def huggingface(kind, adapter, ids):
    ends = ids[PAD], ids[EOS], ids[BOS]
    return adapter(tiny.network(kind, V + 2, hidden=H, layers=1, ids=ends, **tiny.NO_DROPOUT[kind]), ids)


HUGGING_FACE = {  # the tokens' ids are in another order than the words', and two belong to no word
    "t5": (EncoderDecoder, (0, 0, 1, 2, 8, 4, 5, 6, 7)),
    "bart": (EncoderDecoder, (1, 0, 2, 3, 8, 4, 5, 6, 7)),
    "marian": (EncoderDecoder, (10, 10, 0, 1, 8, 4, 5, 6, 7)),
    "gpt2": (Decoder, (9, 9, 9, 3, 8, 4, 5, 6, 7)),
    "llama": (Decoder, (2, 1, 2, 0, 8, 4, 5, 6, 7)),
}

MODELS = {
    f"{cell.__name__}-{name}-{'released' if released else 'paper'}-{layers}": (
        recurrent,
        (cell, ENCODERS[name][0], released, layers),
        ENCODERS[name][1],
    )
    for cell, name, released, layers in itertools.product(CELLS, ENCODERS, [False, True], [1, 2])
} | {
    f"Transformer-{name}-{'rotary' if rotary else 'learned'}-{layers}": (
        transformer,
        (MEMORIES[name][0], rotary, layers),
        MEMORIES[name][1],
    )
    for name, rotary, layers in itertools.product(MEMORIES, [False, True], [1, 2])
}
GROWING = {f"huggingface-{kind}": (huggingface, (kind, *made), TEXT) for kind, made in HUGGING_FACE.items()}
MODELS |= GROWING


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def model_and_source(request):
    made, arguments, source = request.param
    model = made(*arguments).double()
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
        return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}

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


FIXED = {name: made for name, made in MODELS.items() if name not in GROWING}


@pytest.mark.parametrize("model_and_source", FIXED.values(), ids=FIXED.keys(), indirect=True)
def test_the_state_of_own_models_keeps_its_size(model_and_source):
    """So that every step is the same program."""
    model, source = model_and_source
    context = model.encode(source)
    _, state = model.step(model.embed(WORDS[:, 0]), model.start(context), context)

    for old, new in zip(leaves(model.start(context)), leaves(state), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
        assert old.dtype in (torch.double, torch.long)


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


TEXT_MODELS = {name: made for name, made in MODELS.items() if made[2] is TEXT}


@pytest.mark.parametrize("model_and_source", TEXT_MODELS.values(), ids=TEXT_MODELS.keys(), indirect=True)
def test_padding_changes_nothing(model_and_source):
    model, source = model_and_source
    padded = torch.cat([source, torch.full((B, 3), PAD)], 1)

    torch.testing.assert_close(model.unroll(WORDS, model.encode(padded)), model.unroll(WORDS, model.encode(source)))


def test_a_step_leaves_the_state_it_came_from_as_it_was(model_and_source):
    """Hypotheses share their past."""
    model, source = model_and_source
    context = model.encode(source)
    _, state = model.step(model.embed(WORDS[:, 0]), model.start(context), context)
    before = [leaf.clone() for leaf in leaves(state)]

    model.step(model.embed(WORDS[:, 1]), state, context)

    assert all(torch.equal(old, leaf) for old, leaf in zip(before, leaves(state), strict=True))


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
    h = model.unroll(WORDS, model.encode(source))
    p = model.scores(h).softmax(-1)

    assert (p[..., [PAD, BOS]] == 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(B, T, dtype=torch.double))
    each = [model.log_prob(h, torch.full((B, T), word)) for word in range(V)]  # by the model's own way, if it has one
    torch.testing.assert_close(torch.stack(each, -1).exp(), p)


class Frequencies(SequenceModel):
    """Every word has a fixed score. What it says of PAD and BOS is what a model of one's own may say."""

    features = V

    def __init__(self, of_pad, of_bos):
        super().__init__()
        self.o = nn.Parameter(torch.linspace(-1, 1, V, dtype=torch.double))
        with torch.no_grad():
            self.o[PAD], self.o[BOS] = of_pad, of_bos

    def encode(self, source):
        return (self.o.new_zeros(len(source), 1),)

    def start(self, context):
        return context

    def embed(self, words):
        return self.o[words].unsqueeze(-1)

    def step(self, x, state, context):
        return self.o.expand(len(x), V), state

    def logits(self, h):
        return h

    def unroll(self, words, context):
        return self.o.expand(*words.shape, V)


@pytest.fixture(params=[(3.0, 5.0), (-torch.inf, -torch.inf)], ids=["likely", "-inf"])
def unmasked(request):
    return Frequencies(*request.param)


def of_words(model):
    """log p of each word, all others taken away; -inf for PAD and BOS."""
    return torch.cat([torch.full((EOS,), -torch.inf), model.o.detach()[EOS:].log_softmax(-1)])


def test_a_model_need_not_exclude_pad_and_bos_to_write_and_to_score(unmasked):
    source = torch.zeros(2000, 0, dtype=torch.long)
    log_p = of_words(unmasked)

    drawn = generate(unmasked, source, *free(source, 1), sample).flatten()
    found = beam_search(unmasked, source[:1], T, beam=3)
    (best,) = generate(unmasked, source[:1], *free(source[:1], T), greedy)

    counts = torch.bincount(drawn, minlength=V) / len(drawn)
    torch.testing.assert_close(counts.double(), log_p.exp(), atol=0.05, rtol=0)  # five standard deviations
    assert (counts[[PAD, BOS]] == 0).all()
    assert best.tolist() == [V - 1] * T  # the most likely word
    for words, of_beam in zip(found.words[0], found.log_prob[0], strict=True):
        expected = log_p[words[words != PAD]].sum()
        torch.testing.assert_close(score(unmasked, source[:1], words[None]).squeeze(), expected)
        torch.testing.assert_close(of_beam.double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("learning", [Xent(), E2E([2], k=3), E2E([T], k=V)], ids=["xent", "e2e", "e2e, k = V"])
def test_a_model_need_not_exclude_pad_and_bos_to_learn(unmasked, learning):
    loss = learning(unmasked, Batch(TARGET[:, :0], TARGET, TARGET.unsqueeze(1)), 0).value
    loss.backward()

    torch.testing.assert_close(loss.detach(), -of_words(unmasked)[TARGET[TARGET != PAD]].sum() / B)
    assert unmasked.o.grad.isfinite().all()
    assert (unmasked.o.grad[[PAD, BOS]] == 0).all()


def test_what_a_model_returned_as_logits_is_not_written_to(unmasked):
    before = unmasked.o.detach().clone()
    with torch.no_grad():
        unmasked.scores(unmasked.o)
    assert torch.equal(unmasked.o, before)


def test_only_logits_that_a_model_keeps_are_copied(model_and_source):
    """PAD and BOS are excluded in the tensor that `logits` made, as if it had been copied."""
    model, source = model_and_source
    made, h = [], model.unroll(WORDS, model.encode(source)).detach()
    model.logits = lambda h, plain=model.logits: made.append(plain(h)) or made[-1]

    excluded = model.scores(h)

    assert model.fresh_logits
    assert excluded.data_ptr() == made[0].data_ptr()
    kept = type(model).logits(model, h)
    assert kept.data_ptr() != type(model).logits(model, h).data_ptr()
    assert torch.equal(excluded[..., EOS:], kept[..., EOS:])


def test_a_models_own_log_prob_may_be_anything_where_nothing_is_scored():
    class Own(Frequencies):
        def log_prob(self, h, words):
            return h.log_softmax(-1).gather(-1, words.unsqueeze(-1)).squeeze(-1)

    model = Own(-torch.inf, -torch.inf)
    expected = torch.stack([of_words(model)[words[words != PAD]].sum() for words in TARGET])
    torch.testing.assert_close(score(model, TARGET[:, :0], TARGET), expected)


ALGORITHMS = {
    "xent": lambda baseline: Xent(),
    "dad": lambda baseline: Dad([0.5]),
    "e2e": lambda baseline: E2E([2], k=3),
    "reinforce": lambda baseline: Reinforce(sentence_bleu, baseline),
    "mixer": lambda baseline: Mixer(sentence_bleu, baseline, T, [2]),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_gives_every_parameter_a_finite_gradient(model_and_source, algorithm):
    model, source = model_and_source
    learning = ALGORITHMS[algorithm](LinearBaseline(model.features).double())

    learning(model, Batch(source, TARGET, TARGET.unsqueeze(1)), 0).value.backward()

    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, parameter in trained.items():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert sum(parameter.grad.abs().sum() for parameter in trained.values()) > 0


@pytest.mark.parametrize("choose", [greedy, sample])
def test_sentences_can_be_written(model_and_source, choose):
    model, source = model_and_source

    words = generate(model, source, *free(source, T), choose)

    assert words.shape == (B, T)
    for row in words.tolist():
        sentence = row[: row.index(EOS)] if EOS in row else row
        assert not {PAD, BOS, EOS} & set(sentence)
        assert set(row[len(sentence) + 1 :]) <= {PAD}


def test_a_beam_holds_sentences_with_the_probability_the_model_gives_them(model_and_source):
    """A search that mixed up the states of its hypotheses would not."""
    model, source = model_and_source

    found = beam_search(model, source, T, beam=3)

    for k in range(3):
        torch.testing.assert_close(score(model, source, found.words[:, k]).float(), found.log_prob[:, k])


def test_a_beam_of_1_is_greedy_search(model_and_source):
    model, source = model_and_source

    torch.testing.assert_close(
        beam_search(model, source, T, beam=1).words[:, 0], generate(model, source, *free(source, T), greedy)
    )
