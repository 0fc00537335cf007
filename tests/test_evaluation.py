import copy
import math
import sys
from itertools import chain

import pytest
import sacrebleu
import torch
from torch.nn import functional as F

from seqmixer.data import in_order, text_task
from seqmixer.decoding import Search, free, generate, greedy, shift
from seqmixer.evaluation import evaluate, perplexity, signature
from seqmixer.models import AttentiveEncoder, ElmanCell, Recurrent
from seqmixer.rewards import BLEU


@pytest.fixture
def task():
    words = ["a", "b", "c", "d"]
    sources = [" ".join(words[(i + k * k) % 4] for k in range(2 + i % 5)) for i in range(30)]
    references = [[source, " ".join(reversed(source.split()))] for source in sources]
    return text_task("copy", *[(sources, references)] * 3, length=8)


@pytest.fixture
def model(task):
    return Recurrent(ElmanCell, AttentiveEncoder(len(task.source_vocab), 12, positions=8), len(task.target_vocab), 12)


def test_the_score_is_sacrebleus_on_the_same_text(task, model):
    model.M_o.bias.data[2] = -1.0  # long enough outputs for 4-grams
    result = evaluate(model, task, task.test, BLEU, batch_size=7)
    references = list(zip(*(meta["references"] for meta in task.test.meta), strict=True))
    theirs = sacrebleu.corpus_bleu(
        result.hypotheses, references, tokenize="none", smooth_method="none", force=True, use_effective_order=False
    )
    assert result.score == pytest.approx(theirs.score, abs=1e-4)
    assert result.statistics.shape == (30, 10)
    assert result.signature.startswith(BLEU.signature + "|cut:8|beam:1|n:30|seqmixer:")


def test_hypotheses_are_those_of_greedy_search_whatever_the_batch(task, model):
    (batch,) = in_order(task.test, 30, task.length)
    words = generate(
        model, batch.source, torch.zeros(30, 8, dtype=torch.long), torch.zeros(30, 8, dtype=torch.bool), greedy
    )
    expected = [task.target_vocab.decode(row) for row in words.tolist()]
    for size in (1, 4, 30):
        assert evaluate(model, task, task.test, BLEU, batch_size=size).hypotheses == expected


@pytest.mark.parametrize("most", [3, 500])
def test_entropy_is_the_mean_over_the_words_that_were_written_to_evenly_spaced_sentences(
    task, model, monkeypatch, most
):
    monkeypatch.setattr("seqmixer.evaluation.corpus.HESITATIONS", most)
    monkeypatch.setattr(sys.modules["seqmixer.evaluation.effects"], "STEPS", 5)
    nats = []
    for batch in in_order(task.test, 30, task.length):
        words = generate(model, batch.source, *free(batch.source, task.length), greedy)
        p = model.scores(model.unroll(shift(words), model.encode(batch.source))).double().softmax(-1)
        entropy = -torch.special.xlogy(p, p).sum(-1)  # (B, T)
        nats += [entropy[b, t] for b in range(0, 30, 30 // most or 1) for t in range(task.length) if words[b, t] != 0]

    found = evaluate(model, task, task.test, BLEU, batch_size=30).effects["entropy"]

    assert found == pytest.approx(torch.stack(nats).mean().item(), rel=1e-5)


def test_perplexity_is_that_of_torchs_cross_entropy(task, model):
    (batch,) = in_order(task.test, 30, task.length)
    o = model.scores(model.unroll(shift(batch.target), model.encode(batch.source)))
    expected = F.cross_entropy(o.flatten(0, 1), batch.target.flatten(), ignore_index=0)
    assert perplexity(model, task, task.test, batch_size=7) == pytest.approx(math.exp(expected.item()), rel=1e-5)


def test_a_model_in_training_is_evaluated_without_dropout_and_left_in_training(task):
    torch.manual_seed(1)
    encoder = AttentiveEncoder(len(task.source_vocab), 12, positions=8)
    model = Recurrent(ElmanCell, encoder, len(task.target_vocab), 12, dropout=0.5)
    deployed = copy.deepcopy(model).eval()
    model.train()
    for measured in (perplexity, lambda *given: evaluate(*given, BLEU).hypotheses):
        assert measured(model, task, task.test) == measured(deployed, task, task.test)
        assert model.training
        assert not deployed.training


def test_a_signature_has_the_length_penalty_only_where_it_ranks_something():
    assert "|beam:5|lp:0.6|" in signature(BLEU, 7, 3, Search(beam=5, length_penalty=0.6))
    assert signature(BLEU, 7, 3, Search(length_penalty=0.6)) == signature(BLEU, 7, 3, Search())


def test_side_effects_are_those_of_the_sentences_that_were_written(task, model):
    model.M_o.bias.data[2] = -1.0
    result = evaluate(model, task, task.test, BLEU, batch_size=7)
    written = [text.split() for text in result.hypotheses]
    references = [len(text.split()) for meta in task.test.meta for text in meta["references"]]
    assert result.effects["length_ratio"] == pytest.approx(2 * sum(map(len, written)) / sum(references))
    assert result.effects["distinct_1"] == pytest.approx(len({*chain(*written)}) / sum(map(len, written)))
    assert result.effects == evaluate(model, task, task.test, BLEU, batch_size=30).effects
