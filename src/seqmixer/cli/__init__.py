"""The command line. A command parses, calls one function of the library and prints what it gave.

torch is imported inside the commands, so that --help answers at once. Results go to standard output, all else to
standard error.
"""

import sys
import warnings

from seqmixer.cli import data, doctor, running, scoring, sweep, tables  # noqa: F401  (their commands enter the application)
from seqmixer.cli.options import app, this_command
from seqmixer.errors import Interrupted, SeqmixerError

__all__ = ["app", "main"]


def main() -> None:
    """Run a command. What the caller can mend is one line and exit code 2; a stopped run exits with 130."""
    warnings.showwarning = lambda message, *where: print(f"seqmixer: warning: {message}", file=sys.stderr)
    try:
        app()
    except Interrupted as error:
        print(f"seqmixer: {error}; go on with: {this_command()}", file=sys.stderr)
        sys.exit(130)
    except SeqmixerError as error:
        print(f"seqmixer: {error}", file=sys.stderr)
        sys.exit(2)
