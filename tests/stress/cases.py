"""What a case is given, and how the end of a command is judged."""

import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stress import station
from stress.station import Ended

GOOD = ("recovered", "refused", "harmless")
BAD = ("lost", "silent", "traceback", "orphan", "hang")  # none of these may be
CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")  # what a terminal obeys
SHOWN = 2000  # bytes of each output in the record of a failure


@dataclass
class Site:
    """A case: a folder of its own, its random numbers, and the count of what came of it."""

    materials: Path
    folder: Path
    rng: random.Random
    flavour: str
    fresh: float  # the share of commands that a new interpreter runs
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    commands: int = 0
    started: int = 0  # of these with a new interpreter

    def run(self, argv: list[str], folder: Path | None = None, **options: Any) -> Ended:
        """A command, in the folder of the case unless it says another."""
        fresh = self.rng.random() < self.fresh and "program" not in options
        self.commands, self.started = self.commands + 1, self.started + fresh
        return station.run(argv, folder or self.folder, fresh=fresh, **options)

    def count(self, verdict: str, ended: Ended, what: str, number: int = 1) -> None:
        """Note what came of something; of what must not be, all that is needed to look into it."""
        self.counts[verdict] += number
        if verdict in BAD:
            self.failures.append(
                {
                    "verdict": verdict,
                    "what": what,
                    "command": ended.argv,
                    "code": ended.code,
                    "killed": ended.killed,
                    "left": ended.left,
                    "out": tail(ended.out),
                    "err": tail(ended.err),
                }
            )

    def copy(self, of: str) -> Path:
        """A run of this flavour in the folder of the case: `done`, or killed `half`-way."""
        shutil.copytree(self.materials / self.flavour / of / "run", self.folder / "run", symlinks=True)
        return self.folder / "run"


def tail(output: bytes) -> str:
    return output[-SHOWN:].decode(errors="backslashreplace")


def wrong(ended: Ended, said: bool = True) -> str | None:
    """What is wrong with the way a command ended, whatever it was for; None where nothing is.

    `traceback` is any end but exit code 0, or 2 with one line: a crash, more than one line, control characters, too.
    `said` is false for `doctor`, which exits with 2 where it found a problem and lists that among its findings.
    """
    if ended.hung:
        return "hang"
    if ended.left:
        return "orphan"
    if b"Traceback (most recent call last)" in ended.out + ended.err or CONTROL.search(ended.err):
        return "traceback"
    if ended.killed:
        return None
    if ended.code == 0 or (ended.code == 2 and (one_line(ended.err) or not (said or ended.err))):
        return None
    return "traceback"


def one_line(err: bytes) -> bool:
    """Whether an error was said in one line, the last; warnings, and a plan of the run, may come before it."""
    lines = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("seqmixer: ") and not line.startswith("seqmixer: warning: ")]
    return len(said) == 1 and lines[-1] == said[0]


def warned(ended: Ended) -> bool:
    return b"seqmixer: warning: " in ended.err


def differing(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """The names of what is not as it should be."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
