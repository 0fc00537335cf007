"""Models of transformers do behind the six methods what they do by themselves."""

import itertools
from contextlib import nullcontext

import pytest
import torch
import transformers
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_layers import GradientCheckpointingLayer

import tiny
from seqmixer.algorithms import E2E, LinearBaseline, Reinforce, Xent
from seqmixer.algorithms.reference import frozen
from seqmixer.data import token_ids
from seqmixer.decoding import beam_search, free, generate, greedy, score, shift
from seqmixer.errors import ConfigError, DataError
from seqmixer.kernels import plain
from seqmixer.losses import log_prob
from seqmixer.models.huggingface import Adapter, Decoder, EncoderDecoder, Pretrained, load, save, tied_names, untie
from seqmixer.models.huggingface.recomputing import recompute_layers, recomputes
from seqmixer.types import BOS, EOS, PAD, UNK, Batch

ENCODERS = ["t5", "mt5", "bart", "marian", "nllb"]
DECODERS = ["gpt2", "llama"]
ROWS = 24  # of every embedding; the last three belong to no word
# padding, BOS, EOS, UNK, and all others: as T5 has them, and as GPT-2 has them, with one token for all four
IDS = {"gpt2": (9, 9, 9, 9, *range(9), *range(10, ROWS - 3))}
T5_IDS = (0, 3, 1, 2, *range(3, ROWS - 3))
SOURCE = torch.tensor([[5, 6, 7, 8, 9, EOS], [12, 6, EOS, PAD, PAD, PAD], [7, 7, 7, 4, EOS, PAD]])
TARGET = torch.tensor([[5, 9, EOS, PAD], [11, 5, 8, EOS], [EOS, PAD, PAD, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1))
T = 6


def adapted(kind, device="cpu", **settings):
    ids = IDS.get(kind, T5_IDS)
    network = tiny.network(kind, ROWS, ids=(ids[PAD], ids[EOS], ids[BOS]), **settings).to(device)
    return (Decoder if kind in DECODERS else EncoderDecoder)(network, ids)


@pytest.fixture(params=ENCODERS + DECODERS)
def model(request):
    return adapted(request.param)


def stepped(model, words, context):
    state, features = model.start(context), []
    for t in range(words.shape[1]):
        h, state = model.step(model.embed(words[:, t]), state, context)
        features.append(h)
    return torch.stack(features, 1)


def by_itself(model, source, words):
    """The network's own logits for one sentence, without padding, in its own order; source (N,), words (T,)."""
    source, words = model.ids[source[source != PAD]], model.ids[words[words != PAD]]
    if isinstance(model, EncoderDecoder):
        start = torch.tensor([model.network.config.decoder_start_token_id])
        return model.network(input_ids=source[None], decoder_input_ids=torch.cat([start, words[:-1]])[None]).logits[0]
    return model.network(input_ids=torch.cat([source, words[:-1]])[None]).logits[0, len(source) - 1 :]


@pytest.mark.parametrize("kind", ENCODERS + DECODERS)
def test_a_network_is_wrapped_where_it_is(kind, monkeypatch):
    """What it is tried with is made on its own device. Tensors of `meta` have a device and no values to compare."""
    tried = []

    def on_the_device(adapter):
        tried.extend(part.device.type for part in (adapter.ids, *adapter.example()))
        return 1.0

    monkeypatch.setattr(Adapter, "fitting_scale", on_the_device)
    monkeypatch.setattr(Adapter, "computing", lambda adapter, like: nullcontext())  # meta has no autocast
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda mask: False)  # of masks: is all of it true?
    with torch.no_grad():
        adapted(kind, device="meta", attn_implementation="eager")  # the default reads more of its masks
    assert tried == ["meta"] * 3


def never_written(model):
    """The network's ids that are no word, and those of PAD and BOS where they have one of their own."""
    written = (
        set(model.ids[EOS:].tolist())
        if model.ids[UNK] != model.ids[EOS]
        else {int(model.ids[EOS]), *model.ids[UNK + 1 :].tolist()}
    )
    return sorted(set(range(ROWS)) - written)


@pytest.mark.parametrize("way", ["unrolled", "stepped"])
def test_logits_in_a_padded_batch_are_those_of_the_network_for_each_sentence_alone(model, way):
    context = model.encode(SOURCE)

    h = model.unroll(shift(TARGET), context) if way == "unrolled" else stepped(model, shift(TARGET), context)

    o = model.logits(h)
    assert o.shape == (*TARGET.shape, len(model.ids))
    for b in range(3):
        own = by_itself(model, SOURCE[b], TARGET[b])[:, model.ids]  # (n, V)
        possible = [EOS, *range(UNK + 1, len(model.ids))]
        torch.testing.assert_close(o[b, : len(own), possible], own[:, possible], atol=1e-4, rtol=0)


