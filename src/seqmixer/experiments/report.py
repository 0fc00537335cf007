"""What all reports share: their tables, their page, their Markdown, and what the models write."""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from seqmixer import __version__
from seqmixer.bars import duration
from seqmixer.errors import RunError, missing_extra
from seqmixer.experiments.figures import standalone
from seqmixer.experiments.grid import shared_task
from seqmixer.experiments.methods import DARK, LABELS, LIGHT, NEW, OLD, PROPOSED, REFERENCE, RL
from seqmixer.experiments.summary import Grid, MethodScores
from seqmixer.runs import load
from seqmixer.storage.identity import read_config

TEMPLATES = Path(__file__).parent
EXAMPLES = 6  # of each task


@dataclass(frozen=True)
class ReportTable:
    """Text that a page, Markdown and the terminal show alike. **Bold** is Markdown's."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> Iterator[str]:
        yield markdown_row(self.columns)
        yield markdown_row(["---", *["---:"] * (len(self.columns) - 1)])
        yield from map(markdown_row, self.rows)

    def terminal(self, title: str, caption: str | None = None) -> Table:
        table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="right" if i else "left", no_wrap=not i)
        for row in self.rows:
            table.add_row(*(f"[bold]{cell.strip('*')}" if cell.startswith("**") else cell for cell in row))
        return table


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Example:
    """One test sentence and what each method wrote for it, in the manner of Fig. 7."""

    number: int  # of the sentence, from 1
    source: str
    references: Sequence[str]
    hypotheses: Sequence[tuple[str, Sequence[tuple[str, bool]]]]  # by method: words, and whether a reference has them


def require_extra() -> None:
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("a report needs matplotlib and jinja2", "report") from None


def write_page(path: Path, template: str, **values: Any) -> Path:
    """Fill a template of this folder: a page that needs no other file, no network and no script."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(duration=duration)
    shared = {"labels": LABELS, "light": LIGHT, "dark": DARK, "old": OLD, "new": NEW, "rl": RL}
    path.write_text(environment.get_template(template).render(shared | values), encoding="utf-8")
    return path


def write_figures(drawings: Mapping[str, str], place: Path, stem: str) -> None:
    """Write drawings as files PLACE/STEM-....svg."""
    for name, drawing in drawings.items():
        (place / f"{stem}-{name.removeprefix(f'{stem}-')}.svg").write_text(standalone(drawing), encoding="utf-8")


def examples(grid: Grid, task: str) -> list[Example]:
    """The first test sentences for which XENT and MIXER, with the first seed, wrote different things."""
    runs = {method: grid.folder / grid.of(task, method)[0].run for method in grid.methods}
    written = {method: read_hypotheses(run) for method, run in runs.items()}
    data = shared_task(read_config(runs[PROPOSED])) or load(runs[PROPOSED]).task()
    meta = data.test.meta
    for method, lines in written.items():
        if len(lines) != len(meta):
            raise RunError(
                f"{runs[method] / 'test.txt'}: {len(lines)} lines, but the test split has {len(meta)} sentences"
            )
    chosen = [i for i in range(len(meta)) if written[REFERENCE][i] != written[PROPOSED][i]][:EXAMPLES]
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


def how(
    grid: Grid, signatures: Iterable[tuple[str, str]], commands: Sequence[str], versions: str | None = None
) -> Iterator[str]:
    """The end of a Markdown report: how its numbers were made."""
    yield from ["## How", "", *(f"- {name}: `{signature}`" for name, signature in signatures)]
    yield f"- {grid.machine}; {versions or f'seqmixer {__version__}'}; {duration(grid.seconds)} in all"
    yield from ["", "```", *commands, "```"]


def versions() -> str:
    return f"seqmixer {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def spelled(scores: MethodScores, wanted: bool = False) -> str:
    """Mean ± deviation, bold if that is wanted."""
    text = number(scores.mean) + ("" if scores.deviation is None else f" ± {number(scores.deviation)}")
    return f"**{text}**" if wanted else text
