"""Python's garbage collector, out of the way while a corpus is read."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles within. A corpus becomes millions of lists without one, and each search visits them all.

    Usable as a decorator.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
