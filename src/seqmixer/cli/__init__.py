"""The command line. A command parses, calls one function of the library and prints what it gave.

torch is imported inside the commands, so that --help answers at once. Results go to standard output, all else to
standard error.
"""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from seqmixer.cli import data, doctor, init, running, scoring, serving, sweep, tables  # noqa: F401  (their commands enter the application)
from seqmixer.cli.options import app, this_command
from seqmixer.errors import Interrupted, Lost, SeqmixerError, printable, within_memory
from seqmixer.parallel import launch
from seqmixer.parallel.workers import AGAIN, insist, stop_handler

__all__ = ["app", "main"]


def main() -> None:
    """Run a command. An error that the user can fix is one line and exit code 2; a stopped command exits with 130."""
    warnings.showwarning = lambda message, *where: warn(message)
    try:
        with stoppable(), within_memory():
            app()
    except (SeqmixerError, OSError) as error:
        say(in_words(error))
        end(130 if isinstance(error, Interrupted) else 2)


def in_words(error: Exception) -> str:
    if isinstance(error, (Interrupted, Lost)):
        return f"{error}; resume with: {this_command()}"
    if isinstance(error, OSError):  # a full disk, a file where a folder is meant
        return f"{error.filename or 'the output'} cannot be read or written: {error.strerror or error}"
    return str(error)


def end(code: int) -> NoReturn:
    """Exit; as one of several ranks at once: the threads of a group that was not left may abort an orderly end."""
    if launch.processes() > 1:
        from seqmixer.parallel.ranks import many

        if many():
            sys.stdout.flush()
            os._exit(code)
    sys.exit(code)


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C and SIGTERM end a command that does not handle them itself, wherever it is: `Interrupted`."""
    stopped, over = False, threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            threading.Thread(target=again, daemon=True).start()
        raise KeyboardInterrupt

    def again() -> None:
        if not over.wait(AGAIN):
            insist(stop, over.wait)

    def report(lost: "sys.UnraisableHookArgs") -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):  # that one is raised again
            usual(lost)

    usual, sys.unraisablehook = sys.unraisablehook, report
    with stop_handler(stop):
        try:
            yield
        except BaseException as error:  # whatever an import makes of it; of KeyboardInterrupt, typer makes SystemExit
            stopped |= isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == 130)
            if stopped and not isinstance(error, Interrupted):
                raise Interrupted("stopped") from None
            raise
        finally:
            over.set()
            sys.unraisablehook = usual


def say(line: str) -> None:
    """One line on standard error, once for all ranks."""
    if launch.processes() > 1:
        from seqmixer.parallel.ranks import first_to_say

        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends all with the first that ends; this one is ending
        if not first_to_say():
            return
    print(f"seqmixer: {as_line(line)}", file=sys.stderr, flush=True)


def warn(message: Warning | str) -> None:
    """One line on standard error, by the first rank alone: all ranks read the same files."""
    if launch.number() == 0:
        print(f"seqmixer: warning: {as_line(str(message))}", file=sys.stderr)


def as_line(text: str) -> str:
    """Text of an error, which may quote a name out of a file with a newline in it."""
    return printable(text).replace("\n", "\\n")
