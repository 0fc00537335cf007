import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from sacrebleu.metrics import BLEU as SacreBLEU
from sacrebleu.significance import PairedTest

from seqmixer.build import Metrics
from seqmixer.config import Config
from seqmixer.data import Vocab
from seqmixer.errors import RunError
from seqmixer.evaluation import Scored
from seqmixer.experiments import compare as module
from seqmixer.experiments.compare import as_rows, as_table, bootstrap, compare, compared, p_value, paired_bootstrap
from seqmixer.rewards import BLEU, ROUGE2
from seqmixer.runs import train
from seqmixer.types import EOS, Rollout

WORDS = 12


def corpus(n, length=9, seed=0):
    """Random references (n, 1, length) that end in EOS."""
    words = torch.randint(4, 4 + WORDS, (n, length), generator=torch.Generator().manual_seed(seed))
    words[:, -1] = EOS
    return words.unsqueeze(1)


def damaged(references, share, seed):
    """Hypotheses: the references with a share of their words replaced."""
    generator = torch.Generator().manual_seed(seed)
    words = references[:, 0].clone()
    hit = (torch.rand(words.shape, generator=generator) < share) & (words != EOS)
    words[hit] = torch.randint(4, 4 + WORDS, (int(hit.sum()),), generator=generator)
    return words


def text(words):
    return [" ".join(f"w{word}" for word in row if word != EOS) for row in words.tolist()]


@pytest.mark.parametrize("shares", [(0.30, 0.27), (0.30, 0.22), (0.3, 0.3)])
def test_p_value_is_that_of_sacrebleu_for_the_same_resamples(shares):
    n, samples = 60, 300
    references = corpus(n)
    systems = [damaged(references, share, seed) for seed, share in enumerate(shares, 1)]
    a, b = (BLEU.statistics(Rollout(words, references)) for words in systems)

    metric = SacreBLEU(tokenize="none", smooth_method="none")
    named = [("a", text(systems[0])), ("b", text(systems[1]))]
    _, theirs = PairedTest(named, {"BLEU": metric}, [text(references[:, 0])], test_type="bs", n_samples=samples)()
    indices = torch.from_numpy(np.random.default_rng(12345).choice(n, size=(samples, n)))  # as sacrebleu draws them
    differences = BLEU.corpus(b[indices]) - BLEU.corpus(a[indices])
    found = paired_bootstrap(BLEU, a, b, samples)

    assert found.scores == pytest.approx([result.score for result in theirs["BLEU"]], abs=1e-3)
    assert p_value(differences, found.difference) == pytest.approx(theirs["BLEU"][1].p_value, abs=1e-9)
    assert found.p_value == pytest.approx(theirs["BLEU"][1].p_value, abs=0.08)  # other resamples of the same corpus


def test_interval_leaves_out_a_fortieth_on_each_side():
    references = corpus(20)
    a, b = (BLEU.statistics(Rollout(damaged(references, 0.3, seed), references)) for seed in (1, 2))
    found = paired_bootstrap(BLEU, a, b, samples=80, seed=5)

    generator = torch.Generator().manual_seed(5)
    differences = []
    for _ in range(80):
        rows = torch.randint(20, (20,), generator=generator)
        differences.append(float(BLEU.corpus(b[rows]) - BLEU.corpus(a[rows])))
    assert found.interval == pytest.approx((sorted(differences)[2], sorted(differences)[77]), abs=1e-4)


def test_a_system_and_itself_differ_by_chance_alone():
    references = corpus(50)
    rows = ROUGE2.statistics(Rollout(damaged(references, 0.3, 1), references))
    found = paired_bootstrap(ROUGE2, rows, rows)
    assert (found.difference, found.interval, found.p_value) == (0.0, (0.0, 0.0), 1.0)


@pytest.mark.parametrize("metric", [BLEU, ROUGE2], ids=lambda metric: metric.name)
def test_a_much_better_system_is_significantly_better(metric):
    references = corpus(200)
    a, b = (metric.statistics(Rollout(damaged(references, share, 1), references)) for share in (0.4, 0.2))
    found = paired_bootstrap(metric, a, b)
    assert found.p_value < 0.01
    assert 0 < found.interval[0] < found.difference < found.interval[1]
    backwards = paired_bootstrap(metric, b, a)
    assert backwards.difference == -found.difference
    assert backwards.p_value == found.p_value