def generated(model, **settings):
    """What `generate` of transformers writes for the padded batch, as words of seqmixer."""
    ids, decoder = model.ids[SOURCE], isinstance(model, Decoder)
    real = SOURCE != PAD
    if decoder:  # they are padded on the left there
        shifts = (SOURCE == PAD).sum(-1).tolist()
        ids, real = (torch.stack([row.roll(n) for row, n in zip(rows, shifts, strict=True)]) for rows in (ids, real))
    with torch.no_grad():
        written = model.network.generate(
            ids,
            attention_mask=real.long(),
            max_new_tokens=T,
            do_sample=False,
            suppress_tokens=never_written(model) or None,
            forced_eos_token_id=None,
            eos_token_id=int(model.ids[EOS]),
            pad_token_id=ROWS - 1,  # a token of its own: GPT-2 has none
            **settings,
        )
    own = {int(token): word for word, token in reversed(list(enumerate(model.ids))) if word >= EOS} | {ROWS - 1: PAD}
    own[int(model.ids[EOS])] = EOS
    rows = written[:, ids.shape[1] if decoder else 1 :].tolist()
    return torch.tensor([[own[token] for token in row] + [PAD] * (T - len(row)) for row in rows])


def test_greedy_search_writes_what_generate_writes(model):
    assert torch.equal(generate(model, SOURCE, *free(SOURCE, T), greedy), generated(model))


@pytest.mark.parametrize("beam", [2, 5])
def test_beam_search_finds_what_generate_finds_or_better(model, beam):
    found = beam_search(model, SOURCE, T, beam)
    theirs = score(model, SOURCE, generated(model, num_beams=beam, length_penalty=0.0, renormalize_logits=True))

    assert (found.log_prob[:, 0] >= theirs - 1e-4).all()
    for b in range(3):  # and is as likely as it says, by the network alone
        words = found.words[b, 0]
        words = words[words != PAD]
        own = by_itself(model, SOURCE[b], words).float()
        own[:, never_written(model)] = -1e4
        log_p = own.log_softmax(-1).gather(-1, model.ids[words].unsqueeze(-1)).sum()
        torch.testing.assert_close(log_p, found.log_prob[b, 0], atol=1e-4, rtol=0)


