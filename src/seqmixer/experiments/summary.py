"""grid.json to the numbers of a table: tasks x methods, mean and deviation over seeds, gains over XENT (Fig. 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev

from seqmixer import files
from seqmixer.errors import RunError
from seqmixer.evaluation import read_scores
from seqmixer.experiments.methods import BASE, PROPOSED, REFERENCE
from seqmixer.rewards import BUILT_IN
from seqmixer.training import epochs, read_log
from seqmixer.training.callbacks import Event

METRIC_LABELS = {name: metric.label for name, metric in BUILT_IN.items()}


@dataclass(frozen=True)
class Result:
    """The result of one run."""

    task: str
    method: str
    seed: int
    score: float  # of the test split
    valid: float  # the best validation score
    seconds: float
    run: str  # its folder, below the grid's
    signature: str


@dataclass(frozen=True)
class Grid:
    """A folder of runs, as its grid.json has them: every task with every method and seed, and with the base."""

    tasks: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[int]
    seconds: float  # of all calls
    workers: int  # runs at a time
    machine: str
    results: Sequence[Result]
    best: Mapping[str, float | None] | None = None  # by task: the score of the best grammatical outputs, where known
    folder: Path = Path()

    def of(self, task: str, method: str) -> list[Result]:
        """One for each seed, in order."""
        found = [result for result in self.results if (result.task, result.method) == (task, method)]
        return sorted(found, key=lambda result: result.seed)

    def logs(self, task: str, method: str) -> list[list[Event]]:
        """The epochs of a method's runs, by seed."""
        return [epochs(read_log(self.folder / result.run)) for result in self.of(task, method)]

    @cached_property
    def metrics(self) -> Mapping[str, str]:
        """By task."""
        return {result.task: read_metric(self.folder / result.run) for result in self.results}


@dataclass(frozen=True)
class MethodScores:
    """One method on one task."""

    scores: Sequence[float]  # by seed
    mean: float
    deviation: float | None  # over seeds; None with one
    ratio: float | None  # mean over seeds of score / XENT's score; None where XENT scores 0
    ratios: Sequence[float]  # by seed
    gain: float  # mean over seeds of score - XENT's score
    gain_deviation: float | None  # over seeds; None with one

    @property
    def clear(self) -> bool:
        """Whether the difference to XENT is larger than its spread. One seed has no spread to hold it against."""
        return self.gain_deviation is not None and abs(self.gain) > self.gain_deviation


@dataclass(frozen=True)
class Row:
    """One task."""

    task: str
    metric: str
    best: float | None
    cells: Mapping[str, MethodScores]  # by method
    winner: str | None  # the method with the highest mean, if its gain over XENT is clear


def read_grid(folder: Path, needed: Sequence[str] = (REFERENCE, PROPOSED)) -> Grid:
    """Read FOLDER/grid.json, and refuse one that lacks a run, or a method that a report is about."""
    path = folder / "grid.json"
    if not path.is_file():
        raise RunError(f"{folder}: not a grid folder (no grid.json)")
    grid: Grid = replace(files.read_json(path, Grid), folder=folder)
    if not set(needed) <= set(grid.methods):
        wanted = f"a report needs {' and '.join(needed)} among them"
        raise RunError(f"{path}: methods are {', '.join(grid.methods)}; {wanted}")
    require_complete(grid, path)
    return grid


def read_metric(run: Path) -> str:
    path = run / "scores.json"
    if not path.is_file():
        raise RunError(f"{path}: no such file, though grid.json names the run")
    return read_scores(run).metric


def require_complete(grid: Grid, path: Path) -> None:
    for task in grid.tasks:
        for method in (BASE, *grid.methods):
            seeds = [result.seed for result in grid.of(task, method)]
            if seeds != sorted(grid.seeds):
                wanted = ", ".join(map(str, sorted(grid.seeds)))
                got = ", ".join(map(str, seeds)) or "none"
                raise RunError(f"{path}: {task} with {method} has results for seeds {got}, not for {wanted}")


def rows(grid: Grid) -> list[Row]:
    """The table of Fig. 5, left: a row for each task."""
    return [row(grid, task) for task in grid.tasks]


def row(grid: Grid, task: str) -> Row:
    scores = {method: [result.score for result in grid.of(task, method)] for method in grid.methods}
    cells = {method: paired_scores(scores[method], scores[REFERENCE]) for method in grid.methods}
    highest = max(cells, key=lambda method: cells[method].mean)
    winner = highest if cells[highest].clear else None  # XENT itself never is: its gain is 0
    return Row(task, METRIC_LABELS[grid.metrics[task]], (grid.best or {}).get(task), cells, winner)


def paired_scores(scores: Sequence[float], reference: Sequence[float]) -> MethodScores:
    """Scores of a method and of XENT with the same seeds, hence from the same bases: gains are paired.

    >>> found = paired_scores([12.0, 12.4], reference=[10.0, 10.0])
    >>> f"{found.mean:.1f} {found.deviation:.2f} {found.ratio:.2f} {found.clear}"
    '12.2 0.28 1.22 True'
    """
    pairs = list(zip(scores, reference, strict=True))
    gains = [score - other for score, other in pairs]
    ratios = [score / other for score, other in pairs] if all(reference) else []
    several = len(scores) > 1
    return MethodScores(
        scores,
        mean(scores),
        deviation=stdev(scores) if several else None,
        ratio=mean(ratios) if ratios else None,
        ratios=ratios,
        gain=mean(gains),
        gain_deviation=stdev(gains) if several else None,
    )
