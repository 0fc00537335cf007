"""The runs of a study as numbers: scores with intervals, and learning curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from seqmixer import files
from seqmixer.build import Metrics
from seqmixer.config import Config
from seqmixer.experiments.compare import bootstrap, interval
from seqmixer.experiments.grid import Recipe, read_once
from seqmixer.experiments.methods import BASE, REFERENCE
from seqmixer.experiments.report.effects import conspicuous
from seqmixer.experiments.study.runs import WIDTHS, read_counts
from seqmixer.experiments.summary import Grid, read_grid
from seqmixer.rewards import Metric
from seqmixer.runs import located
from seqmixer.training.callbacks import Event


@dataclass(frozen=True)
class Gain:
    """A method against the reference on the same test sentences: the mean over seeds, and where 95 % of it lie."""

    difference: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Reached:
    """What a method spent until its mean validation score was as high as asked."""

    seconds: float
    sentences: int  # sampled for each seed


@dataclass(frozen=True)
class Curve:
    """The validation score by time, mean over seeds; it begins with the model that all methods begin with."""

    seconds: Sequence[float]
    scores: Sequence[float]


@dataclass(frozen=True)
class Line:
    """A method in the table."""

    method: str
    scores: Mapping[str, Sequence[float]]  # by "width metric", then by seed
    gains: Mapping[str, Gain]  # by "width metric"; over the reference with the same width
    effects: Mapping[str, float]  # of greedy search, mean over seeds, as docs/log.md has them
    conspicuous: Sequence[str]  # the effects that are beyond their limits
    curve: Curve
    seconds: float  # of training, mean over seeds
    sampled: int  # sentences for each seed
    reached: Reached | None

    def mean(self, key: str) -> float:
        return mean(self.scores[key])

    def deviation(self, key: str) -> float | None:
        """Over seeds; None with one."""
        return stdev(self.scores[key]) if len(self.scores[key]) > 1 else None


@dataclass(frozen=True)
class Study:
    """All numbers of a study."""

    config: Config
    folder: Path
    grid: Grid
    metrics: Sequence[Metric]  # the first selects the best models
    runs: Mapping[tuple[str, int], Mapping[str, Any]]  # what is known of each, by method and seed

    @property
    def main(self) -> str:
        return self.metrics[0].name

    @cached_property
    def target(self) -> float:
        """The validation score that lies halfway from where all methods begin to the best that one reaches."""
        curves = [self.curve(method) for method in self.grid.methods]
        return (curves[0].scores[0] + max(max(curve.scores) for curve in curves)) / 2

    @cached_property
    def lines(self) -> list[Line]:
        return [self.line(method) for method in self.grid.methods]

    def line(self, method: str) -> Line:
        keys = [(width, metric) for width in WIDTHS for metric in self.metrics]
        runs = [self.runs[method, seed] for seed in self.grid.seeds]
        curve, sampled = self.curve(method), int(runs[0]["sampled"])
        reached = next((i for i, score in enumerate(curve.scores) if score >= self.target), None)
        return Line(
            method,
            {f"{width} {m.name}": [run["scores"][str(width)][m.name] for run in runs] for width, m in keys},
            {f"{width} {m.name}": self.gain(method, width, m) for width, m in keys if method != REFERENCE},
            effects=(effects := self.effects(method)),
            conspicuous=conspicuous(effects, self.effects(REFERENCE)),
            curve=curve,
            seconds=mean(run["seconds"] for run in runs),
            sampled=sampled * (len(curve.scores) - 1),
            reached=None if reached is None else Reached(curve.seconds[reached], sampled * reached),
        )

    def effects(self, method: str) -> Mapping[str, float]:
        found = [self.runs[method, seed]["effects"][str(WIDTHS[0])] for seed in self.grid.seeds]
        return {name: mean(each[name] for each in found) for name in found[0]}

    def gain(self, method: str, width: int, metric: Metric) -> Gain:
        a, b = (self.counts(each, width, metric) for each in (REFERENCE, method))
        return paired_gain(metric, a, b)

    def counts(self, method: str, width: int, metric: Metric) -> Tensor:
        """(seeds, n, S)"""
        folders = [self.folder / self.runs[method, seed]["run"] for seed in self.grid.seeds]
        return torch.stack([read_counts(folder, width, metric.name) for folder in folders])

    def curve(self, method: str) -> Curve:
        logs = zip(self.grid.logs(self.grid.tasks[0], BASE), self.grid.logs(self.grid.tasks[0], method), strict=True)
        points = [points_of(base, log, self.main) for base, log in logs]
        seconds, scores = (
            [mean(values) for values in zip(*(run[i] for run in points), strict=False)] for i in range(2)
        )
        return Curve(seconds, scores)


def points_of(base: Sequence[Event], log: Sequence[Event], metric: str) -> tuple[list[float], list[float]]:
    """The seconds that a run has taken after each epoch, and its validation score then; the base's best at 0."""
    start = [event["valid"][metric] for event in base if event["best"]][-1]
    seconds = accumulate((sum(event["seconds"].values()) for event in log), initial=0.0)
    return list(seconds), [start, *(event["valid"][metric] for event in log)]


def paired_gain(metric: Metric, a: Tensor, b: Tensor) -> Gain:
    """The paired bootstrap with seeds: each resampled test set is the same for all seeds of both systems.

    What varies is the test set, as with one seed. The seeds are those that were run.  (seeds, n, S), (seeds, n, S)
    """
    ours, theirs = bootstrap(metric, torch.stack([b, a])).mean(1)  # (2, seeds, samples) -> (samples,), (samples,)
    return Gain(float((metric.corpus(b) - metric.corpus(a)).mean()), *interval(ours - theirs))


def read_study(recipe: Recipe) -> Study:
    """Read what `run_grid` left beside the recipe."""
    folder, config = recipe.path.parent, Config.load(recipe.path)
    grid = read_grid(folder, needed=(REFERENCE,))
    raw = files.read_json(folder / "grid.json")["results"]
    metrics = Metrics(config, read_once(located(config).data, config.text)).chosen
    return Study(config, folder, grid, metrics, {(result["method"], result["seed"]): result for result in raw})
