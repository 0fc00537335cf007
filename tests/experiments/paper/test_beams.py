from types import SimpleNamespace

import pytest

from seqmixer.data import in_order
from seqmixer.decoding import Search
from seqmixer.evaluation import evaluate
from seqmixer.evaluation.scoring import paper, standard
from seqmixer.experiments.paper import beams
from seqmixer.experiments.paper.beams import COUNTS, main_metric, read_counts, standard_metrics
from seqmixer.rewards import BLEU, ROUGE2
from seqmixer.runs import load


@pytest.fixture(scope="module")
def mixer(tiny):
    """MIXER's first run, opened, with its task and what was measured of it."""
    experiment, results = tiny
    measured = results.of("mixer")[0]
    run = load(experiment.folder / measured["run"])
    return run, run.task(), measured


def test_paper_scores_are_those_of_the_released_evaluator_on_text_with_unk(mixer):
    """scoring.py scores text; the released evaluator reads words of the vocabulary, the others as <unk>."""
    run, task, measured = mixer
    assert any("<unk>" in task.target_vocab.decode(references[0]) for references in task.test.references)
    for width in (1, 3, 10):
        found = evaluate(run.model, task, task.test, BLEU, search=Search(beam=width))
        texts = [[task.target_vocab.decode(ids) for ids in references] for references in task.test.references]
        sources = [meta["source"] for meta in task.test.meta]
        for score in paper(found.hypotheses, texts, sources, ["bleu", "rouge2"], task.length):
            assert measured["beams"][str(width)]["paper"][score.metric] == pytest.approx(score.value, abs=1e-4)
            signature = measured["signatures"][f"paper {score.metric}"]
            assert signature == score.signature.replace("vocab:open", f"vocab:{len(task.target_vocab)}")
            assert "|n:129/130|" in signature  # the sentence with a rare length of source is dropped


def test_standard_scores_are_of_whole_references(mixer):
    run, task, measured = mixer
    every = standard_metrics("rouge2", images=False)
    for width, names in ((1, every), (4, every[:1]), (10, every)):
        found = evaluate(run.model, task, task.test, BLEU, search=Search(beam=width))
        expected = standard(found.hypotheses, found.references, names)
        assert measured["beams"][str(width)]["standard"] == {score.metric: score.value for score in expected}
    assert list(measured["beams"]) == [str(width) for width in range(1, 11)]


def test_kept_counts_make_the_scores(mixer):
    run, _, measured = mixer
    assert (run.folder / COUNTS).is_file()
    for width in (1, 10):
        for metric in (BLEU, ROUGE2):
            rows = read_counts(run.folder, width, metric.name)
            assert len(rows) == 129
            assert float(metric.corpus(rows)) == pytest.approx(measured["beams"][str(width)]["paper"][metric.name])


def test_decoding_is_timed_once_every_shape_has_its_program(mixer, monkeypatch):
    run, task, _ = mixer
    tests = [*in_order(task.test, 50, task.length)]  # of 50, 50 and 30 sentences
    calls = []
    best = beams.Search.best
    monkeypatch.setattr(
        beams.Search,
        "best",
        lambda search, model, source, length: calls.append(source) or best(search, model, source, length),
    )
    monkeypatch.setattr(beams, "time", SimpleNamespace(perf_counter=lambda: calls.append("clock") or 0.0))
    monkeypatch.setattr(beams, "warming", lambda tensor: 2)
    words, _ = beams.decode(run, tests, 2)
    assert len(words) == 130
    started, stopped = (i for i, call in enumerate(calls) if isinstance(call, str))
    before = [call.shape for call in calls[:started]]
    assert all(before.count(batch.source.shape) >= 2 for batch in tests)
    assert calls[started + 1 : stopped] == [batch.source for batch in tests]


def test_captions_are_scored_by_the_best_of_five_and_by_cider():
    assert main_metric("bleu", images=True) == "bleu_best"
    assert main_metric("rouge2", images=False) == "rouge2"
    assert standard_metrics("bleu", images=True)[:2] == ("bleu", "cider")
    assert standard_metrics("bleu", images=False)[0] == "bleu"
