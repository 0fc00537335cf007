"""One progress bar on standard error, where that is a terminal, with lines of text above it; times in words."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress, ProgressColumn

from seqmixer.errors import printable

Item = TypeVar("Item")


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar with these columns (default: rich's own), which is gone when it is stopped."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def write_line(bar: Progress, line: str, style: str | None = None) -> None:
    """A line of text, which may have brackets or control characters."""
    bar.console.print(printable(line), style=style, highlight=False, soft_wrap=True, markup=False)


def watched(items: Sequence[Item], label: str) -> Iterator[Item]:
    """The items, with a bar that says how many of them are done."""
    with progress_bar() as bar:
        yield from bar.track(items, description=label)


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(231.4), duration(7.26), duration(5025)
    ('3 min 51 s', '7.3 s', '1 h 24 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    return f"{round(seconds / 60) // 60} h {round(seconds / 60) % 60} min"
