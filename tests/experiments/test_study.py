import json
import random
import re
from statistics import mean
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from events import closing
from seqmixer import configs
from seqmixer.cli import app
from seqmixer.config import Config
from seqmixer.errors import ConfigError
from seqmixer.evaluation import read_scores
from seqmixer.experiments.compare import paired_bootstrap
from seqmixer.experiments.methods import CONTROLS, LABELS, STUDIED, Method
from seqmixer.experiments.study.page import controlled
from seqmixer.experiments.study.results import Gain, paired_gain, points_of
from seqmixer.experiments.study.runs import read_counts, studied, within_budget
from seqmixer.rewards import BLEU, EXACT

STUDY = """
name = "small"
[data]
task = "text"
length = 6
[model]
hidden = 8
[algorithm]
name = "mixer"
xent_epochs = 1
mixed_epochs = 1
samples = 4
[training]
epochs = 2
batch_size = 25
threads = 1
device = "cpu"
[evaluation]
metrics = ["bleu", "chrf"]
"""


@pytest.fixture
def path(tmp_path):
    draw, tables = random.Random(1), []
    for split, n in (("train", 50), ("valid", 8), ("test", 20)):
        lines = "".join(" ".join(draw.choices("abcd", k=5)) + "\n" for _ in range(n))
        (tmp_path / split).write_text(lines)
        tables.append(f"{split} = {json.dumps([str(tmp_path / split)] * 2)}\n")
    path = tmp_path / "small.toml"
    path.write_text(STUDY.replace("[model]", "".join(tables) + "[model]"))
    return path


def test_every_method_that_samples_has_the_same_number_of_sentences(path, tmp_path):
    recipe = studied(str(path), None, ["algorithm.samples=6"], tmp_path)
    assert [method.name for method in recipe.methods] == [method.name for method in STUDIED]
    found = {method.name: Config.load(recipe.path, method.settings) for method in recipe.methods}
    assert {name: config.training.epochs * 6 for name, config in found.items()} == dict.fromkeys(found, 12)

    one = Method("one", ("algorithm.name=reinforce", "algorithm.samples=1"))
    assert within_budget(one, recipe.path).settings[-1] == "training.epochs=12"
    assert within_budget(Method("xent", ("algorithm.name=xent",)), recipe.path).settings[-1] == "training.epochs=2"


def test_only_what_anneals_by_name_or_by_a_setting_is_annealed(path, tmp_path):
    """The study's config is MIXER's."""
    recipe = studied(str(path), None, ["algorithm.xent_weight=0.1"], tmp_path)
    found = {method.name: Config.load(recipe.path, method.settings).algorithm for method in recipe.methods}
    annealed = {name for name, algorithm in found.items() if algorithm.rewarded and algorithm.annealed}
    wanted = {method.name for method in STUDIED if "algorithm.anneal=true" in method.settings}
    assert annealed == {"mixer"} | wanted


def test_what_a_study_needs(path, tmp_path):
    with pytest.raises(ConfigError, match=r"--methods mixer: xent is missing; gains are over it"):
        studied(str(path), "mixer", [], tmp_path)
    with pytest.raises(ConfigError, match=r"unknown method 'mixr'.* 'mixer'"):
        studied(str(path), "xent,mixr", [], tmp_path)
    path.write_text(path.read_text().replace("epochs = 2\n", ""))
    with pytest.raises(ConfigError, match=r"training.epochs is missing; in a study it is how long every method trains"):
        studied(str(path), None, [], tmp_path)


def test_the_gain_of_one_seed_is_the_paired_bootstrap():
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randint(1, 9, (40, 10), generator=generator).float() for _ in range(2))
    expected = paired_bootstrap(BLEU, a, b)

    found = paired_gain(BLEU, a.unsqueeze(0), b.unsqueeze(0))

    assert (found.difference, found.low, found.high) == pytest.approx((expected.difference, *expected.interval))


def test_the_gain_of_several_seeds_is_their_mean_on_the_same_sentences():
    """Where each seed differs by the same sentence, seeds that cancel have a gain of 0 on every resampled test set."""
    worse, better = torch.zeros(1, 30, 1), torch.ones(1, 30, 1)
    worse[0, :15] = 1
    a, b = torch.cat([worse, better]), torch.cat([better, worse])

    found = paired_gain(EXACT, a, b)

    assert (found.difference, found.low, found.high) == (0, 0, 0)
    assert paired_gain(EXACT, a[:1], b[:1]).low > 0


