"""What a run leaves for its reader: log.jsonl, one JSON object per event, and samples.txt made of it."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from seqmixer.algorithms import Algorithm
from seqmixer.errors import RunError
from seqmixer.rewards import Pending, Startable, begin
from seqmixer.training.checkpoint import write_whole
from seqmixer.types import Reward, Rollout

P = ParamSpec("P")
Result = TypeVar("Result")
Event = dict[str, Any]
ROWS = ("weighted sum", "weight", "times bad")  # of the sums of `Means`
EPOCH = {
    "epoch",
    "stage",
    "rate",
    "train",
    "valid",
    "best",
    "symptoms",
    "seconds",
    "samples",
}  # what closes an epoch has


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


class Clock:
    """Seconds by name. `sample` and `reward` are what an algorithm's generate and reward took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def timed(self, name: str, function: Callable[P, Result]) -> Callable[P, Result]:
        def run(*args: P.args, **kwargs: P.kwargs) -> Result:
            with self.time(name):
                return function(*args, **kwargs)

        return run

    def timed_reward(self, reward: Reward) -> Startable:
        """What beginning it and waiting for it take; what it does meanwhile costs nothing."""

        def start(rollout: Rollout) -> Pending:
            return self.timed("reward", self.timed("reward", begin)(reward, rollout))

        return Startable(start)

    @contextmanager
    def watch(self, algorithm: Algorithm) -> Iterator[None]:
        """Time an algorithm's generate and reward for a while."""
        generate, reward = algorithm.generate, algorithm.reward
        algorithm.generate = self.timed("sample", generate)
        algorithm.reward = reward and self.timed_reward(reward)
        try:
            yield
        finally:
            algorithm.generate, algorithm.reward = generate, reward

    def split(self) -> dict[str, float]:
        """Where the time went. The forward pass without its sampling and reward is `score`; `rest` is what training
        took beside them: cutting batches, and waiting for a device that runs whole steps by itself."""
        parts = dict(self.seconds)
        if "forward" in parts:
            parts["score"] = parts.pop("forward") - parts.get("sample", 0.0) - parts.get("reward", 0.0)
        if "train" in parts:
            steps = ("sample", "reward", "score", "backward", "update")
            parts["rest"] = parts.pop("train") - sum(parts.get(name, 0.0) for name in steps)
        return {name: round(seconds, 3) for name, seconds in parts.items()}


@dataclass(frozen=True)
class Fault:
    """Bad numbers since somebody looked."""

    batch: int  # the first batch of the epoch that had one, counted from 1
    batches: int  # how many had
    in_a_row: int  # how many of the latest had, without a good one between
    quantities: list[str]


class Means:
    """Running means of metrics, weighted by batch size, kept where the metrics are: no question to the device.

    A batch with a bad number does not count; which of its numbers were bad is remembered, and which batch it was.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sums: dict[tuple[str, ...], Tensor] = {}  # by the names added together: (3, M), see ROWS; float64
        self.counts = torch.zeros(len(COUNTS), dtype=torch.long, device=device)  # (4,)

    def add(self, metrics: Mapping[str, Tensor], weight: int) -> None:
        names = tuple(metrics)
        if names not in self.sums:
            self.sums[names] = torch.zeros(len(ROWS), len(names), dtype=torch.double, device=self.device)
        values = torch.stack([value.float() for value in metrics.values()]).double()  # (M,)
        bad = ~values.isfinite()
        counted = torch.where(bad.any(), 0.0, weight).expand_as(values)
        self.sums[names] += torch.stack([values.nan_to_num(0, 0, 0) * counted, counted, bad.double()])
        self.count(bad.any())

    def count(self, bad: Tensor) -> None:
        seen, times, first, row = self.counts.unbind()
        seen += 1
        times += bad
        first += seen * (bad & (first == 0))
        row += 1
        row *= bad

    def values(self) -> dict[str, float]:
        """The mean of each metric that counted."""
        return {
            name: total / weight
            for names, sums in self.sums.items()
            for name, total, weight in zip(names, *sums[:2].tolist(), strict=True)
            if weight
        }

    def fault(self) -> Fault | None:
        """What was not a finite number since it was forgiven. It waits for the device."""
        _, times, first, row = self.counts.tolist()
        return Fault(first, times, row, self.bad()) if first else None

    def bad(self) -> list[str]:
        """Metrics that were not finite numbers."""
        counts = [pair for names, sums in self.sums.items() for pair in zip(names, sums[2].tolist(), strict=True)]
        return [name for name, times in counts if times]

    def forgive(self) -> None:
        """Forget what was bad, but not that the latest batches were."""
        for sums in self.sums.values():
            sums[2].zero_()
        self.counts[1:3].zero_()

    def clear(self) -> None:
        """Begin anew, in the same memory: captured programs add to it. Bad batches in a row go on being counted."""
        for sums in self.sums.values():
            sums.zero_()
        self.counts[:3].zero_()


COUNTS = ("batches", "bad ones", "the first bad one", "bad ones in a row")  # all but the last of one epoch
