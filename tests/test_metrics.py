"""A metric of any kind rewards, validates, selects the best model, and is compared."""

import json
import sys
from dataclasses import replace

import pytest
import torch

from seqmixer.build import Metrics
from seqmixer.config import Config
from seqmixer.data import text_task
from seqmixer.errors import ConfigError
from seqmixer.evaluation import read_scores
from seqmixer.evaluation.scoring import standard
from seqmixer.experiments.compare import compare, paired_bootstrap
from seqmixer.rewards import BLEU, METRICS, ROUGE_L, is_replayable, mean_of, weighted_metric
from seqmixer.runs import load, train
from seqmixer.types import Rollout

FUNCTIONS = """
from pathlib import Path

Path("imported").touch()

def one(hypothesis, references):
    return len(set(hypothesis.split()) & set(references[0].split())) / len(references[0].split())

def batched(hypotheses, references, sources):
    assert len(sources) == len(hypotheses)
    return [one(*pair) for pair in zip(hypotheses, references)]

async def judged(hypothesis, references):
    return one(hypothesis, references)

def trl(completions, prompts, references, **columns):
    return batched(completions, references, prompts)
"""
KINDS = ("one", "batched", "judged", "trl")
PAIRS = (["a b c", "b c", "c d e a", "d b"], [["c b a"], ["c b"], ["a e d c"], ["b d"]])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.py").write_text(FUNCTIONS)
    yield tmp_path
    sys.modules.pop("judge", None)


def config(name, *metrics, epochs=2, reward="bleu", algorithm="xent", **more):
    return Config.parse(
        {
            "name": name,
            "data": {"task": "text", "folder": ".", **{split: ["a", "b"] for split in ("train", "valid", "test")}},
            "model": {"hidden": 8},
            "algorithm": {"name": algorithm},
            "reward": {"name": reward, **more},
            "training": {"epochs": epochs, "batch_size": 2, "lr": 0.05},
            "evaluation": {"metrics": list(metrics)},
        }
    )


@pytest.fixture
def trained(folder):
    """-> a run on PAIRS, trained"""
    (folder / "a").write_text("\n".join(PAIRS[0]) + "\n")
    (folder / "b").write_text("\n".join(several[0] for several in PAIRS[1]) + "\n")
    return lambda name, *metrics, **more: train(config(name, *metrics, **more), callbacks=())


def events(run):
    return [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_of_any_kind_validates_and_selects_the_best_model(trained, kind):
    name = f"judge:{kind}"
    run = trained("run", name, "bleu", f"0.5*bleu + 0.5*{name}", epochs=4)
    logged = [event["valid"] for event in events(run)]
    assert [list(each) for each in logged] == [["perplexity", name, "bleu", f"0.5*bleu + 0.5*{name}"]] * 4
    again = run.evaluate("valid")
    function = sys.modules["judge"].one
    expected = [function(*pair) for pair in zip(again.hypotheses, again.references, strict=True)]
    assert again.score == pytest.approx(sum(expected) / 4)
    assert again.score == pytest.approx(max(each[name] for each in logged))
    assert again.scored[2].score == pytest.approx(again.scored[1].score / 200 + again.score / 2)
    assert again.signature.startswith(f"{name}|mean:sentences|cut:")
    scores = read_scores(run.folder)
    assert (scores.metric, list(scores.others)) == (name, ["bleu", f"0.5*bleu + 0.5*{name}"])
    assert scores.valid == pytest.approx(again.score)
    assert scores.others["bleu"].test == pytest.approx(run.evaluate("test", metrics=["bleu"]).score)


def test_the_reward_is_the_default_metric_also_of_xent(trained):
    run = trained("run", reward="judge:one")
    assert read_scores(run.folder).metric == "judge:one"


def test_a_reward_and_a_metric_of_one_function_share_its_workers(folder):
    task = text_task("reverse", PAIRS, PAIRS, PAIRS, length=6)
    both = Metrics(config("run", "judge:one", "bleu", reward="judge:one", workers=1, seconds=5.0), task)
    assert both.reward is both.chosen[0].reward
    assert not is_replayable(both.reward)
    assert not is_replayable(both.named("bleu + judge:one").reward)
    assert is_replayable(both.named("bleu + 2*chrf").reward)
    words = torch.tensor([several[0] for several in task.train.references[:1]])
    assert both.chosen[0].statistics(Rollout(words, words.unsqueeze(1), meta=task.train.meta[:1])).tolist() == [[1.0]]


def test_every_metric_says_how_many_counts_it_has(folder):
    metrics = Metrics(config("run"), text_task("reverse", PAIRS, PAIRS, PAIRS, length=6))
    words = torch.tensor([[4, 5, 2], [6, 2, 0]])
    for name in (*METRICS, "cider", "chrf", "chrf++", "bleu - 2*cider + chrf++"):
        metric = metrics.named(name)
        assert metric.statistics(Rollout(words, words.unsqueeze(1))).shape == (2, metric.size)


def test_sums_bootstrap_as_an_independent_loop_has_them():
    torch.manual_seed(1)
    references = torch.randint(4, 9, (20, 1, 8))
    systems = [torch.where(torch.rand(20, 8) < share, 4, references[:, 0]) for share in (0.4, 0.2)]
    fours = mean_of("fours", lambda rollout: (rollout.words == 4).sum(-1).float())
    total = weighted_metric("sum", [(0.5, BLEU), (0.4, ROUGE_L), (-0.1, fours)])
    a, b = (total.statistics(Rollout(words, references)) for words in systems)
    found = paired_bootstrap(total, a, b, samples=80, seed=3)

    def scored(words, rows):
        parts = (metric.corpus(metric.statistics(Rollout(words[rows], references[rows]))) for metric in (BLEU, ROUGE_L))
        bleu, rouge_l = (float(part) / 100 for part in parts)
        return 0.5 * bleu + 0.4 * rouge_l - 0.1 * float((words[rows] == 4).sum(-1).float().mean())

    every = torch.arange(20)
    assert found.scores == pytest.approx([scored(words, every) for words in systems], abs=1e-5)
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randint(20, (20,), generator=generator) for _ in range(80)]
    differences = sorted(scored(systems[1], rows) - scored(systems[0], rows) for rows in drawn)
    assert found.interval == pytest.approx((differences[2], differences[77]), abs=1e-5)
    assert total.signature == f"0.5*({BLEU.signature}) + 0.4*({ROUGE_L.signature}) - 0.1*(fours|mean:sentences)"


