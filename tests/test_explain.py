"""What a model did with a source, held to the model itself."""

import json
import math
from dataclasses import replace

import numpy
import pytest
import torch

from seqmixer.config import Config
from seqmixer.data import in_order
from seqmixer.errors import ConfigError, DataError
from seqmixer.rewards.metric import METRICS
from seqmixer.runs import train
from seqmixer.runs.explain import Searches, explain
from seqmixer.runs.inference import Search, write
from seqmixer.types import PAD

SOURCES = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]


def trained(folder, **model):
    folder.mkdir(exist_ok=True)
    (folder / "a").write_text("\n".join(SOURCES) + "\n")
    (folder / "b").write_text("\n".join(source.upper() for source in SOURCES) + "\n")
    data = {"task": "text", "folder": str(folder), "length": 6, **{s: ["a", "b"] for s in ("train", "valid", "test")}}
    settings = {"epochs": 3, "batch_size": 4, "lr": 0.05}
    values = {"name": "run", "data": data, "model": {"hidden": 8, **model}, "algorithm": {"name": "xent"}}
    return train(Config.parse(values | {"training": settings}), folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("lstm"))


def stepped(run, source, words):
    """p of each word and the attention, one step after the other, by the encoder's own sum as a check of the weights."""
    model = run.model
    ids = torch.tensor([run.source_vocab.encode(source)])
    inputs = [1, *words[:-1]]
    with torch.no_grad():
        context = model.encode(ids)
        state = model.start(context)
        p, sums = [], []
        for fed, word in zip(inputs, words, strict=True):
            x = model.embed(torch.tensor([fed]))
            sums.append(model.encoder.attend(model.asked(x, state), context)[0])
            h, state = model.step(x, state, context)
            p.append(model.scores(h).softmax(-1)[0, word].item())
    return p, torch.stack(sums), context[0][0]


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_probabilities_and_attention_are_those_of_the_model_word_by_word(tmp_path, variant):
    run = trained(tmp_path, variant=variant)
    found = run.explain("c d e a", beam=3, samples=2)
    every = [found.greedy, *found.beam, *found.samples]
    assert len(every) == 6
    for hypothesis in every:
        ids = [run.target_vocab.words.index(word) for word in hypothesis.words]
        p, sums, values = stepped(run, "c d e a", ids)
        assert hypothesis.probabilities == pytest.approx(p, abs=1e-5)
        assert hypothesis.log_prob == pytest.approx(sum(map(math.log, p)), abs=1e-4)
        alpha = torch.tensor(hypothesis.attention)  # (T, N)
        assert alpha.shape == (len(ids), len(found.words)) == (len(ids), 5)
        assert torch.allclose(alpha.sum(-1), torch.ones(len(ids)), atol=1e-5)
        assert torch.allclose(alpha @ values, sums, atol=1e-5)


def test_sentences_are_those_that_the_run_writes_whatever_else_is_in_the_batch(run):
    beamed = list(write(run, SOURCES, Search(beam=4, nbest=4)))
    plain = list(write(run, SOURCES, Search()))
    for found, best, first in zip(explain(run, SOURCES, Searches(beam=4)), beamed, plain, strict=True):
        assert [each.text for each in found.beam] == best.hypotheses
        assert [each.log_prob for each in found.beam] == pytest.approx(best.log_probs, abs=1e-4)
        assert found.greedy.text == first.hypotheses[0]
        alone = run.explain(found.source, beam=4)
        assert alone.greedy.words == found.greedy.words
        for a, b in zip(alone.greedy.attention, found.greedy.attention, strict=True):
            assert a == pytest.approx(b, abs=1e-5)  # padding is not there
        assert not found.samples


def test_unknown_words_are_named_where_they_stand(run):
    found = run.explain(" a  zebra c <unk> ")
    assert found.words == ["a", "zebra", "c", "<unk>", "</s>"]
    assert found.unknown == [False, True, False, True, False]