def test_points_are_cumulated_seconds_and_begin_with_the_best_of_the_base():
    base = [closing(epoch=1, valid={"bleu": 3.0}, best=True), closing(epoch=2, valid={"bleu": 2.0}, best=False)]
    log = [
        closing(epoch=epoch, valid={"bleu": score}, seconds={"train": 1.0, "valid": 0.5})
        for epoch, score in ((1, 4.0), (2, 5.0))
    ]

    assert points_of(base, log, "bleu") == ([0.0, 1.5, 3.0], [3.0, 4.0, 5.0])


def test_what_controls_gain_is_said_beside_the_highest_gain():
    def lines(**gains):
        made = [
            SimpleNamespace(method=name.replace("_", "-"), gains={"1 bleu": Gain(g, 0, 1)}) for name, g in gains.items()
        ]
        return SimpleNamespace(main="bleu", lines=[SimpleNamespace(method="xent", gains={}), *made])

    assert controlled(lines(mrt=2.0, mixer=1.0)) == ""
    found = controlled(lines(mrt=2.0, mixer=1.0, control_group=-0.3, control_batch=0.25))
    assert found == " With rewards that say nothing (control), the gain is +0.25 at most, 12 % of the highest gain."
    assert controlled(lines(mrt=-2.0, control_group=0.3)).endswith("is +0.30 at most.")


def test_controls_come_last():
    names = [method.name for method in STUDIED]
    assert CONTROLS
    assert set(names[-len(CONTROLS) :]) == CONTROLS
    assert all(LABELS[name].startswith("control: ") for name in CONTROLS)


@pytest.mark.slow
def test_a_study_writes_its_tables_and_resumes(path, tmp_path):
    command = ["study", str(path), "--methods", "xent,mixer,rloo", "--seeds", "2", "--out", str(tmp_path)]
    found = CliRunner().invoke(app, [*command, "--markdown", str(tmp_path / "docs"), "--json"])
    assert found.exit_code == 0, found.output
    numbers = json.loads(found.stdout)
    text = (tmp_path / "docs" / "study-small.md").read_text()
    assert (tmp_path / "docs" / "study-small-curves.svg").is_file()
    page = (tmp_path / "small" / "report.html").read_text()
    (test,) = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["tests"]
    assert [system["label"] for system in test["systems"]] == [LABELS[line["method"]] for line in numbers["methods"]]
    cells = [cell.strip("*") for row in re.findall(r"^\| (.*) \|$", text, re.MULTILINE) for cell in row.split(" | ")]
    assert len(cells) > 50
    for part in (part for cell in cells for part in re.split(r" ± | \[|, ", cell) if set(part) - set("-:")):
        assert part.replace("'", "&#39;") in page

    for line in numbers["methods"]:
        assert LABELS[line["method"]] in text
        for width in (1, 5):
            scores = [run["scores"][str(width)]["bleu"] for run in numbers["runs"] if run["method"] == line["method"]]
            assert line["scores"][f"{width} bleu"] == scores
            folders = [tmp_path / "small" / f"small/seed-{seed}/{line['method']}" for seed in (1, 2)]
            counted = [float(BLEU.corpus(read_counts(folder, width, "bleu"))) for folder in folders]
            assert scores == pytest.approx(counted)
    limits = {"cut": 0.05, "unfinished": 0.01, "repetition": 1.5 * numbers["methods"][0]["effects"]["repetition"]}
    for line in numbers["methods"]:
        runs = [tmp_path / "small" / run["run"] for run in numbers["runs"] if run["method"] == line["method"]]
        written = [read_scores(run).effects for run in runs]
        assert line["effects"] == pytest.approx({name: mean(each[name] for each in written) for name in written[0]})
        assert line["conspicuous"] == [name for name in limits if line["effects"][name] > limits[name]]
    assert text.count("(!) |") == sum(len(line["conspicuous"]) for line in numbers["methods"]) > 0
    sampled = {line["method"]: line["sampled"] for line in numbers["methods"]}
    assert sampled == {"xent": 0, "mixer": 2 * 4 * 50, "rloo": 2 * 4 * 50}
    gain = numbers["methods"][1]["gains"]["1 bleu"]["difference"]
    xent, mixer = (mean(line["scores"]["1 bleu"]) for line in numbers["methods"][:2])
    assert gain == pytest.approx(mixer - xent)

    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "small").rglob("last/**/*") if file.is_file()}
    again = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(again.stdout)["methods"] == numbers["methods"]
    assert before == {file: file.stat().st_mtime_ns for file in before}


def test_the_configs_that_come_with_seqmixer_can_be_studied(tmp_path):
    names = [name for name in configs.names() if name.startswith("study/")]
    assert names
    for name in names:
        recipe = studied(name, None, [], tmp_path)
        jobs = [Config.load(recipe.path, method.settings) for method in recipe.methods]
        sampled = {job.training.epochs * job.algorithm.sentences for job in jobs if job.algorithm.rewarded}
        assert len(sampled) == 1, name
