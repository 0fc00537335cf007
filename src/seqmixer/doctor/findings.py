"""What the doctor says: one line for each finding, and the numbers behind it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line.

    >>> print(Finding("warning", "T = 9 covers 80 % of the targets", "the rest loses its end", "raise data.length"))
    T = 9 covers 80 % of the targets: the rest loses its end; raise data.length
    """

    level: Level  # a problem stops the run or makes it worthless; a warning is likely to cost; a note is good to know
    what: str
    why: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return self.what + (f": {self.why}" if self.why else "") + (f"; {self.advice}" if self.advice else "")


@dataclass(frozen=True)
class Check:
    """What was found in one place, and what was measured there."""

    name: str
    findings: Sequence[Finding]
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        return any(finding.level == "problem" for finding in self.findings)


@dataclass(frozen=True)
class Diagnosis:
    """All that was found."""

    sections: Sequence[Check]

    def count(self, level: Level) -> int:
        return sum(finding.level == level for section in self.sections for finding in section.findings)

    def lines(self) -> list[str]:
        """One for each finding, and one that counts them."""
        found = [
            f"{finding.level:<8} {section.name}: {finding}" for section in self.sections for finding in section.findings
        ]
        levels: tuple[Level, ...] = ("problem", "warning", "note")
        counts = [f"{n} {level}{'s' * (n > 1)}" for level in levels if (n := self.count(level))]
        return [*found, ", ".join(counts) or "nothing to fix"]

    def as_json(self) -> dict[str, Any]:
        return {
            "problems": self.count("problem"),
            "warnings": self.count("warning"),
            "sections": {
                section.name: {"findings": [asdict(finding) for finding in section.findings], **section.values}
                for section in self.sections
            },
        }
