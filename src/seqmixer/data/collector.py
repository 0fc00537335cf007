"""Pause Python's garbage collector while a corpus is read."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection in the block: a corpus is millions of lists without cycles, and each search visits all.

    Usable as a decorator.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
