"""Ctrl-C and SIGTERM: finish the batch, save, say how to go on. A second one ends the program at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from seqmixer.errors import Interrupted
from seqmixer.parallel.workers import stop_handler


class Interrupt:
    """The first signal only sets `asked`."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def error(self, out: Path, epoch: int, batch: int, total: int) -> Interrupted:
        return Interrupted(f"stopped in epoch {epoch} after {batch} of {total} batches; saved in {out / 'last'}")


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Between `with` and its end, signals go to an `Interrupt`."""
    interrupt = Interrupt()
    with stop_handler(interrupt.ask):
        yield interrupt
