import json
import re

import pytest
import torch
from sacrebleu.metrics.chrf import CHRF

from reported import TARGETS, settings
from seqmixer.evaluation import read_sentences
from seqmixer.experiments.compare import paired_bootstrap
from seqmixer.experiments.report.page import Bars, Curves, ReportTable, Sentences
from seqmixer.experiments.report.runs import page, read
from seqmixer.rewards import METRICS
from seqmixer.runs import load, train
from seqmixer.training import Callback, epochs, read_log


def report(*folders):
    return page(read(folders, trust=False), "seqmixer report")


def table(found, title):
    (wanted,) = [each for each in found.parts(ReportTable) if each.title.startswith(title)]
    return {row[0]: [cell.strip("*") for cell in row[1:]] for row in wanted.rows}


def data(found):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', found.html())[1])


def statistics(run, metric):
    return next(scored.statistics for scored in read_sentences(run).scored if scored.metric == metric)


@pytest.mark.parametrize("metric", ["edit", "rouge_l"])
def test_scores_have_intervals_which_are_paired_between_runs(trained, metric):
    found = report(trained / "plain", trained / "mixer")
    first, second = table(found, f"{metric}, 60 sentences").values()
    a, b = (statistics(trained / name, metric) for name in ("plain", "mixer"))
    expected = paired_bootstrap(METRICS[metric], a, b)
    assert [first[0], second[0]] == [f"{score:.2f}" for score in expected.scores]
    low, high = expected.interval
    assert first[2:] == ["", "", ""]
    assert second[2:] == [f"{expected.difference:+.2f}", f"{low:+.2f} .. {high:+.2f}", f"{expected.p_value:.3f}"]

    generator = torch.Generator().manual_seed(1)
    scores = sorted(
        float(METRICS[metric].corpus(b[torch.randint(60, (60,), generator=generator)])) for _ in range(1000)
    )
    assert second[1] == f"{scores[25]:.2f} .. {scores[974]:.2f}"


def test_the_page_says_what_differs_and_what_does_not(trained):
    found = report(trained / "plain", trained / "mixer")
    (title,) = [each.title for each in found.parts(ReportTable) if each.title.endswith("settings that differ")]
    different = table(found, title)
    assert title.startswith(f"{len(different)} ")
    assert different["algorithm.name"] == ["xent", "mixer"]
    assert different["algorithm.samples"] == ["–", "2"]
    assert different["training.epochs"] == ["2", "3"]
    assert not {"name", "model.hidden", "data.folder"} & different.keys()

    facts = table(found, "Runs")
    assert facts["epochs"] == ["2 of 2", "3 of 3"]
    logs = [epochs(read_log(trained / name)) for name in ("plain", "mixer")]
    best = [[event for event in log if event["best"]][-1] for log in logs]
    assert facts["validation perplexity"] == [f"{event['valid']['perplexity']:.2f}" for event in best]
    (same,) = [part for part in found.chapters[0].parts if isinstance(part, str)]
    parameters = sum(p.numel() for p in load(trained / "plain").model.parameters())
    machine = logs[0][0]["machine"]
    for text in (f"lstm, hidden 4, {parameters:,} parameters", "data: src, tgt", "60 / 60 / 60", f"machine: {machine}"):
        assert text in same


def test_curves_and_time_are_those_of_the_logs(trained):
    found = report(trained / "mixer", trained / "plain")
    (curves,), (time,) = found.parts(Curves), found.parts(Bars)
    log = epochs(read_log(trained / "mixer"))
    mixer, plain = curves.histories
    assert (mixer.label, mixer.batches, plain.batches) == ("mixer", 3, 3)
    assert [event["train"] for event in mixer.events if event["event"] == "epoch"] == [event["train"] for event in log]
    total = {name: sum(event["seconds"].get(name, 0.0) for event in log) for name in log[-1]["seconds"]}
    assert dict(time.rows)["mixer"] == pytest.approx(total)


def test_sentences_are_scored_from_their_counts_as_another_library_scores_them(trained, tmp_path):
    run = train(
        settings(load(trained / "plain").config.data.folder, "chrf", evaluation={"metrics": ["chrf"]}), tmp_path, ()
    )
    (test,) = data(report(run.folder))["tests"]
    kept, theirs = read_sentences(run.folder), CHRF()
    expected = [theirs.sentence_score(*pair).score for pair in zip(kept.hypotheses, kept.references, strict=True)]
    assert max(expected) > 0
    assert test["systems"][0]["scores"]["chrf"] == pytest.approx(expected, abs=1e-3)
    assert test["sources"][0] == kept.sources[0]
    assert test["references"] == [[text] for text in TARGETS]


