"""The log of a run: log.jsonl, one JSON object per event, and samples.txt made of it."""

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired

from typing_extensions import TypedDict

from seqmixer import files
from seqmixer.errors import RunError
from seqmixer.training.callbacks import Callback, Event
from seqmixer.types import Meta

if TYPE_CHECKING:
    from seqmixer.training.loop import Training


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
    effects: dict[str, float]
    best: bool
    symptoms: list[str]
    seconds: dict[str, float]
    machine: NotRequired[str]
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


class Log(Callback):
    """log.jsonl, and samples.txt made of it. Events of one epoch are written together, when it is over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "log.jsonl"

    def begin(self, run: "Training") -> None:
        done = run.position.epoch
        self.keep_before(done + 1)
        if lacking := self.lacking(done):
            what = f"lacks {len(lacking)} of {done} epochs that are done, the first is {lacking[0]}"
            warnings.warn(f"{self.path} {what}; if you have a copy, stop and put it back", stacklevel=2)

    def event(self, run: "Training", event: Event) -> None:
        self.write(event)

    def epoch_end(self, run: "Training", event: Event) -> None:
        self.write(event)
        self.write_samples()

    def write(self, event: Event) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())  # a checkpoint that comes after it must not outlive it

    def keep_before(self, epoch: int) -> None:
        """Drop epochs that a resumed run will do again. Epochs count from 1 here."""
        events = [event for event in read_log(self.folder) if event.get("epoch", 0) < epoch]
        lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
        files.write(self.path, lines)  # a death here must not cost the epochs before

    def lacking(self, done: int) -> list[int]:
        """The epochs that are done, but not in the log: it was deleted, or edited."""
        there = {event["epoch"] for event in epochs(read_log(self.folder))}
        return [epoch for epoch in range(1, done + 1) if epoch not in there]

    def write_samples(self) -> None:
        """samples.txt: hypothesis beside reference, epoch by epoch."""
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
    events, latest, closed = [], 0, 0
    *lines, rest = files.read_bytes(path).split(b"\n")
    for number, line in enumerate([*lines, rest] if rest else lines, 1):
        try:
            event = parse_event(line, f"{path}:{number}")
        except RunError:
            if number > len(lines):  # it has no end: death came while it was written
                break
            raise
        epoch, closing = event.get("epoch", latest), event["event"] == "epoch"
        if epoch < latest or (closing and epoch == closed):
            what = f"epoch {epoch} after epoch {latest}; the log is damaged: put its lines in order, one for each epoch"
            raise RunError(f"{path}:{number}: {what}")
        latest, closed = epoch, epoch if closing else closed
        events.append(event)
    return events


def parse_event(line: bytes, where: str) -> Event:
    """A line of a log."""
    try:
        event: Event = files.parse_json(line, dict[str, Any], where)
        files.parse_json(line, Closing if event.get("event") == "epoch" else Other, where)
        return event
    except RunError:
        raise RunError(f"{where}: no event of a run; the log is damaged: fix the line, or delete it") from None


def samples(examples: Sequence[Meta], hypotheses: Sequence[str]) -> list[dict[str, str]]:
    """The first sentences of a split, as an event and samples.txt have them."""
    return [
        {"source": str(meta["source"]), "reference": meta["references"][0], "hypothesis": hypothesis}
        for meta, hypothesis in zip(examples, hypotheses, strict=False)
    ]


def epochs(events: list[Event]) -> list[Event]:
    """The events that close an epoch."""
    return [event for event in events if event["event"] == "epoch"]
