"""A progress bar on standard error, where that is a terminal."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")


def watched(items: Sequence[Item], label: str) -> Iterator[Item]:
    """The items, with a bar that says how many of them are done."""
    console = Console(stderr=True)
    yield from track(items, label, console=console, transient=True, disable=not console.is_terminal)
