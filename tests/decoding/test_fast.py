"""Searches as one program: what is written is what the plain search writes. Replayed from the third call on, on CUDA."""

import gc

import pytest
import torch

from networks import DEVICES, MODELS, T, batch_for, network
from seqmixer.decoding import beam_search, fast, free, generate, greedy, sample
from seqmixer.kernels import plain


def on(device, model_name):
    """A model, and three sources of one shape for it."""
    return network(model_name).to(device), [batch_for(model_name, seed).source.to(device) for seed in range(3)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("choose", [greedy, sample])
@pytest.mark.parametrize("model_name", MODELS)
def test_words_are_those_of_the_plain_loop_from_the_same_noise(model_name, choose, device):
    model, sources = on(device, model_name)
    given = batch_for(model_name).target.to(device)
    keep = (torch.arange(T, device=device) < 2).expand_as(given)
    written = []
    for seed, source in enumerate(sources):
        for forced in (free(source, T), (given, keep)):
            torch.manual_seed(seed)
            words = fast.generate(model, source, *forced, choose)
            torch.manual_seed(seed)
            with plain():
                assert torch.equal(words, generate(model, source, *forced, choose))
            written.append(words)
    captured = len(fast.programs(model).captured)
    assert captured == (0 if device == "cpu" else 1)  # what is given and kept are inputs of it
    if choose is sample:
        assert len({str(words.tolist()) for words in written}) > 3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model_name", MODELS)
def test_a_beam_is_that_of_the_plain_search(model_name, device):
    model, sources = on(device, model_name)
    for source in sources:
        found = fast.beam_search(model, source, T, 3, 0.5)
        with plain():
            expected = beam_search(model, source, T, 3, 0.5)
        assert torch.equal(found.words, expected.words)
        torch.testing.assert_close(found.log_prob, expected.log_prob, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_are_read_anew_and_results_are_kept(device):
    """A program reads the weights where they are; what it wrote before stays as it was."""
    model, (source, *_) = on(device, "lstm-text")
    first = [fast.generate(model, source, *free(source, T), greedy) for _ in range(3)]
    kept = [words.clone() for words in first]
    with torch.no_grad():
        model.M_o.bias[5] = 100.0

    assert (fast.generate(model, source, *free(source, T), greedy) == 5).all()
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    assert torch.equal(first[0], first[2])


def test_a_model_that_is_gone_takes_its_programs_with_it():
    model, (source, *_) = on("cpu", "lstm-text")
    fast.generate(model, source, *free(source, T), greedy)
    before = len(fast._programs)
    del model
    gc.collect()

    assert len(fast._programs) < before