class Unsynchronised(TorchDispatchMode):
    """An error for operations that wait for a GPU to say what a tensor holds."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        waits = (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.is_nonzero)
        assert operation.overloadpacket not in waits
        return operation(*args, **(kwargs or {}))


def test_nothing_is_asked_of_the_device_so_that_a_step_can_be_captured(model):
    algorithm = Reinforce(lambda rollout: torch.rand(6), LinearBaseline(model.features), samples=2)
    with Unsynchronised():
        algorithm(model, BATCH, 0).value.backward()
        beam_search(model, SOURCE, T, 2)
    with Unsynchronised(), pytest.raises(AssertionError):
        bool(SOURCE.any())


@pytest.mark.parametrize("bias", [False, True])
def test_log_prob_and_its_gradient_are_those_of_the_scores(model, bias):
    if bias and not model.bias:
        model.network.get_output_embeddings().bias = nn.Parameter(torch.randn(ROWS))
        model.scale = 1.0
    if model.bias:
        model.network.get_buffer(model.bias).normal_()
    parameters = [p for p in model.parameters() if p.requires_grad]

    def learnt(log_p):
        values = log_p(model.unroll(shift(TARGET), model.encode(SOURCE)))[TARGET != PAD]
        return values, torch.autograd.grad(values.sum(), parameters, materialize_grads=True)

    with plain():
        expected, gradients = learnt(lambda h: log_prob(model.scores(h), TARGET))
    found, others = learnt(lambda h: model.log_prob(h, TARGET))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for a, b in zip(others, gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ENCODERS + DECODERS)
def test_masks_are_right_for_both_kinds_of_attention(kind):
    """Where attention is `eager`, masks are added to scores; true and false would be 1 and 0 there."""
    found = []
    for attention in ("eager", "sdpa"):
        model = adapted(kind, attn_implementation=attention)
        model.load_state_dict(found[0][0] if found else model.state_dict())
        found.append((model.state_dict(), stepped(model, shift(TARGET), model.encode(SOURCE))))
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-5, rtol=1e-4)


def test_a_window_that_a_sentence_passes_is_kept():
    network = tiny.network("llama", ROWS, ids=(0, 1, 3))
    narrow = transformers.MistralForCausalLM(
        transformers.MistralConfig(**{**network.config.to_dict(), "model_type": "mistral", "sliding_window": 3})
    )
    model = Decoder(narrow.eval(), T5_IDS)
    h = model.unroll(shift(TARGET), model.encode(SOURCE))
    for b in range(3):
        own = by_itself(model, SOURCE[b], TARGET[b])[:, model.ids]
        torch.testing.assert_close(model.logits(h)[b, : len(own), 4:], own[:, 4:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_without_a_prompt_begins_after_bos(kind):
    model = adapted(kind)
    h = model.unroll(shift(TARGET), model.encode(TARGET[:, :0]))

    own = by_itself(model, torch.tensor([BOS]), TARGET[1])[:, model.ids]

    torch.testing.assert_close(model.logits(h)[1, :, 4:], own[:, 4:], atol=1e-4, rtol=0)


def test_an_encoder_decoder_without_a_source_is_refused():
    with pytest.raises(ConfigError) as caught:
        adapted("t5").encode(SOURCE[:, :0])
    assert str(caught.value) == (
        "an encoder-decoder reads a source, but the data has none (data.source = false); use a decoder"
    )


def test_the_estimator_of_reinforce_is_unbiased_over_every_sentence_of_a_t5():
    """Summed over all sentences, p(w) * gradient(w) is the gradient of -E[r] (Eq. 9)."""
    ids = (0, 0, 1, 2, 3, 4)
    model = EncoderDecoder(tiny.network("t5", 6, ids=(0, 1, 0), layers=1).double(), ids)
    source, target = torch.tensor([[4, 5, EOS]]), torch.tensor([[4, EOS, PAD]])
    words = [UNK, 4, 5]
    ended = [[*start, EOS, *[PAD] * (2 - n)] for n in range(3) for start in itertools.product(words, repeat=n)]
    every = torch.tensor(ended + [list(cut) for cut in itertools.product(words, repeat=3)])
    r = torch.rand(len(every), dtype=torch.double)
    o = model.scores(model.unroll(shift(every), model.encode(source.expand(len(every), -1))))
    p = (log_prob(o, every) * (every != PAD)).sum(-1).exp()
    parameters = list(model.parameters())

    estimated = [torch.zeros_like(parameter) for parameter in parameters]
    baseline = LinearBaseline(model.features).double()
    for i in range(len(every)):
        algorithm = Reinforce(lambda rollout, i=i: r[i : i + 1], baseline, lambda *_, i=i: every[i : i + 1])
        loss = algorithm(model, Batch(source, target, target.unsqueeze(1)), 0)
        for total, g in zip(estimated, torch.autograd.grad(loss.value, parameters), strict=True):
            total += p[i].detach() * g

    assert p.sum().item() == pytest.approx(1)
    for a, b in zip(estimated, torch.autograd.grad(-(p * r).sum(), parameters), strict=True):
        torch.testing.assert_close(a, b)


def test_a_source_read_once_for_two_sentences_gives_the_gradient_of_one_read_twice(model):
    words, r, twice = TARGET[[0, 1, 1, 2, 2, 0]], torch.rand(6), torch.tensor([0, 0, 1, 1, 2, 2])
    larger = Batch(SOURCE[twice], TARGET[twice], TARGET[twice].unsqueeze(1))
    learnt, baseline = [p for p in model.parameters() if p.requires_grad], LinearBaseline(model.features)

    def gradients(batch, samples):
        loss = Reinforce(lambda rollout: r, baseline, lambda *_: words, samples=samples)(model, batch, 0).value
        return torch.autograd.grad(loss, learnt, materialize_grads=True)

    for a, b in zip(gradients(BATCH, 2), gradients(larger, 1), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["bart", "gpt2"])
def test_what_is_computed_in_bfloat16_keeps_its_weights_and_gradients_in_single_precision(kind):
    exact = adapted(kind)
    brief = type(exact)(exact.network, exact.ids.tolist(), torch.bfloat16)
    h = brief.unroll(shift(TARGET), brief.encode(SOURCE))
    o, expected = brief.logits(h), exact.logits(exact.unroll(shift(TARGET), exact.encode(SOURCE)))

    assert (h.dtype, o.dtype) == (torch.float32, torch.float32)
    assert 0 < (o - expected).abs().max() < 0.05 * expected[..., 4:].abs().max()
    torch.testing.assert_close(stepped(brief, shift(TARGET), brief.encode(SOURCE)), h, atol=0.1, rtol=0.1)
    for algorithm in (Xent(), E2E([2], k=3), Reinforce(lambda rollout: torch.ones(3), LinearBaseline(8))):
        algorithm(brief, BATCH, 0).value.backward()
    assert {(p.dtype, p.grad.dtype) for p in brief.parameters() if p.grad is not None} == {
        (torch.float32, torch.float32)
    }


def layers_of(network):
    return [module for module in network.modules() if isinstance(module, GradientCheckpointingLayer)]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", ["t5", "bart", "marian", "gpt2", "llama"])
def test_layers_computed_again_give_the_same_gradient_with_and_without_dropout(kind, training):
    def gradients(model):
        calls = dict.fromkeys(layers_of(model.network), 0)
        for layer in calls:
            layer.register_forward_pre_hook(lambda layer, given: calls.update({layer: calls[layer] + 1}))
        torch.manual_seed(2)
        Xent()(model.train(training), BATCH, 0).value.backward()
        return {name: p.grad for name, p in model.named_parameters()}, {*calls.values()}

    torch.manual_seed(1)
    expected, calls = gradients(adapted(kind))
    assert calls == {1}
    torch.manual_seed(1)
    model = adapted(kind)
    recompute_layers(model.network)
    found, calls = gradients(model)
    assert calls == {2}  # once more in the backward pass
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], msg=name)

    assert generate(model, SOURCE, *free(SOURCE, T), greedy).shape == (3, T)
    with pytest.raises(ConfigError) as caught:
        E2E([2], k=3)(model, BATCH, 0)
    assert str(caught.value) == (
        "model.checkpointing = true and an algorithm that steps through the words with gradient (E2E); choose another "
        "algorithm, or set model.checkpointing = false"
    )


def test_a_copy_of_a_model_computes_its_own_layers_again():
    model = adapted("t5").eval()
    recompute_layers(model.network)
    copy = frozen(model)
    before = copy.unroll(shift(TARGET), copy.encode(SOURCE))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    torch.testing.assert_close(copy.unroll(shift(TARGET), copy.encode(SOURCE)), before)


def test_tied_weights_are_saved_once_and_loaded_everywhere(model):
    saved = {name: weight.clone() for name, weight in model.state_dict().items()}
    pointers = [weight.data_ptr() for weight in model.state_dict().values()]
    assert len(set(pointers)) == len(pointers)
    before = model.logits(model.unroll(shift(TARGET), model.encode(SOURCE)))
    tied = dict(tied_names(model))
    tiny.scrambled(model.network)

    model.load_state_dict(saved)

    assert tied_names(model) == tied
    torch.testing.assert_close(model.logits(model.unroll(shift(TARGET), model.encode(SOURCE))), before)


def test_weights_can_be_untied():
    model = adapted("t5")
    (output,) = [name for name in tied_names(model) if "lm_head" in name]
    before = model.logits(model.unroll(shift(TARGET), model.encode(SOURCE)))

    untie(model, tied_names(model).keys() - {output})

    assert output not in tied_names(model)
    assert len(tied_names(model)) == 2
    torch.testing.assert_close(model.logits(model.unroll(shift(TARGET), model.encode(SOURCE))), before)
    nn.init.zeros_(model.network.shared.weight)
    assert model.network.lm_head.weight.abs().sum() > 0


@pytest.fixture(params=["t5", "bart", "gpt2"])
def folder(request, tmp_path):
    ids = IDS.get(request.param, T5_IDS)
    tiny.network(request.param, ROWS, ids=(ids[PAD], ids[EOS], ids[BOS])).save_pretrained(tmp_path)
    return Pretrained(str(tmp_path), ids)


def test_lora_begins_as_the_model_it_is_added_to_trains_little_and_is_merged_when_saved(folder, tmp_path):
    plain, model = load(folder), load(folder, lora_rank=2)
    h = plain.unroll(shift(TARGET), plain.encode(SOURCE))
    torch.testing.assert_close(model.unroll(shift(TARGET), model.encode(SOURCE)), h)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)

    for name, parameter in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(parameter)
    expected = model.logits(model.unroll(shift(TARGET), model.encode(SOURCE)))
    save(model, tmp_path / "merged", lora=True)

    merged = load(Pretrained(str(tmp_path / "merged"), folder.ids))
    assert not [name for name, _ in merged.named_parameters() if "lora" in name]
    torch.testing.assert_close(
        merged.logits(merged.unroll(shift(TARGET), merged.encode(SOURCE))), expected, atol=1e-4, rtol=1e-4
    )
    assert (expected - plain.logits(h)).abs().max() > 0.1


def test_lora_is_trained_also_where_layers_are_computed_again(folder):
    model = load(folder, lora_rank=2, checkpointing=True).train()

    Xent()(model, BATCH, 0).value.backward()

    assert recomputes(model.network)
    gradients = [p.grad for name, p in model.named_parameters() if "lora_B" in name]
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)


def test_without_weights_only_the_shape_is_read(folder):
    full, shape = load(folder), load(Pretrained(folder.path, folder.ids, weights=False))

    assert {n: p.shape for n, p in full.state_dict().items()} == {n: p.shape for n, p in shape.state_dict().items()}
    assert not torch.equal(next(full.parameters()), next(shape.parameters()))


def message(function):
    with pytest.raises((ConfigError, DataError)) as caught:
        function()
    return str(caught.value)


def test_a_folder_with_pickled_weights_only_is_refused(folder, tmp_path):
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")

    assert message(lambda: load(folder)) == (
        f"model.path = '{tmp_path}': no weights in safetensors, but pytorch_model.bin; seqmixer never unpickles. Load "
        "the model with transformers once and save it with save_pretrained"
    )


def test_a_folder_that_asks_for_code_of_its_own_is_refused(folder, tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Net"}}'
    )
    (tmp_path / "mine.py").write_text("raise SystemExit('foreign code was run')")

    assert message(lambda: load(folder)).startswith(f"model.path = '{tmp_path}' cannot be loaded: ")


def test_a_tokenizer_with_more_tokens_than_the_model_has_embeddings_is_refused():
    network = tiny.network("t5", ROWS)

    assert message(lambda: EncoderDecoder(network, (0, 3, 1, 2, *range(3, ROWS + 2)))) == (
        f"model.path: the tokenizer has the id {ROWS + 1}, but the model has only {ROWS} embeddings; "
        "call resize_token_embeddings(len(tokenizer)) on it and save it again"
    )


def test_a_model_that_does_not_say_how_decoding_begins_is_refused():
    network = tiny.network("t5", ROWS)
    network.config.decoder_start_token_id = None

    assert message(lambda: EncoderDecoder(network, T5_IDS)) == (
        "model.path: config.json has no decoder_start_token_id, the token that decoding begins with"
    )


def test_a_model_with_a_vocabulary_for_each_side_is_refused():
    network = tiny.network("marian", ROWS, share_encoder_decoder_embeddings=False, tie_word_embeddings=False)

    assert message(lambda: EncoderDecoder(network, T5_IDS)) == (
        "model.path: the model has a vocabulary for each side; seqmixer takes those with one for both"
    )


def test_a_model_whose_logits_are_made_in_another_way_is_refused():
    network = tiny.network("llama", ROWS)
    plain = network.lm_head.forward
    calls = []
    network.lm_head.forward = lambda h: calls.append(h) or (plain(h) if len(calls) > 1 else 5 * plain(h).tanh())

    assert message(lambda: Decoder(network, T5_IDS)) == (
        "model.path: a llama model makes its logits otherwise than M_o h + bias; seqmixer cannot use it. T5, BART, "
        "Marian, NLLB, GPT-2, Llama and their like work"
    )


@pytest.mark.parametrize(("kind", "positions"), [("bart", 40), ("gpt2", 120)])
def test_a_source_that_the_model_has_no_positions_for_is_refused(kind, positions):
    long = torch.full((1, positions + 1), 5)

    assert message(lambda: adapted(kind).encode(long)) == (
        f"{positions + 1} tokens, but the model has positions for {positions}; crop the sources with data.source_length"
    )


def test_the_words_of_a_tokenizer_reach_every_token_once(tmp_path):
    for tokenizer in (tiny.sentencepieces(bos=True), tiny.byte_pieces()):
        ids = token_ids(tokenizer, "here")
        rest = [i for i in ids[UNK + 1 :]]
        assert sorted({*rest, ids[EOS], ids[UNK], ids[PAD]}) == sorted(tokenizer.get_vocab().values())
        assert not set(rest) & {ids[EOS], ids[UNK], ids[PAD]}