def test_the_reward_is_that_of_the_metric(run):
    (wanted,) = in_order(run.task().test, 8, run.dimensions.length)
    with torch.no_grad():
        words = torch.tensor(
            [run.target_vocab.encode(w.hypotheses[0]) + [PAD] * 6 for w in write(run, SOURCES[:1], Search())]
        )[:, :6]
    (of_metric,) = METRICS["bleu"].reward(wanted.rollout(words.expand(8, -1)))[:1]
    found = run.explain(SOURCES[0], reference=SOURCES[0].upper(), beam=2)
    assert found.greedy.reward == pytest.approx(of_metric.item())
    assert all(each.reward is not None for each in found.beam)
    assert run.explain(SOURCES[0]).greedy.reward is None
    both = explain(run, ["a b", "c"], references=["A B", None], reward=METRICS["exact"].reward)
    assert both[0].greedy.reward == float(both[0].greedy.words == ["A", "B", "</s>"])
    assert both[1].greedy.reward is None


def test_samples_are_drawn_by_the_probabilities_that_are_told(run):
    """Of one word: how often it comes first among many samples, against the sum of what is told of it."""
    found = run.explain("d", samples=2000)
    first = {sample.words[0]: sample.probabilities[0] for sample in found.samples}
    for word, p in first.items():
        share = sum(sample.words[0] == word for sample in found.samples) / 2000
        assert share == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 2000) + 1e-3)


def test_models_without_attention_have_none_and_images_no_words(tmp_path):
    assert trained(tmp_path, name="transformer").explain("a b").greedy.attention is None
    numpy.save(tmp_path / "features.npy", numpy.random.default_rng(0).normal(size=(6, 5)).astype(numpy.float32))
    split = ["train", "train", "train", "train", "valid", "test"]
    entries = [
        {"id": str(i), "row": i, "split": s, "captions": ["A cat.", "One dog sits"]} for i, s in enumerate(split)
    ]
    (tmp_path / "captions.json").write_text(json.dumps(entries))
    values = {"name": "images", "data": {"task": "captions", "folder": str(tmp_path)}, "model": {"hidden": 8}}
    run = train(Config.parse(values | {"algorithm": {"name": "xent"}, "training": {"epochs": 1}}), tmp_path)
    found = run.explain(torch.zeros(5), reference="A CAT!", beam=2)
    assert (found.words, found.unknown, found.greedy.attention) == ([], [], None)
    as_read = explain(run, torch.zeros(1, 5), references=["a cat"], reward=METRICS["bleu"].reward)
    assert found.greedy.reward == as_read[0].greedy.reward


def test_a_cut_sentence_has_no_end(run):
    run = trained(run.folder.parent / "cut", name="elman")
    for sample in run.explain("a b c", samples=50, temperature=50.0).samples:
        assert (sample.words[-1] == "</s>") == (len(sample.words) < 6 or sample.words[5] == "</s>")
        assert len(sample.words) == len(sample.probabilities) <= 6


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"beam": 0}, "beam = 0; the least is 1"),
        ({"samples": -1}, "samples = -1; the least is 0"),
        ({"temperature": 0.0}, "temperature = 0; the least is 0.01"),
    ],
)
def test_wrong_searches_are_refused(run, asked, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        run.explain("a", **asked)


def test_an_empty_source_is_refused(run):
    with pytest.raises(DataError, match="the source is empty; give it at least one word"):
        run.explain(" ")


def test_rewards_that_are_code_need_trust(tmp_path, monkeypatch):
    (tmp_path / "lengths.py").write_text(
        "def own(hypothesis, references):\n    return 1.0 / len(references[0].split())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = trained(tmp_path / "x")
    evaluation = run.config.evaluation.model_copy(update={"metrics": ["lengths:own"]})
    config = run.config.model_copy(update={"evaluation": evaluation})
    with pytest.raises(ConfigError, match="trust"):
        replace(run, config=config, trusted=False).explain("a", reference="A B")
    trusted = replace(run, config=config, trusted=True)
    assert trusted.explain("a", reference="A B").greedy.reward == 0.5
    assert trusted.explain("a").greedy.reward is None
