"""grid.json to the numbers of a table: tasks x methods, mean and deviation over seeds, gains over XENT (Fig. 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from seqmixer import files
from seqmixer.errors import RunError
from seqmixer.evaluation import read_scores

LABELS = {
    "base": "base",
    "xent": "XENT",
    "dad": "DAD",
    "e2e": "E2E",
    "mixer": "MIXER",
    "mixer-bleu": "MIXER on BLEU",
    "reinforce": "REINFORCE",
}
NBSP = "\N{NO-BREAK SPACE}"
METRIC_LABELS = {
    "bleu": "BLEU",
    "bleu_best": "BLEU, best of the references",
    "bleu_mean": "BLEU, mean of sentences",
    "chrf": "chrF",
    "chrf++": "chrF++",
    "cider": "CIDEr-D",
    "edit": "edit similarity",
    "exact": "exact matches",
    "length": "length similarity",
    "rouge1": "ROUGE-1",
    "rouge1_f": "ROUGE-1 F1",
    "rouge2": "ROUGE-2",
    "rouge2_f": "ROUGE-2 F1",
    "rouge_l": "ROUGE-L F1",
}


@dataclass(frozen=True)
class Result:
    """What came of one run."""

    task: str
    method: str
    seed: int
    score: float  # of the test split
    valid: float  # the best validation score
    seconds: float
    folder: Path
    signature: str


@dataclass(frozen=True)
class Entry:
    """A result in grid.json."""

    task: str
    method: str
    seed: int
    score: float
    valid: float
    seconds: float
    run: str
    signature: str


@dataclass(frozen=True)
class Written:
    """What is read of grid.json."""

    tasks: list[str]
    methods: list[str]
    seeds: list[int]
    seconds: float
    workers: int
    machine: str
    results: list[Entry]
    best: dict[str, float | None] | None = None


@dataclass(frozen=True)
class Grid:
    """A folder of runs: every task with every method and seed, and the base that the methods start from."""

    tasks: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[int]
    best: Mapping[str, float | None]  # by task: the test score of the best grammatical outputs, where it is known
    seconds: float  # of all calls
    workers: int  # runs at a time
    machine: str
    results: Mapping[tuple[str, str], Sequence[Result]]  # by task and method: one for each seed, in order
    metrics: Mapping[str, str]  # by task


@dataclass(frozen=True)
class Cell:
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
    cells: Mapping[str, Cell]  # by method
    winner: str | None  # the method with the highest mean, if its gain over XENT is clear


def read_grid(folder: Path) -> Grid:
    """Read FOLDER/grid.json, and refuse one that lacks a run."""
    path = folder / "grid.json"
    if not path.is_file():
        raise RunError(f"{folder}: not a grid folder (no grid.json)")
    values: Written = files.read_json(path, Written)
    results = [
        Result(e.task, e.method, e.seed, e.score, e.valid, e.seconds, folder / e.run, e.signature)
        for e in values.results
    ]
    grid = Grid(
        values.tasks,
        values.methods,
        values.seeds,
        best=values.best or {},
        seconds=values.seconds,
        workers=values.workers,
        machine=values.machine,
        results={(r.task, r.method): by_seed(results, r.task, r.method) for r in results},
        metrics={r.task: read_metric(r.folder) for r in results},
    )
    require_complete(grid, path)
    return grid


def read_metric(run: Path) -> str:
    path = run / "scores.json"
    if not path.is_file():
        raise RunError(f"{path}: no such file, though grid.json names the run")
    return read_scores(run).metric


def by_seed(results: Sequence[Result], task: str, method: str) -> list[Result]:
    return sorted((r for r in results if (r.task, r.method) == (task, method)), key=lambda r: r.seed)


def require_complete(grid: Grid, path: Path) -> None:
    if not {"xent", "mixer"} <= set(grid.methods):
        raise RunError(f"{path}: methods are {', '.join(grid.methods)}; a report needs xent and mixer among them")
    for task in grid.tasks:
        for method in ("base", *grid.methods):
            seeds = [r.seed for r in grid.results.get((task, method), [])]
            if seeds != sorted(grid.seeds):
                wanted = ", ".join(map(str, sorted(grid.seeds)))
                got = ", ".join(map(str, seeds)) or "none"
                raise RunError(f"{path}: {task} with {method} has results for seeds {got}, not for {wanted}")


def rows(grid: Grid) -> list[Row]:
    """The table of Fig. 5, left: a row for each task."""
    return [row(grid, task) for task in grid.tasks]


def row(grid: Grid, task: str) -> Row:
    scores = {method: [r.score for r in grid.results[task, method]] for method in grid.methods}
    cells = {method: cell(scores[method], scores["xent"]) for method in grid.methods}
    highest = max(cells, key=lambda method: cells[method].mean)
    winner = highest if cells[highest].clear else None  # XENT itself never is: its gain is 0
    return Row(task, METRIC_LABELS[grid.metrics[task]], grid.best.get(task), cells, winner)


def cell(scores: Sequence[float], xent: Sequence[float]) -> Cell:
    """Scores of a method and of XENT with the same seeds, hence from the same bases: gains are paired.

    >>> found = cell([12.0, 12.4], xent=[10.0, 10.0])
    >>> f"{found.mean:.1f} {found.deviation:.2f} {found.ratio:.2f} {found.clear}"
    '12.2 0.28 1.22 True'
    """
    gains = [score - reference for score, reference in zip(scores, xent, strict=True)]
    ratios = [score / reference for score, reference in zip(scores, xent, strict=True)] if all(xent) else []
    several = len(scores) > 1
    return Cell(
        scores,
        mean(scores),
        deviation=stdev(scores) if several else None,
        ratio=mean(ratios) if ratios else None,
        ratios=ratios,
        gain=mean(gains),
        gain_deviation=stdev(gains) if several else None,
    )


def headline(table: Sequence[Row]) -> str:
    """What was found, in a sentence."""
    higher = [row.task for row in table if row.cells["mixer"].gain > 0]
    return f"MIXER scores higher than XENT on {len(higher)} of {len(table)} tasks."


def details(table: Sequence[Row], seeds: int) -> str:
    """By how much, and how far to trust it."""
    found = "; ".join(map(finding, table))
    if seeds == 1:
        return f"{found}. One seed: how far chance reaches is not known."
    clear = [row.task for row in table if row.cells["mixer"].clear]
    where = f"on {', '.join(clear)}" if clear else "on no task"
    return f"{found}. The difference is larger than its deviation over {seeds} seeds {where}."


def finding(row: Row) -> str:
    mixer, xent = row.cells["mixer"], row.cells["xent"]
    change = f" ({100 * (mixer.ratio - 1):+.1f}{NBSP}%)".replace("-", "−") if mixer.ratio is not None else ""
    return f"{row.task}: {row.metric} {mixer.mean:.2f} against {xent.mean:.2f}{change}"
