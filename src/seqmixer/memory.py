"""What the memory does not hold, told from other errors. torch has a type of its own for some devices only."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from seqmixer.errors import OutOfMemory

SIGNS = ("out of memory", "DefaultCPUAllocator", "ALLOC_FAILED", "Storage size calculation overflowed")
ADVICE = (
    "take a smaller model (model.hidden, model.layers), smaller batches (training.batch_size, evaluation.batch_size), "
    "fewer samples (algorithm.samples), shorter sentences (data.length) or a smaller beam"
)


@contextmanager
def within_memory() -> Iterator[None]:
    """`OutOfMemory`, whichever way a device has of saying so. Usable as a decorator."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        raise OutOfMemory(f"the memory does not hold this{asked_for(error)}; {ADVICE}") from None


def ran_out(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in SIGNS)


def asked_for(error: BaseException) -> str:
    """
    >>> asked_for(RuntimeError("can't allocate memory: you tried to allocate 4000 bytes. Error code 12"))
    ' (4000 bytes were asked for)'
    >>> asked_for(MemoryError())
    ''
    """
    found = re.search(r"allocate ([\d.]+ \w+)", str(error))
    return f" ({found[1]} were asked for)" if found else ""
