"""What a person sees while many runs train: which of how many, how far each is, and how long all of it will take."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from seqmixer.bars import progress_bar, write_line
from seqmixer.build import run_length
from seqmixer.experiments.grid import Job, Judge, Recipe, Result, nothing_more, run_grid
from seqmixer.experiments.methods import BASE, LABELS
from seqmixer.runs import read_dimensions
from seqmixer.training import epochs, read_log, read_place
from seqmixer.training.progress import HEARTBEAT, NOW

Kind = tuple[str, str]  # a task and a method: runs of one kind take the same time


class Watcher:
    """Prints a line for each run that is over, and keeps a line about those under way."""

    def __init__(self, bar: Progress, recipes: Sequence[Recipe], seeds: int, folder: Path, workers: int) -> None:
        self.bar, self.folder, self.workers = bar, folder, workers
        self.waiting = Counter({kind: seeds for recipe in recipes for kind in kinds(recipe)})
        self.total = self.waiting.total()
        self.lengths: dict[Kind, int] = {}  # epochs of a run, once one has begun
        self.spent: dict[Kind, float] = {}  # seconds of the latest run
        self.line = bar.add_task("", total=self.total)
        self.spoken = time.monotonic()

    def report(self, result: Result, left: int) -> None:
        kind = result["task"], result["method"]
        self.waiting[kind] -= 1
        self.spent[kind] = result["seconds"] + result["wall"]["judge"]
        self.bar.update(self.line, completed=self.total - left)
        name = f"{result['task']} seed {result['seed']} {LABELS[result['method']]}"
        line = f"{self.total - left:3}/{self.total}  {name:38} {result['score']:6.2f}  {result['seconds']:6.1f} s"
        write_line(self.bar, f"{line}{self.prospect([])}")

    def look(self, under_way: Collection[Job]) -> None:
        progress = [self.progress(job) for job in under_way]
        names = []
        for job, (kind, done, _) in zip(under_way, progress, strict=True):
            place = read_place(self.folder / job.config.name) or f"epoch {done + 1}/{self.lengths.get(kind, '?')}"
            names.append(f"{job.task} seed {job.seed} {LABELS[job.method]}, {place}")
        said = "; ".join(names) + self.prospect(progress)
        self.bar.update(self.line, description=said)
        if self.bar.disable and names and time.monotonic() - self.spoken > HEARTBEAT:
            self.spoken = time.monotonic()
            write_line(self.bar, f"  {said}")

    def progress(self, job: Job) -> tuple[Kind, int, float]:
        """The epochs a run has done, and their seconds."""
        folder, kind = self.folder / job.config.name, (job.task, job.method)
        if (folder / "task.json").is_file():
            self.lengths[kind] = run_length(job.config, read_dimensions(folder).length)
        done = epochs(read_log(folder))
        return kind, len(done), sum(sum(event["seconds"].values()) for event in done)

    def prospect(self, under_way: Sequence[tuple[Kind, int, float]]) -> str:
        left = seconds_left(self.waiting, self.lengths, self.spent, under_way)
        return f"  about {max(1, round(left / 60 / self.workers))} min left" if left else ""


def seconds_left(
    waiting: Mapping[Kind, int],
    lengths: Mapping[Kind, int],
    spent: Mapping[Kind, float],
    under_way: Sequence[tuple[Kind, int, float]],
) -> float | None:
    """The seconds that the unfinished runs need, one after the other; None before the first epoch is over.

    A run takes what the last of its kind took; one under way, what its epochs take; else the mean of known kinds.

    >>> a, b = ("t", "a"), ("t", "b")
    >>> seconds_left({a: 1, b: 2}, {b: 10}, {a: 30.0}, [(b, 5, 20.0)])
    90.0
    """
    expected = dict(spent)
    expected |= {kind: seconds / done * lengths[kind] for kind, done, seconds in under_way if done and kind in lengths}
    if not expected:
        return None
    usual = sum(expected.values()) / len(expected)
    return sum(n * expected.get(kind, usual) for kind, n in waiting.items()) - sum(run[2] for run in under_way)


def kinds(recipe: Recipe) -> list[Kind]:
    return [(recipe.task, name) for name in (BASE, *(method.name for method in recipe.methods))]


class Places(ProgressColumn):
    """Where each run of a folder is that is under way."""

    max_refresh = 1.0  # seconds

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def render(self, task: Task) -> Text:
        found = {path.parent: read_place(path.parent) for path in sorted(self.folder.glob(f"*/{NOW}"))}
        return Text("; ".join(f"{run.name}, {place}" for run, place in found.items() if place))


def run_watched(
    recipes: Sequence[Recipe], seeds: Sequence[int], folder: Path, workers: int, judge: Judge = nothing_more
) -> None:
    """`run_grid`, with a bar on standard error that counts runs, and a line for each."""
    columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with progress_bar(*columns) as bar:
        watcher = Watcher(bar, recipes, len(seeds), folder, workers)
        run_grid(recipes, seeds, folder, workers, watcher.report, judge=judge, look=watcher.look)
