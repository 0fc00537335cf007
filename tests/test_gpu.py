"""The same on an accelerator: run by hand on one, `python -m pytest -m gpu`."""

import pytest
import torch

from seqmixer.algorithms import LinearBaseline, Mixer
from seqmixer.config import TrainingConfig
from seqmixer.data import in_order, toy
from seqmixer.decoding import beam_search, free, generate, greedy, score
from seqmixer.evaluation import evaluate, perplexity
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent, initialise
from seqmixer.rewards import (
    BLEU,
    CharacterTable,
    DocumentFrequencies,
    Merges,
    Style,
    chrf_metric,
    cider_metric,
    on_whole_words,
    replayable,
    sentence_bleu,
)
from seqmixer.training import Callback, Training, epochs, read_log
from seqmixer.types import EOS, PAD, Rollout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def model_for(task):
    model = Recurrent(LSTMCell, AttentiveEncoder(len(task.source_vocab), 32, 20), len(task.target_vocab), 32)
    initialise(model, 0.2)
    return model


def test_searches_find_the_same_sentences_as_on_the_cpu():
    task = toy.translation(seed=1, train=200, valid=20, test=40)
    model = model_for(task)
    (batch,) = in_order(task.test, 40, task.length)
    here = (
        generate(model, batch.source, *free(batch.source, task.length), greedy),
        beam_search(model, batch.source, task.length, 5),
    )
    model, source = model.cuda(), batch.source.cuda()
    there = generate(model, source, *free(source, task.length), greedy), beam_search(model, source, task.length, 5)
    assert torch.equal(here[0], there[0].cpu())
    torch.testing.assert_close(here[1].log_prob, there[1].log_prob.cpu(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        score(model, source, there[1].words[:, 0]), there[1].log_prob[:, 0], rtol=1e-4, atol=1e-4
    )


def test_mixer_trains_and_resumes(tmp_path):
    task = toy.translation(seed=1, train=2000, valid=50, test=50)
    settings = TrainingConfig(batch_size=64, lr=0.004, rl_lr=0.001, device="cuda")

    def training(count):
        torch.manual_seed(0)
        model = model_for(task)
        algorithm = Mixer(sentence_bleu, LinearBaseline(model.features), task.length, [15, 15, 10, 5, 0])
        return Training(model, algorithm, task, tmp_path, epochs=count, settings=settings)

    training(3).run()
    run = training(5)
    run.run()
    events = epochs(read_log(tmp_path))
    assert [event["epoch"] for event in events] == [1, 2, 3, 4, 5]
    assert events[-1]["train"]["reward"] > 0
    best = max(events, key=lambda event: (event["valid"]["bleu"], -event["valid"]["perplexity"]))["valid"]
    assert evaluate(run.model, task, task.valid, BLEU).score == pytest.approx(best["bleu"], abs=0.01)
    assert perplexity(run.model, task, task.valid) == pytest.approx(best["perplexity"], rel=1e-3)
    assert best["perplexity"] < 0.5 * len(task.target_vocab)  # that of a model that knows nothing


def test_the_kl_term_and_skipped_batches_are_part_of_the_captured_step(tmp_path):
    task = toy.translation(seed=1, train=320, valid=20, test=20)
    torch.manual_seed(0)
    model = model_for(task)

    first = torch.tensor(task.train.sources[0], device="cuda")

    @replayable
    def reward(rollout):
        same = (rollout.source[:, : len(first)] == first[: rollout.source.shape[1]]).all(-1)
        return sentence_bleu(rollout).masked_fill(same, float("nan"))

    notes = []

    class Notes(Callback):
        def note(self, line):
            notes.append(line)

    algorithm = Mixer(reward, LinearBaseline(model.features), task.length, [15, 0, 0], kl=0.1)
    settings = TrainingConfig(batch_size=4, lr=0.004, device="cuda", nonfinite="skip")
    run = Training(model, algorithm, task, tmp_path, epochs=3, settings=settings, callbacks=[Notes()])
    run.run()
    assert not run.step.programs.impossible
    assert run.step.programs.captured
    assert any("not a finite number: reward" in line for line in notes)
    assert all(weight.isfinite().all() for weight in run.model.state_dict().values())


def sentences(words, batch=64, length=20):
    """Random words, ended at random lengths."""
    steps, end = torch.arange(length), torch.randint(2, length, (batch, 1))
    return torch.randint(4, words, (batch, length)).masked_fill(steps == end, EOS).masked_fill(steps > end, PAD)


def test_rewards_with_tables_of_their_own_are_captured_and_equal_the_cpu():
    vocabulary = ["<pad>", "<s>", "</s>", "<unk>", "un@@", "una@@", "able", "ble", "cat", "sat", "on@@", "ly"]
    hypotheses, references = sentences(len(vocabulary)), torch.stack([sentences(len(vocabulary)) for _ in range(5)], 1)
    documents = [[[word for word in row if word != PAD] for row in group] for group in references.tolist()]
    rewards = {
        "cider": cider_metric(DocumentFrequencies.build(documents)).reward,
        "chrf": chrf_metric(CharacterTable.build(vocabulary)).reward,
        "merged": on_whole_words(sentence_bleu, Merges.of(vocabulary, Style.BPE)),
    }
    there = Rollout(hypotheses.cuda(), references.cuda())
    for name, reward in rewards.items():
        expected = reward(Rollout(hypotheses, references))
        for _ in range(3):
            reward(there)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = reward(there)
        graph.replay()
        torch.testing.assert_close(captured.cpu(), expected, rtol=1e-4, atol=1e-5, msg=name)
