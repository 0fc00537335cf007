"""`seqmixer demo`: the paper's comparison on the three built-in tasks, in minutes, with a table and a report."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from rich.table import Table

from seqmixer import configs
from seqmixer.bars import duration
from seqmixer.experiments.figures import learning_curves, relative_gains
from seqmixer.experiments.grid import Recipe
from seqmixer.experiments.methods import BASE, LABELS, METHODS, NEW, OLD, PROPOSED, RATIO, REFERENCE, RL
from seqmixer.experiments.report.page import (
    Chapter,
    Drawing,
    Page,
    ReportTable,
    Sentences,
    made,
    number,
    require_extra,
    spelled,
)
from seqmixer.experiments.report.sentences import of_grid
from seqmixer.experiments.summary import Grid, Row, read_grid, rows
from seqmixer.experiments.watching import run_watched

NBSP = "\N{NO-BREAK SPACE}"
NAMES = [LABELS[method.name] for method in METHODS]
TITLE = f"{', '.join(NAMES[:-1])} and {NAMES[-1]} on the built-in tasks"
TASKS = ("translation", "summarization", "captioning")
SCORED = "Of the model with the best validation score, greedy search; mean ± standard deviation over seeds."
BOLD = (
    f"Bold: the highest mean of its row, where its gain over {OLD} is larger than the deviation of that gain over "
    f"seeds. Gains and {RATIO} are taken seed by seed, from the same base, and averaged."
)
ONE_SEED = "One seed, hence no deviation, and nothing is bold."
GAINS = f"Score relative to {OLD}, which is the line at 1"
LEARNING = (
    f"Every method starts from the best model of the same base, trained with {OLD} (grey, left). Above: validation "
    f"score, greedy search, mean over seeds, with the range of {OLD} and {NEW}. Below: {NEW} on the training data. The "
    f"thin upright lines are its stages: the first s words are trained with {OLD}, the rest with {RL}."
)
GRAMMATICAL = (
    "Best grammatical: the score of writing, for each source, the sentence of the task's grammar with the highest "
    "expected reward. It is no upper bound: a model that is rewarded for recall may learn to write two headlines "
    "in one."
)


def run_demo(out: Path, seeds: list[int], workers: int, markdown: Path | None, command: str) -> Path:
    """Train, score and report. Called again after a stop, it resumes. -> the report"""
    require_extra()  # before the minutes, not after
    run_watched(toy_recipes(), seeds, out, workers)
    found = page(read_grid(out), TITLE, [command])
    if markdown is not None:
        found.markdown(markdown.parent, markdown.stem)
    return found.write(out / "report.html")


def toy_recipes() -> list[Recipe]:
    """The bundled configs of the built-in tasks."""
    return [Recipe(f"toy-{task}", configs.names()[f"toy/{task}"]) for task in TASKS]


def page(grid: Grid, title: str, commands: list[str]) -> Page:
    table = rows(grid)
    seeds = len(grid.seeds)
    best = [GRAMMATICAL] if any(row.best is not None for row in table) else []
    curves = [Drawing(task, learning_curves(grid, task, task), title=task) for task in grid.tasks]
    gains = Drawing("gains", relative_gains(table, "gains"), f"{GAINS}{'; a dot is one seed.' if seeds > 1 else '.'}")
    return Page(
        title,
        headline(table),
        [
            Chapter("Test scores", [scores(grid, table), gains, SCORED, BOLD if seeds > 1 else ONE_SEED, *best]),
            Chapter("Learning", [LEARNING, *curves]),
            Chapter("What they write", [Sentences(of_grid(grid, REFERENCE, PROPOSED))]),
            Chapter("Every seed", [every_seed(grid, table)]),
            Chapter("Time", [times(grid)]),
        ],
        details(table, seeds),
        commands,
        made(grid, signatures(grid)),
    )


def table(folder: Path) -> Table:
    """The paper's Fig. 5, left, for the terminal."""
    grid = read_grid(folder)
    caption = "best grammatical: of the task's sentences, those with the highest expected reward"
    return scores(grid, rows(grid)).terminal(f"{TITLE}: test scores", caption)


def scores(grid: Grid, table: Sequence[Row]) -> ReportTable:
    """Fig. 5, left."""
    lines = [
        [
            f"{row.task}, {row.metric}",
            *(spelled(cell, method == row.winner) for method, cell in row.cells.items()),
            number(row.best),
            number(row.cells[PROPOSED].ratio),
        ]
        for row in table
    ]
    columns = ["task", *(LABELS[method] for method in grid.methods), "best grammatical", RATIO]
    return ReportTable("Test scores", columns, lines)


def every_seed(grid: Grid, table: Sequence[Row]) -> ReportTable:
    lines = []
    for row in table:
        base = [result.score for result in grid.of(row.task, BASE)]
        deviation = stdev(base) if len(base) > 1 else None
        lines.append([row.task, LABELS[BASE], *map(number, base), number(mean(base)), number(deviation)])
        for method, cell in row.cells.items():
            values = [*map(number, cell.scores), number(cell.mean), number(cell.deviation)]
            lines.append([row.task, LABELS[method], *values])
    seeds = [f"seed {seed}" for seed in sorted(grid.seeds)]
    return ReportTable("Every seed", ["task", "method", *seeds, "mean", "deviation"], lines)


def times(grid: Grid) -> ReportTable:
    methods = (BASE, *grid.methods)
    lines = [
        [task, *(duration(mean(result.seconds for result in grid.of(task, method))) for method in methods)]
        for task in grid.tasks
    ]
    return ReportTable("Time of one run, mean over seeds", ["task", *(LABELS[each] for each in methods)], lines)


def signatures(grid: Grid) -> list[tuple[str, str]]:
    """By task: how its scores were made; more than one means that they do not compare."""
    found = {task: {r.signature for method in grid.methods for r in grid.of(task, method)} for task in grid.tasks}
    return [(task, signature) for task in grid.tasks for signature in sorted(found[task])]


def headline(table: Sequence[Row]) -> str:
    """What was found, in a sentence."""
    higher = [row.task for row in table if row.cells[PROPOSED].gain > 0]
    return f"{NEW} scores higher than {OLD} on {len(higher)} of {len(table)} tasks."


def details(table: Sequence[Row], seeds: int) -> str:
    """By how much, and how far to trust it."""
    found = "; ".join(map(finding, table))
    if seeds == 1:
        return f"{found}. One seed: how far chance reaches is not known."
    clear = [row.task for row in table if row.cells[PROPOSED].clear]
    where = f"on {', '.join(clear)}" if clear else "on no task"
    return f"{found}. The difference is larger than its deviation over {seeds} seeds {where}."


def finding(row: Row) -> str:
    ours, reference = row.cells[PROPOSED], row.cells[REFERENCE]
    change = f" ({100 * (ours.ratio - 1):+.1f}{NBSP}%)".replace("-", "−") if ours.ratio is not None else ""
    return f"{row.task}: {row.metric} {ours.mean:.2f} against {reference.mean:.2f}{change}"
