"""What the doctor says: one line for each finding, and the numbers behind it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from seqmixer.errors import SeqmixerError, within_memory

Level = Literal["ok", "note", "warning", "problem"]
PARTS = ("environment", "settings", "data", "checkpoint", "model", "cost", "pre-flight")  # in the order of the report


@dataclass(frozen=True)
class Finding:
    """One line.

    >>> print(warning("T = 9 covers 80 % of the targets", "the rest loses its end", "raise data.length"))
    T = 9 covers 80 % of the targets: the rest loses its end; raise data.length
    """

    level: Level  # a problem stops the run or makes it worthless; a warning is likely to cost; a note is good to know
    what: str
    why: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return self.what + (f": {self.why}" if self.why else "") + (f"; {self.advice}" if self.advice else "")


ok, note = partial(Finding, "ok"), partial(Finding, "note")
warning, problem = partial(Finding, "warning"), partial(Finding, "problem")


class Diagnosis:
    """All that was found, by part, and what was measured there."""

    def __init__(self) -> None:
        self.findings: dict[str, list[Finding]] = {part: [] for part in PARTS}
        self.values: dict[str, dict[str, Any]] = {part: {} for part in PARTS}

    def add(self, part: str, findings: Iterable[Finding], **values: Any) -> None:
        """Findings and numbers of a part. An error between findings is the last of them."""
        self.values[part] |= values
        with self.attempt(part):
            for finding in findings:
                self.findings[part].append(finding)

    @contextmanager
    def attempt(self, part: str, what: str = "") -> Iterator[None]:
        """The block ends with an error that a user can fix: then that is a problem of the part."""
        try:
            with within_memory():
                yield
        except SeqmixerError as error:
            self.findings[part].append(problem(what, str(error)) if what else problem(str(error)))

    def broken(self, *parts: str) -> list[str]:
        """Those of the parts that have a problem."""
        return [part for part in parts if any(finding.level == "problem" for finding in self.findings[part])]

    def count(self, level: Level) -> int:
        return sum(finding.level == level for findings in self.findings.values() for finding in findings)

    def lines(self) -> list[str]:
        """One for each finding, and one that counts them."""
        found = [f"{each.level:<8} {part}: {each}" for part in PARTS for each in self.findings[part]]
        levels: tuple[Level, ...] = ("problem", "warning", "note")
        counts = [f"{n} {level}{'s' * (n > 1)}" for level in levels if (n := self.count(level))]
        return [*found, ", ".join(counts) or "nothing to fix"]

    def as_json(self) -> dict[str, Any]:
        sections = {
            part: {"findings": [asdict(finding) for finding in findings], **self.values[part]}
            for part, findings in self.findings.items()
            if findings
        }
        return {"problems": self.count("problem"), "warnings": self.count("warning"), "sections": sections}
