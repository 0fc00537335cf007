"""`seqmixer demo`: the paper's comparison on the three built-in tasks, in minutes, with a table and a report."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from rich.table import Table

from seqmixer.config import Config
from seqmixer.experiments.grid import Recipe, run_grid
from seqmixer.experiments.report import number, require_extra, spelled, write_figures, write_markdown, write_report
from seqmixer.experiments.summary import LABELS, read_grid, rows
from seqmixer.experiments.watching import watched

TITLE = "XENT, DAD, E2E and MIXER on the built-in tasks"
TASKS = ("translation", "summarization", "captioning")


def run_demo(out: Path, seeds: list[int], workers: int, markdown: Path | None, command: str) -> Path:
    """Train, score and report. Called again after a stop, it goes on. -> the report"""
    require_extra()  # before the minutes, not after
    with toy_recipes() as recipes, watched(recipes, len(seeds), out, workers) as watcher:
        run_grid(recipes, seeds, out, workers, watcher.report, look=watcher.look)
    if markdown is not None:
        write_markdown(out, markdown, TITLE, [command])
        write_figures(out, markdown.parent, markdown.stem)
    return write_report(out, TITLE, [command])


@contextmanager
def toy_recipes() -> Iterator[list[Recipe]]:
    """The configs of the built-in tasks, which come with the package."""
    with as_file(files("seqmixer") / "configs" / "toy") as folder:
        paths = [folder / f"{task}.toml" for task in TASKS]
        yield [Recipe(Config.load(path).data.task, path) for path in paths]


def table(folder: Path) -> Table:
    """The paper's Fig. 5, left, for the terminal."""
    grid = read_grid(folder)
    shown = Table(title=f"{TITLE}: test scores", title_justify="left", caption_justify="left")
    shown.caption = "best: of the task's grammatical sentences, those with the highest expected reward"
    shown.add_column("task", no_wrap=True)
    for name in (*(LABELS[method] for method in grid.methods), "best", "MIXER / XENT"):
        shown.add_column(name, justify="right")
    for row in rows(grid):
        cells = [spelled(row.cells[method]) for method in grid.methods]
        shown.add_row(f"{row.task} ({row.metric})", *cells, number(row.best), number(row.cells["mixer"].ratio))
    return shown