def test_runs_on_other_data_have_a_table_and_sentences_of_their_own(trained, tmp_path):
    other = {"data": {"limit": 20}, "model": {"hidden": 4}, "training": {"epochs": 1, "threads": 1, "device": "cpu"}}
    toy = train(settings("", "toy", evaluation={"metrics": ["bleu"]}, **other), tmp_path, ()).folder
    found = report(trained / "plain", toy, trained / "mixer")
    (sentences,) = found.parts(Sentences)
    labels = [[system.label.rpartition("/")[2] for system in test.systems] for test in sentences.tests]
    assert labels == [["plain", "mixer"], ["toy"]]
    titles = [each.title for each in found.parts(ReportTable)]
    assert [title for title in titles if "sentences: " in title] == [
        "edit, 60 sentences: src, tgt",
        "rouge_l, 60 sentences: src, tgt",
        "bleu, 500 sentences: toy-translation",
    ]
    assert found.headline == "3 runs on 2 test sets."


def test_scores_that_leave_out_other_unknown_words_are_not_compared(folder):
    def columns():
        tables = report(folder / "plain", folder / "mixer").parts(ReportTable)
        return [len(each.columns) for each in tables if each.title.startswith("rouge_l")]

    assert columns() == [6]
    with (folder / "mixer/target.vocab").open("a") as vocab:
        vocab.write("another\n")
    assert columns() == [3, 3]


class Stops(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def epoch_end(self, run, event):
        if event["epoch"] == self.epoch:
            raise KeyboardInterrupt


def test_a_run_under_way_shows_what_its_best_model_writes_and_one_without_a_model_its_settings(trained, tmp_path):
    data = load(trained / "plain").config.data.folder
    with pytest.raises(KeyboardInterrupt):
        train(settings(data, "half", training={"epochs": 4, "device": "cpu", "threads": 1}), tmp_path, [Stops(2)])
    half = tmp_path / "half"
    found = report(half)
    assert table(found, "Runs")["epochs"] == ["2 of 4"]
    (sentences,) = found.parts(Sentences)
    assert sentences.tests[0].systems[0].test.hypotheses == load(half).evaluate().hypotheses
    for name in ("best", "last"):
        for path in half.glob(f"{name}*"):
            path.rename(tmp_path / path.name)
    found = report(half)
    assert not found.parts(Sentences)
    assert found.headline == "1 run, none with a model yet."
    assert len(found.parts(Curves)[0].histories[0].events) == 2


def test_what_a_run_wrote_before_it_was_trained_on_is_not_shown(folder):
    train(settings(load(folder / "plain").config.data.folder, "plain"), folder, ())  # nothing to do; it scores anew
    log = folder / "plain/log.jsonl"
    first = report(folder / "plain").parts(Sentences)[0].tests[0].systems[0].test
    later = {**epochs(read_log(folder / "plain"))[-1], "epoch": 3, "best": True}
    log.write_text(log.read_text() + json.dumps(later) + "\n")
    path = folder / "plain/test.jsonl"
    path.write_text(path.read_text().replace('"hypothesis": "', '"hypothesis": "before '))
    again = report(folder / "plain").parts(Sentences)[0].tests[0].systems[0].test
    assert again.hypotheses == first.hypotheses


def test_the_command_writes_a_page_and_says_what_is_wrong(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("report", folder / "plain", folder / "mixer", folder / "plain")
    assert (code, out, err) == (0, "Report: report.html\n", "")
    assert [each["label"] for each in json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "report.html").read_text())[1])["histories"]] == ["plain", "mixer"]  # fmt: skip
    code, _, err = run("report", folder / "plain", "--out", tmp_path)
    assert (code, err) == (
        2,
        f"seqmixer: --out {tmp_path} is a folder; name a file, such as {tmp_path / 'report.html'}\n",
    )
    code, _, err = run("report", folder)
    assert code == 2
    assert err.startswith(f"seqmixer: {folder}")
    assert err.count("\n") == 1
