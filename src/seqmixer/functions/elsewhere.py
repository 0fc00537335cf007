"""A user's function that lives in another Python environment, where its libraries are: COMET's, for instance.

Its process is a child of a worker process. So all rules of the pool hold for it: it works beside the model, each call
has a time limit, and it dies with the run.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqmixer.errors import ConfigError, RewardError

SERVER = Path(__file__).with_name("elsewhere_server.py")
OURS = ("PYTHONHOME", "VIRTUAL_ENV", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__")  # variables of this Python alone
COLUMNS = {"hypotheses": "hypothesis", "sources": "source"}  # of a batch -> of a row


class Elsewhere:
    """f(hypotheses, references, **columns) for a function of any kind, called by another Python.

    That Python starts when this is unpickled, in a worker, so that to load a model counts towards no call.
    """

    def __init__(self, python: str, path: str) -> None:
        self.python, self.path, self.__name__ = str(Path(python).expanduser()), path, path
        if not os.access(self.python, os.X_OK) or Path(self.python).is_dir():
            raise ConfigError(f"reward.python = {python!r}: no program there; name the Python of an environment")

    def __reduce__(self) -> tuple[Any, ...]:
        return started, (self.python, self.path)

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Any], **columns: Sequence[Any]) -> list[float]:
        every = {"hypotheses": hypotheses, "references": references, **columns}
        names = [COLUMNS.get(name, name) for name in every]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*every.values(), strict=True)]
        scores: list[float] = self.answer(rows)["scores"]
        return scores

    def start(self) -> None:
        """Start that Python, and wait until it has the function."""
        environment = {name: value for name, value in os.environ.items() if name not in OURS}
        self.process = subprocess.Popen(
            [self.python, str(SERVER), self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.receive()

    def answer(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(rows).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it is gone: what it said, or did not say, is read next
        return self.receive()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RewardError(f"reward {self.path!r}: {self.python} ended with exit code {self.process.wait()}")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise RewardError(f"in {self.python}: {message['error']}")
        return message


def started(python: str, path: str) -> Elsewhere:
    function = Elsewhere(python, path)
    function.start()
    return function
