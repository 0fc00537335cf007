"""The errors a user can cause, worded so that they can be fixed: what was got, what is allowed, where, what to do."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

SIGNS = ("out of memory", "DefaultCPUAllocator", "ALLOC_FAILED", "Storage size calculation overflowed")
ADVICE = (
    "take a smaller model (model.hidden, model.layers), smaller batches (training.batch_size, evaluation.batch_size), "
    "fewer samples (algorithm.samples), shorter sentences (data.length) or a smaller beam"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # also those that reverse a line


def printable(text: str) -> str:
    """Text for a terminal, with control characters escaped.

    >>> print(printable("red: \x1b[31m"))
    red: \\x1b[31m
    """
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


class SeqmixerError(Exception):
    """Something the caller can fix. The command line prints it as one line and exits with 2."""


class ConfigError(SeqmixerError):
    """A setting is unknown, out of range, or clashes with another."""


class DataError(SeqmixerError):
    """A data file is missing, damaged, or does not fit another."""


class RewardError(SeqmixerError):
    """A reward raised, or did not give one finite number per sequence."""


class RunError(SeqmixerError):
    """A run folder is missing, damaged, or belongs to another config."""


class Diverged(RunError):
    """A run came upon a number that is not finite. Other settings may train."""


class OutOfMemory(SeqmixerError):
    """Out of memory, on any device. Other settings may fit."""


class Lost(RunError):
    """One of several processes is gone. The same command resumes from what was saved."""


class Interrupted(SeqmixerError):
    """A run was stopped and saved. The command line exits with 130."""


def unknown(kind: str, got: object, choices: Iterable[str]) -> ConfigError:
    """Build the error for a name that is not among `choices`."""
    names = sorted(choices)
    near = get_close_matches(str(got), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ConfigError(f"unknown {kind} {got!r}.{hint} Known: {', '.join(names)}.")


def missing_extra(who_needs: str, extra: str) -> SeqmixerError:
    """Build the error for an optional package that is not installed: "a report needs jinja2"."""
    return SeqmixerError(f"{who_needs}; install it with: {installation(extra)}")


def installation(extra: str) -> str:
    """The command. In quotes, because some shells take the brackets for a pattern."""
    return f"pip install 'seqmixer[{extra}]'"


@contextmanager
def within_memory() -> Iterator[None]:
    """Raise `OutOfMemory` for out-of-memory errors of any device. Usable as a decorator."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        raise OutOfMemory(f"out of memory{asked_for(error)}; {ADVICE}") from None


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
