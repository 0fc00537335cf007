"""What every report is made of: chapters of tables, figures, curves and sentences. It is a page, or Markdown."""

import base64
import hashlib
import json
import math
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from rich.markup import escape
from rich.table import Table

from seqmixer import __version__, files
from seqmixer.bars import duration
from seqmixer.errors import ConfigError, missing_extra
from seqmixer.experiments.figures import standalone
from seqmixer.experiments.methods import DARK, LABELS, LIGHT
from seqmixer.experiments.report.sentences import Outputs
from seqmixer.experiments.summary import Grid, MethodScores
from seqmixer.training.callbacks import Event

TEMPLATES = Path(__file__).parent
SCRIPTS = ("base.js", "curves.js", "sentences.js", "runs.js")
METHOD_COLOURS = {LABELS[name]: f"var(--{name})" for name in LIGHT if name in LABELS}
# Control characters, and those that are invisible or turn text around. Joiners stay: emoji have them.
HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


@dataclass(frozen=True)
class ReportTable:
    """Text that a page, Markdown and the terminal show alike. **Bold** is Markdown's."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    folded: bool = False  # on the page

    kind: ClassVar = "table"

    def markdown(self) -> Iterator[str]:
        for row in (self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows):
            yield f"| {' | '.join(row)} |"

    def terminal(self, title: str | None = None, caption: str | None = None) -> Table:
        table = Table(title=title, caption=caption or self.note or None, box=None, pad_edge=False)
        table.title_justify = table.caption_justify = "left"
        for i, column in enumerate(self.columns):
            least = max(len(row[0]) for row in self.rows) if self.rows and not i else None  # names are never cut
            side: Literal["right", "left"] = "right" if i else "left"
            table.add_column(escape(column), justify=side, overflow="fold", no_wrap=i > 0, min_width=least)
        for row in self.rows:
            table.add_row(*(f"[bold]{escape(cell.strip('*'))}" if cell[:2] == "**" else escape(cell) for cell in row))
        return table


@dataclass(frozen=True)
class Drawing:
    """A drawing: on the page itself, of Markdown a file beside it."""

    name: str
    drawing: str  # an SVG element
    caption: str = ""
    title: str = ""

    kind: ClassVar = "figure"

    def file(self, stem: str) -> str:
        return f"{stem}-{self.name.removeprefix(f'{stem}-')}.svg"


@dataclass(frozen=True)
class Bars:
    """How sums divide into parts, such as the time of each run."""

    title: str
    rows: Sequence[tuple[str, Mapping[str, float]]]
    note: str = ""

    kind: ClassVar = "bars"


@dataclass(frozen=True)
class History:
    """The log of a run, to draw."""

    label: str
    colour: str
    events: Sequence[Event]
    batches: int | None = None  # of an epoch


@dataclass(frozen=True)
class Curves:
    """A panel for each column of the logs; on the page alone."""

    histories: Sequence[History]

    kind: ClassVar = "curves"


@dataclass(frozen=True)
class Sentences:
    """Every test sentence with what was written for it; in Markdown the first on which two systems differ."""

    tests: Sequence[Outputs]

    kind: ClassVar = "sentences"


Part = ReportTable | Drawing | Bars | Curves | Sentences | str


@dataclass(frozen=True)
class Chapter:
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Page:
    """A report."""

    title: str
    headline: str
    chapters: Sequence[Chapter]
    details: str = ""
    commands: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()  # how it was made
    colours: Mapping[str, str] = field(default_factory=lambda: METHOD_COLOURS)  # of labels in tables
    live: bool = False  # asks its server for more

    def parts(self, kind: type[Any]) -> list[Any]:
        return [part for chapter in self.chapters for part in chapter.parts if isinstance(part, kind)]

    def html(self) -> str:
        """A page that needs no other file and no network, and that runs no script but its own."""
        script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS)
        histories = [vars(history) for part in self.parts(Curves) for history in part.histories]
        data = {"histories": histories, "tests": [test.data() for part in self.parts(Sentences) for test in part.tests]}
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return self.filled("page.html", script=script, digest=digest, data=embedded(data))

    def markdown(self, folder: Path, stem: str) -> Path:
        """Write FOLDER/STEM.md, and its figures beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        for figure in self.parts(Drawing):
            (folder / figure.file(stem)).write_text(standalone(figure.drawing), encoding="utf-8")
        path = folder / f"{stem}.md"
        text = self.filled("page.md", stem=stem)
        path.write_text(re.sub(r"\n{3,}", "\n\n", text).strip() + "\n", encoding="utf-8")
        return path

    def publish(self, folder: Path, markdown: Path | None, stem: str, numbers: Mapping[str, Any]) -> None:
        """FOLDER/report.html; Markdown with its figures, and the numbers, as STEM.* there and in `markdown`."""
        self.write(folder / "report.html")
        for place in (folder, *([markdown] if markdown else [])):
            self.markdown(place, stem)
            (place / f"{stem}.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, self.html())
        return path

    def filled(self, template: str, **values: Any) -> str:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=template.endswith(".html"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda value: visible(value) if type(value) is str else value,
        )
        environment.filters.update(duration=duration)
        return environment.get_template(template).render(page=self, light=LIGHT, dark=DARK, **values)


def require_extra(markdown: Path | None = None) -> None:
    """Refused here, before hours are spent: missing packages, and a file where `markdown` names a folder."""
    if markdown and markdown.exists() and not markdown.is_dir():
        raise ConfigError(f"--markdown {markdown} is a file; name a folder")
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("a report needs matplotlib and jinja2", "report") from None


def embedded(value: Any) -> str:
    """JSON that no HTML parser takes for markup; what JSON lacks is null, and what cannot be seen is spelled.

    >>> print(embedded({"a": ["</script>", float("nan"), "\\x1b"]}))
    {"a":["\\u003c/script>",null,"[U+001B]"]}
    """
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def plain(value: Any) -> Any:
    """Values as a page has them: with six digits, and text that shows all of itself."""
    match value:
        case str():
            return visible(value)
        case bool() | None | int():
            return value
        case float():
            return float(f"{value:.6g}") if math.isfinite(value) else None
        case Mapping():
            return {visible(str(name)): plain(each) for name, each in value.items()}
        case _:
            return [plain(each) for each in value]


def visible(text: str) -> str:
    """Text without characters that hide, or that turn around what follows them: these are spelled.

    >>> visible("a \\x1b b \\u202e c")
    'a [U+001B] b [U+202E] c'
    """
    return HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def made(grid: Grid, signatures: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """How the numbers of a grid were made."""
    facts = {"machine": grid.machine, "versions": versions(), "wall time": duration(grid.seconds)}
    return [*facts.items(), ("seeds", ", ".join(map(str, grid.seeds))), *signatures]


def versions() -> str:
    return f"seqmixer {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}"


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def spelled(scores: MethodScores, wanted: bool = False) -> str:
    """Mean ± deviation, bold if that is wanted."""
    text = number(scores.mean) + ("" if scores.deviation is None else f" ± {number(scores.deviation)}")
    return f"**{text}**" if wanted else text
