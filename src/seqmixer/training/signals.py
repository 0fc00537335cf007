"""Ctrl-C and SIGTERM: finish the batch, save, say how to go on. A second one ends the program at once."""

import signal
from pathlib import Path
from types import FrameType
from typing import Any, Self

from seqmixer.errors import Interrupted


class Interrupt:
    """Between `with` and its end, the first signal only sets `asked`."""

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[number] = signal.signal(number, self.ask)
            except ValueError:  # not the main thread: signals go elsewhere
                break
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def error(self, out: Path, epoch: int, batch: int, total: int) -> Interrupted:
        return Interrupted(f"stopped in epoch {epoch} after {batch} of {total} batches; saved in {out / 'last'}")
