"""The runs of a study, and the measurements of each.

Every method begins at the best XENT model of its seed. Those that learn from samples get equal numbers of them: one
with k sentences for each source has K / k times the epochs of one with K. The others have the epochs of those with K.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from seqmixer import configs, files
from seqmixer.build import Metrics
from seqmixer.config import Config
from seqmixer.errors import ConfigError, unknown
from seqmixer.evaluation import evaluate
from seqmixer.experiments.grid import Recipe, data_of
from seqmixer.experiments.methods import REFERENCE, STUDIED, Method
from seqmixer.runs import Run

WIDTHS = (1, 5)  # greedy search, and the beam that most papers report
COUNTS = "counts.safetensors"


def studied(task: str, names: str | None, settings: Sequence[str], out: Path) -> Recipe:
    """The recipe of a config: one that comes with seqmixer, such as study/toy or just toy, or a file of the user's.

    With its settings it is written to OUT/NAME/study.toml, from which each method takes the settings that it has.
    """
    path = configs.names().get(f"study/{task}") or configs.found(task)
    config = Config.load(path, settings)
    if config.training.epochs is None:
        raise ConfigError(f"{path}: training.epochs is missing; in a study it is how long every method trains")
    methods = chosen(names)
    place = out / config.name / "study.toml"
    place.parent.mkdir(parents=True, exist_ok=True)
    files.write(place, config.toml())
    return Recipe(config.name, place, methods=tuple(within_budget(method, place) for method in methods))


def chosen(names: str | None) -> tuple[Method, ...]:
    """The methods with these names, separated by commas, in the order of the table. Default: all."""
    if names is None:
        return STUDIED
    known = [method.name for method in STUDIED]
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise unknown("method", name, known)
    if REFERENCE not in wanted:
        raise ConfigError(f"--methods {names}: {REFERENCE} is missing; gains are over it")
    return tuple(method for method in STUDIED if method.name in wanted)


def within_budget(method: Method, path: Path) -> Method:
    """The method, trained for as many epochs as its share of sampled sentences lasts."""
    plain, own = Config.load(path), Config.load(path, method.settings)
    epochs, most = plain.training.epochs or 1, plain.algorithm.sentences
    if own.algorithm.rewarded:
        epochs = max(1, round(epochs * most / own.algorithm.sentences))
    return replace(method, settings=(*method.settings, f"training.epochs={epochs}"))


def judge(run: Run) -> Mapping[str, Any]:
    """The test split, greedy and with a beam: every metric of the run, side effects. The counts go into its folder."""
    task = data_of(run)
    metrics = Metrics(run.config, task, run.folder).chosen
    scores: dict[str, dict[str, float]] = {}
    effects: dict[str, Mapping[str, float]] = {}
    counts: dict[str, Tensor] = {}
    for width in WIDTHS:
        size = max(1, run.config.evaluation.batch_size // width)
        found = evaluate(run.model, task, task.test, *metrics, search=run.search(beam=width), batch_size=size)
        scores[str(width)] = {each.metric: each.score for each in found.scored}
        effects[str(width)] = found.effects
        counts |= {f"{width} {each.metric}": each.statistics.contiguous() for each in found.scored}
    save_file(counts, run.folder / COUNTS)
    sampled = run.config.algorithm.sentences * len(task.train) if run.config.algorithm.rewarded else 0
    return {"scores": scores, "effects": effects, "sampled": sampled}  # sentences in each epoch


def read_counts(run: Path, width: int, metric: str) -> Tensor:
    """The counts that `judge` wrote.  -> (n, S)"""
    return load_file(run / COUNTS)[f"{width} {metric}"]