def test_runs_are_compared_by_every_metric_the_first_first(trained):
    runs = [trained(name, "judge:one", "judge:one - 0.5*bleu", epochs=n) for name, n in (("short", 1), ("long", 4))]
    found = compare(runs)
    assert (found.metric, [other.metric for other in found.others]) == ("judge:one", ["judge:one - 0.5*bleu"])
    assert [row.score for row in found.runs] == [run.evaluate().score for run in runs]
    assert [row.score for row in found.others[0].runs] == [run.evaluate().scored[1].score for run in runs]
    assert compare(runs, metrics=["rouge_l"]).metric == "rouge_l"


def test_no_code_that_only_a_run_folder_names_is_imported(trained, folder, run):
    opened = load(trained("theirs", "judge:one", "bleu").folder)
    trained("ours", "judge:one", "bleu")
    (folder / "imported").unlink()
    sys.modules.pop("judge")
    line = "names the Python code 'judge:one' as a metric; if that code is yours, add --trust"
    with pytest.raises(ConfigError, match=line):
        opened.evaluate()
    for command in (["evaluate", "runs/theirs"], ["compare", "runs/theirs", "runs/ours"]):
        code, _, err = run(*command)
        assert (code, line in err, err.count("\n")) == (2, True, 1)
        assert run(*command, "--metrics", "bleu")[0] == 0
    run("doctor", "runs/theirs")
    assert not (folder / "imported").exists()
    assert run("evaluate", "runs/theirs", "--metrics", "judge:batched")[0] == 0  # the user names it
    sys.modules.pop("judge")
    code, out, _ = run("compare", "runs/theirs", "runs/ours", "--trust", "--json")
    assert (code, json.loads(out)["metric"]) == (0, "judge:one")


def test_functions_and_sums_score_files(folder, run):
    hypotheses, sources = ["c b a", "c d"], ["x", "y"]
    found = standard(hypotheses, [["c b a"], ["c b"]], ["judge:one", "0.5*bleu - judge:batched"], sources=sources)
    assert [score.value for score in found] == pytest.approx([0.75, 0.5 * standard(hypotheses, [["c b a"], ["c b"]])[0].value / 100 - 0.75])  # fmt: skip
    for name, lines in {"hyp": hypotheses, "ref": ["c b a", "c b"], "src": sources}.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    code, out, _ = run("score", "hyp", "ref", "--metrics", "judge:one,judge:trl", "--source", "src")
    assert (code, out.split()[:2]) == (0, ["judge:one", "0.7500"])


def test_the_old_name_of_the_setting_is_refused_with_the_new_one():
    with pytest.raises(ConfigError, match=r"evaluation.metric is now called evaluation.metrics; rename it"):
        Config.parse({"evaluation": {"metric": "bleu"}})
    with pytest.raises(ConfigError, match="write a list of names"):
        Config.parse({"evaluation": {"metrics": "bleu"}})


def test_a_metric_keeps_the_rule_of_its_reward_when_it_is_replaced():
    assert replace(BLEU, name="other").reward is BLEU.reward
