"""A grid of runs as one page to read, and as a Markdown table: scores, gains, curves and what the models write."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

import torch

from seqmixer import __version__
from seqmixer.errors import RunError, missing_extra
from seqmixer.experiments.figures import DARK, LIGHT, learning_curves, relative_gains, standalone
from seqmixer.experiments.grid import shared_task
from seqmixer.experiments.summary import LABELS, Cell, Grid, Row, details, headline, read_grid, rows
from seqmixer.runs import load
from seqmixer.storage.identity import read_config

if TYPE_CHECKING:  # an extra: loaded by the functions that need it
    from jinja2 import Template

TEMPLATES = Path(__file__).parent
EXAMPLES = 6  # of each task
GRAMMATICAL = (
    "Best grammatical: the score of writing, for each source, the sentence of the task's grammar with the highest "
    "expected reward. It is no upper bound: a model that is paid for recall may learn to write two headlines in one."
)


@dataclass(frozen=True)
class Example:
    """One test sentence and what each method wrote for it, in the manner of Fig. 7."""

    number: int  # of the sentence, from 1
    source: str
    references: Sequence[str]
    hypotheses: Sequence[tuple[str, Sequence[tuple[str, bool]]]]  # by method: words, and whether a reference has them


def write_report(folder: Path, title: str, commands: list[str]) -> Path:
    """Write FOLDER/report.html, which needs no other file, no network and no script."""
    require_extra()
    from markupsafe import Markup

    grid = read_grid(folder)
    table = rows(grid)
    page = template("report.html").render(
        title=title,
        commands=commands,
        grid=grid,
        table=table,
        headline=headline(table),
        details=details(table, len(grid.seeds)),
        grammatical=GRAMMATICAL if any(row.best is not None for row in table) else "",
        labels=LABELS,
        light=LIGHT,
        dark=DARK,
        gains=Markup(relative_gains(table, "gains")),
        curves={task: Markup(learning_curves(grid, task, task)) for task in grid.tasks},
        examples={task: examples(grid, task) for task in grid.tasks},
        signatures=signatures(grid),
        versions=versions(),
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def template(name: str) -> "Template":
    """A page of this folder, or of one below it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(number=number, duration=duration)
    return environment.get_template(name)


def require_extra() -> None:
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("a report needs matplotlib and jinja2", "report") from None


def examples(grid: Grid, task: str) -> list[Example]:
    """The first test sentences for which XENT and MIXER, with the first seed, wrote different things."""
    runs = {method: grid.results[task, method][0].folder for method in grid.methods}
    written = {method: read_hypotheses(run) for method, run in runs.items()}
    data = shared_task(read_config(runs["mixer"])) or load(runs["mixer"]).task()
    meta = data.test.meta
    for method, lines in written.items():
        if len(lines) != len(meta):
            raise RunError(
                f"{runs[method] / 'test.txt'}: {len(lines)} lines, but the test split has {len(meta)} sentences"
            )
    chosen = [i for i in range(len(meta)) if written["xent"][i] != written["mixer"][i]][:EXAMPLES]
    return [
        Example(
            i + 1,
            meta[i]["source"],
            meta[i]["references"],
            [(method, marked(lines[i], meta[i]["references"])) for method, lines in written.items()],
        )
        for i in chosen
    ]


def read_hypotheses(run: Path) -> list[str]:
    path = run / "test.txt"
    if not path.is_file():
        raise RunError(f"{path}: no such file; it holds what the run wrote for the test split")
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def marked(hypothesis: str, references: Sequence[str]) -> list[tuple[str, bool]]:
    """Words, and whether any reference has them.

    >>> marked("the red cat", ["a red cat", "red cats"])
    [('the', False), ('red', True), ('cat', True)]
    """
    known = {word for reference in references for word in reference.split()}
    return [(word, word in known) for word in hypothesis.split()]


def signatures(grid: Grid) -> dict[str, list[str]]:
    """By task: how its scores were made; more than one means that they do not compare."""
    return {
        task: sorted({r.signature for method in grid.methods for r in grid.results[task, method]})
        for task in grid.tasks
    }


def versions() -> str:
    return f"seqmixer {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def duration(seconds: float) -> str:
    """For people.

    >>> duration(231.4), duration(7.26), duration(5025)
    ('3 min 51 s', '7.3 s', '1 h 24 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    return f"{round(seconds / 60) // 60} h {round(seconds / 60) % 60} min"


def write_figures(folder: Path, place: Path, stem: str) -> None:
    """Write the drawings of `write_report` as files PLACE/STEM-....svg."""
    require_extra()
    grid = read_grid(folder)
    drawings = {"gains": relative_gains(rows(grid), "gains")}
    drawings |= {task: learning_curves(grid, task, task) for task in grid.tasks}
    for name, drawing in drawings.items():
        (place / f"{stem}-{name.removeprefix(f'{stem}-')}.svg").write_text(standalone(drawing), encoding="utf-8")


def write_markdown(folder: Path, path: Path, title: str, commands: list[str]) -> Path:
    """Write the table of `write_report`, with the score of every seed, as Markdown."""
    grid = read_grid(folder)
    table = rows(grid)
    lines = [f"# {title}", "", f"{headline(table)} {details(table, len(grid.seeds))}", "", *main_table(grid, table), ""]
    lines += [
        "Bold: the highest mean of its row, where its gain over XENT is larger than the deviation of that gain over"
    ]
    lines += ["seeds. Gains and MIXER / XENT are taken seed by seed, from the same base, and averaged.", ""]
    lines += [GRAMMATICAL, ""] if any(row.best is not None for row in table) else []
    lines += ["## Every seed", "", *seed_table(grid, table), "", "## How", ""]
    lines += [f"- {task}: `{signature}`" for task, found in signatures(grid).items() for signature in found]
    lines += [f"- {grid.machine}; {versions()}; {duration(grid.seconds)} in all", "", "```", *commands, "```", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def main_table(grid: Grid, table: Sequence[Row]) -> Iterator[str]:
    names = ["task", *(LABELS[method] for method in grid.methods), "best grammatical", "MIXER / XENT"]
    yield from markdown_header(names)
    for row in table:
        cells = [bold(spelled(cell), method == row.winner) for method, cell in row.cells.items()]
        yield markdown_row([f"{row.task}, {row.metric}", *cells, number(row.best), number(row.cells["mixer"].ratio)])


def seed_table(grid: Grid, table: Sequence[Row]) -> Iterator[str]:
    yield from markdown_header(
        ["task", "method", *(f"seed {seed}" for seed in sorted(grid.seeds)), "mean", "deviation"]
    )
    for row in table:
        base = [r.score for r in grid.results[row.task, "base"]]
        deviation = stdev(base) if len(base) > 1 else None
        yield markdown_row([row.task, LABELS["base"], *map(number, base), number(mean(base)), number(deviation)])
        for method, cell in row.cells.items():
            values = [*map(number, cell.scores), number(cell.mean), number(cell.deviation)]
            yield markdown_row([row.task, LABELS[method], *values])


def markdown_header(names: Sequence[str]) -> Iterator[str]:
    yield markdown_row(names)
    yield markdown_row(["---", *["---:"] * (len(names) - 1)])


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def spelled(cell: Cell) -> str:
    """Mean ± deviation."""
    return number(cell.mean) + ("" if cell.deviation is None else f" ± {number(cell.deviation)}")


def bold(text: str, wanted: bool) -> str:
    return f"**{text}**" if wanted else text
