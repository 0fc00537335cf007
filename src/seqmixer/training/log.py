"""What a run leaves for its reader: log.jsonl, one JSON object per event, and samples.txt made of it."""

import json
import os
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from seqmixer import files
from seqmixer.errors import RunError

Event = dict[str, Any]


class Other(TypedDict):
    """Any event."""

    event: str
    epoch: NotRequired[int]


class Closing(TypedDict):
    """The event that closes an epoch."""

    event: str
    epoch: int
    stage: str
    rate: float
    train: dict[str, float]
    valid: dict[str, float]
    best: bool
    symptoms: list[str]
    seconds: dict[str, float]
    samples: list[dict[str, str]]


class BadNumbers(TypedDict):
    """The event of batches with a number that is not finite."""

    event: str
    epoch: int
    batch: int
    batches: int
    quantities: list[str]
    where: str
    done: str


class Log:
    """log.jsonl. Events of one epoch are written together, when it is over."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder = folder
        self.path = folder / "log.jsonl"
        self.writes = writes  # of several processes only one does

    def write(self, event: Event) -> None:
        if not self.writes:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())  # a checkpoint that comes after it must not outlive it

    def keep_before(self, epoch: int) -> None:
        """Forget epochs that a resumed run will do again. Epochs count from 1 here."""
        if not self.writes:
            return
        events = [event for event in read_log(self.folder) if event.get("epoch", 0) < epoch]
        lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
        files.write(self.path, lines)  # a death here must not cost the epochs before

    def lacking(self, done: int) -> list[int]:
        """The epochs that are done, but not in the log: it was deleted, or edited."""
        there = {event["epoch"] for event in epochs(read_log(self.folder))}
        return [epoch for epoch in range(1, done + 1) if epoch not in there]

    def write_samples(self) -> None:
        """samples.txt: hypothesis beside reference, epoch by epoch."""
        if not self.writes:
            return
        blocks = []
        for event in epochs(read_log(self.folder)):
            blocks.append(f"== epoch {event['epoch']}: {event['stage']}")
            for sample in event["samples"]:
                blocks += [f"{kind:>10}  {text}" for kind, text in sample.items()] + [""]
        files.write(self.folder / "samples.txt", "\n".join(blocks) + "\n")


def read_log(folder: Path) -> list[Event]:
    """All events of a run so far. A line cut off by a crash, which can only be the last, does not count."""
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    events = []
    *lines, rest = files.read_bytes(path).split(b"\n")
    for number, line in enumerate([*lines, rest] if rest else lines, 1):
        try:
            event = files.parse_json(line, dict[str, Any], str(path))
            files.parse_json(line, Closing if event.get("event") == "epoch" else Other, str(path))
            events.append(event)
        except RunError:
            if number <= len(lines):  # else it has no end: death came while it was written
                what = "no event of a run; the log is damaged: fix the line, or delete it"
                raise RunError(f"{path}:{number}: {what}") from None
    return events


def epochs(events: list[Event]) -> list[Event]:
    """The events that close an epoch."""
    return [event for event in events if event["event"] == "epoch"]
