import json
import random

import pytest
import torch

from seqmixer.experiments.grid import base_job, method_jobs, run_job, scratch_jobs, write_grid
from seqmixer.experiments.paper.beams import judge, standard_metrics
from seqmixer.experiments.paper.recipes import experiments, read_card
from seqmixer.experiments.paper.results import read_results

RECIPE = """
name = "tiny"
[data]
task = "text"
length = 7
target_max_size = 9
[model]
name = "elman"
hidden = 8
[algorithm]
xent_epochs = 1
mixed_epochs = 1
delta = 4
to_zero = false
[reward]
name = "rouge2"
[training]
batch_size = 4
lr = 0.05
rl_lr = 0.02
device = "cpu"
[evaluation]
metrics = ["rouge2"]
"""
SEEDS = [1, 2]
METHODS = "xent,mixer,mixer-bleu,reinforce"


def judged(run):
    return judge(run, metrics=standard_metrics("rouge2", images=False))


def sentence(draw):
    return " ".join(draw.choice("abcdefghijkl") for _ in range(6))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A small experiment of every method with two seeds, run in this process. -> Experiment, its results"""
    torch.set_num_threads(1)
    folder, draw = tmp_path_factory.mktemp("tiny"), random.Random(1)
    settings = []
    for split, n in (("train", 32), ("valid", 8), ("test", 130)):  # 130 x 7 words: enough for a bin of the protocol
        sources = [sentence(draw) for _ in range(n)]
        if split == "test":
            sources[0] = "a b"  # a bin of its own, which the protocol drops
        (folder / f"{split}.src").write_text("\n".join(sources) + "\n")
        (folder / f"{split}.tgt").write_text("\n".join(f"a b {source[:7]}" for source in sources) + "\n")
        settings.append(f"data.{split}={json.dumps([str(folder / f'{split}.{side}') for side in ('src', 'tgt')])}")
    (folder / "tiny.toml").write_text(RECIPE.replace("[data]\n", "[data]\n" + "\n".join(s.removeprefix("data.").replace("=", " = ", 1) for s in settings) + "\n"))  # fmt: skip
    (experiment,) = experiments("summarization", str(folder / "tiny.toml"), METHODS, (), folder / "out")
    jobs, bases = [], [base_job(experiment.recipe, seed) for seed in SEEDS]
    results = [run_job(base, experiment.folder, workers=3) for base in bases]
    for seed in SEEDS:
        jobs += [*method_jobs(experiment.recipe, seed, experiment.folder), *scratch_jobs(experiment.recipe, seed)]
    results += [run_job(job, experiment.folder, judged, 3) for job in jobs]
    write_grid(experiment.folder, [experiment.recipe], bases, SEEDS, results, 12.5)
    return experiment, read_results(experiment, read_card(experiment))
