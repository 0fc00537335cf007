"""What a run leaves for its reader: log.jsonl, one JSON object per event, and samples.txt made of it."""

import json
from pathlib import Path
from typing import Any

from seqmixer.errors import RunError
from seqmixer.training.checkpoint import write_whole

Event = dict[str, Any]
EPOCH = {"epoch", "stage", "rate", "train", "valid", "best", "symptoms", "seconds", "samples"}  # closes an epoch


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

    def keep_before(self, epoch: int) -> None:
        """Forget epochs that a resumed run will do again. Epochs count from 1 here."""
        if not self.writes:
            return
        events = [event for event in read_log(self.folder) if event.get("epoch", 0) < epoch]
        lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
        write_whole(self.path, lines)  # a death here must not cost the epochs before

    def write_samples(self) -> None:
        """samples.txt: hypothesis beside reference, epoch by epoch."""
        if not self.writes:
            return
        blocks = []
        for event in epochs(read_log(self.folder)):
            blocks.append(f"== epoch {event['epoch']}: {event['stage']}")
            for sample in event["samples"]:
                blocks += [f"{kind:>10}  {text}" for kind, text in sample.items()] + [""]
        (self.folder / "samples.txt").write_text("\n".join(blocks) + "\n", encoding="utf-8")


def read_log(folder: Path) -> list[Event]:
    """All events of a run so far. A line cut off by a crash, which can only be the last, does not count."""
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    events = []
    *lines, rest = path.read_bytes().split(b"\n")
    for number, line in enumerate([*lines, rest] if rest else lines, 1):
        try:
            event = json.loads(line.decode("utf-8"))
            if (EPOCH if event["event"] == "epoch" else {"event"}) <= event.keys():
                events.append(event)
                continue
        except (ValueError, TypeError, KeyError):
            if number > len(lines):  # it has no end: death came while it was written
                continue
        raise RunError(f"{path}:{number}: no event of a run; the log is damaged: mend the line, or delete it")
    return events


def epochs(events: list[Event]) -> list[Event]:
    """The events that close an epoch."""
    return [event for event in events if event["event"] == "epoch"]