@pytest.mark.parametrize("metric", [BLEU, ROUGE2], ids=lambda metric: metric.name)
def test_chunks_change_nothing(metric, monkeypatch):
    references = corpus(30)
    a, b = (metric.statistics(Rollout(damaged(references, share, 1), references)) for share in (0.3, 0.25))
    whole = paired_bootstrap(metric, a, b, samples=100)
    monkeypatch.setattr(module, "CHUNK", 7 * a.numel())  # chunks of 3 corpora, and one of 1
    chunked = paired_bootstrap(metric, a, b, samples=100)
    assert chunked.p_value == whole.p_value
    assert chunked.interval == pytest.approx(whole.interval, abs=1e-4)


def test_chunks_are_small_enough_for_a_large_test_set():
    sizes = []

    def corpus(rows):
        sizes.append(rows.numel())
        return rows.sum((-1, -2))

    found = bootstrap(replace(BLEU, corpus=corpus), torch.ones(2, 6750, 10), samples=130)
    assert found.tolist() == [[67500.0] * 130] * 2
    assert 10_000_000 < 4 * max(sizes) < 40_000_000  # bytes


def test_bootstrap_leaves_the_global_generator_alone():
    rows = BLEU.statistics(Rollout(corpus(5)[:, 0], corpus(5)))
    before = torch.get_rng_state()
    paired_bootstrap(BLEU, rows, rows, samples=10)
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_of_different_sentences_are_refused():
    message = "a paired test needs both systems' counts of the same sentences, got rows of shape (5, 10) and (4, 10)"
    with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
        paired_bootstrap(BLEU, torch.zeros(5, 10), torch.zeros(4, 10))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A tiny parallel text: the target is the source backwards."""
    folder = tmp_path_factory.mktemp("data")
    for split, seed in (("train", 1), ("valid", 1), ("test", 3)):
        lines = text(corpus(24, length=6, seed=seed)[:, 0])
        (folder / f"{split}.src").write_text("\n".join(lines) + "\n")
        (folder / f"{split}.tgt").write_text("\n".join(" ".join(line.split()[::-1]) for line in lines) + "\n")
    return folder


def trained(data, out, name, epochs):
    splits = {split: [f"{split}.src", f"{split}.tgt"] for split in ("train", "valid", "test")}
    values = {
        "name": name,
        "data": {"task": "text", "folder": str(data), **splits},
        "model": {"hidden": 16},
        "algorithm": {"name": "xent"},
        "training": {"epochs": epochs, "batch_size": 8, "lr": 0.02, "device": "cpu"},
    }
    return train(Config.parse(values), out)


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("runs")
    return [trained(data, out, "short", 1), trained(data, out, "long[er]", 25)]


def changed(run, section, **values):
    table = getattr(run.config, section).model_copy(update=values)
    return replace(run, config=run.config.model_copy(update={section: table}))


def test_comparison_has_the_scores_of_each_run_and_the_bootstrap_of_their_rows(runs):
    found = compare(runs, "train")
    short, long = (run.evaluate("train") for run in runs)
    expected = paired_bootstrap(BLEU, short.statistics, long.statistics)
    assert (found.metric, found.signature) == ("bleu", short.signature)
    first, second = as_rows(found)
    generator = torch.Generator().manual_seed(1)
    draws = [torch.randint(24, (24,), generator=generator) for _ in range(1000)]
    for row, run, evaluation in ((first, runs[0], short), (second, runs[1], long)):
        scores = sorted(float(BLEU.corpus(evaluation.statistics[drawn])) for drawn in draws)
        assert row["interval"] == pytest.approx((scores[25], scores[974]))
        assert (row["run"], row["score"]) == (str(run.folder), evaluation.score)
    assert {first[name] for name in ("difference", "low", "high", "p_value")} == {None}
    assert second["difference"] == pytest.approx(expected.difference)
    assert (second["low"], second["high"]) == pytest.approx(expected.interval)
    assert second["p_value"] == pytest.approx(expected.p_value)
    assert long.score > short.score
    assert found.effects == [(str(runs[0].folder), short.effects), (str(runs[1].folder), long.effects)]


def test_comparison_decodes_with_the_beam_it_is_given(runs):
    found = compare(runs, "valid", beam=3, length_penalty=0.5)
    assert [row.score for row in found.runs] == [
        run.evaluate("valid", beam=3, length_penalty=0.5).score for run in runs
    ]
    assert "|beam:3|lp:0.5|" in found.signature


def test_table_shows_every_row(runs):
    found = compare([runs[0], runs[1]], "train")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(as_table(found).terminal())
    lines = console.export_text().splitlines()
    assert lines[0].split() == ["bleu", "95", "%", "difference", "95", "%", "p"]
    first, second = found.runs
    assert lines[1].split() == [
        first.run,
        *(f"{first.score:.2f} {first.interval[0]:.2f} .. {first.interval[1]:.2f}").split(),
    ]
    assert lines[2].split() == [
        str(runs[1].folder),  # [er] is no markup
        *f"{second.score:.2f} {second.interval[0]:.2f} .. {second.interval[1]:.2f}".split(),
        *f"{second.difference:+.2f} {second.low:+.2f} .. {second.high:+.2f} {second.p_value:.3f}".split(),
    ]


def test_a_clear_difference_is_bold():
    references = corpus(40)
    scored = [
        Scored("bleu", float(BLEU.corpus(rows)), "how", rows)
        for rows in (BLEU.statistics(Rollout(damaged(references, share, 1), references)) for share in (0.5, 0.49, 0.1))
    ]
    rows = as_table(compared([(name, each) for name, each in zip("abc", scored, strict=True)])).rows
    assert [row[3].startswith("**") for row in rows] == [False, False, True]
    assert rows[2][3].strip("*") == f"{scored[2].score - scored[0].score:+.2f}"


def refused(first, other, reason):
    message = f"{first.folder} and {other.folder} cannot be compared: {reason}"
    with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
        compare([first, other])


def test_one_run_is_no_comparison(runs):
    with pytest.raises(RunError, match=r"^a comparison needs at least two runs, got 1$"):
        compare(runs[:1])


def test_runs_with_different_metrics_are_refused(runs):
    other = changed(runs[1], "evaluation", metrics=("rouge2",))
    refused(runs[0], other, "one is scored by bleu, the other by rouge2 (evaluation.metrics); choose with --metrics")


def test_runs_with_references_cropped_differently_are_refused(runs):
    other = replace(runs[1], dimensions=replace(runs[1].dimensions, length=4))
    lengths = f"T = {runs[0].dimensions.length} words, the other's at T = 4"
    refused(runs[0], other, f"the references of one are cropped at {lengths} (data.length)")


def test_runs_with_different_references_are_refused(runs):
    other = changed(runs[1], "data", test=["valid.src", "valid.tgt"])
    refused(runs[0], other, "their references in the test split differ; train both on the same data")


def test_runs_with_other_settings_but_the_same_references_are_compared(runs):
    other = changed(runs[1], "data", limit=5)
    assert compare([runs[0], other]).runs[1].score == compare(runs).runs[1].score


def test_runs_whose_scores_are_made_in_different_ways_are_refused(runs):
    """CIDEr-D weighs words by how rare they are in the training data."""
    first, other = (changed(run, "evaluation", metrics=("cider",)) for run in runs)
    fewer = changed(other, "data", limit=5)
    ways = [Metrics(run.config, run.task()).chosen[0].signature for run in (first, fewer)]
    assert ways[0] != ways[1]
    refused(first, fewer, f"their scores are made in different ways, {ways[0]} and {ways[1]}")


@pytest.mark.parametrize("metric", ["rouge1", "rouge1_f", "rouge2", "rouge2_f", "rouge_l"])
def test_vocabularies_must_agree_where_unknown_words_are_left_out(runs, metric):
    smaller = replace(runs[1], target_vocab=Vocab(runs[1].target_vocab.words[:-1]))
    first, other = (changed(run, "evaluation", metrics=(metric,)) for run in (runs[0], smaller))
    refused(first, other, f"{metric} skips unknown words, and their target vocabularies differ")
