"""The command line. A command parses, calls one function of the library and prints what it gave.

torch is imported inside the commands, so that --help answers at once. Results go to standard output, all else to
standard error.
"""

import signal
import sys
import warnings

from seqmixer import launch
from seqmixer.cli import data, doctor, running, scoring, sweep, tables  # noqa: F401  (their commands enter the application)
from seqmixer.cli.options import app, this_command
from seqmixer.errors import Interrupted, Lost, SeqmixerError, printable
from seqmixer.memory import within_memory

__all__ = ["app", "main"]


def main() -> None:
    """Run a command. What the caller can mend is one line and exit code 2; a stopped run exits with 130."""
    warnings.showwarning = lambda message, *where: warn(message)
    try:
        with within_memory():
            app()
    except Interrupted as error:
        say(f"{error}; go on with: {this_command()}")
        sys.exit(130)
    except Lost as error:
        say(f"{error}; go on with: {this_command()}")
        sys.exit(2)
    except SeqmixerError as error:
        say(str(error))
        sys.exit(2)
    except OSError as error:  # a full disk, a file where a folder is meant
        say(f"{error.filename or 'the output'} cannot be read or written: {error.strerror or error}")
        sys.exit(2)


def say(line: str) -> None:
    """One line on standard error; of several processes, the first that has one."""
    if launch.processes() > 1:
        from seqmixer.ranks import first_to_say

        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends all with the first that ends; this one is ending
        if not first_to_say():
            return
    print(f"seqmixer: {printable(line)}", file=sys.stderr, flush=True)


def warn(message: Warning | str) -> None:
    """One line on standard error; several processes read the same files, and the first warns of them."""
    if launch.number() == 0:
        print(f"seqmixer: warning: {printable(str(message))}", file=sys.stderr)
