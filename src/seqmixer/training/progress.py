"""What a person sees while a run goes on: a bar with the running reward, and a line for each finished epoch."""

import time
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from seqmixer.bars import progress_bar, write_line
from seqmixer.training.log import Event
from seqmixer.training.means import Means

REFRESH = 0.5  # seconds between looks at the running means: each look waits for the device


class Progress(Protocol):
    """What a run tells its watcher."""

    def note(self, line: str) -> None: ...

    def epoch(self, epoch: int, epochs: int, stage: str, batch: int, total: int) -> None: ...

    def batch(self, means: Means) -> None: ...

    def closed(self, event: Event) -> None: ...

    def stop(self) -> None: ...


class Silent:
    """Nobody watches."""

    def note(self, line: str) -> None: ...

    def epoch(self, epoch: int, epochs: int, stage: str, batch: int, total: int) -> None: ...

    def batch(self, means: Means) -> None: ...

    def closed(self, event: Event) -> None: ...

    def stop(self) -> None: ...


class Terminal:
    """A bar on standard error while an epoch runs; one line for each that is over."""

    def __init__(self) -> None:
        self.bar = progress_bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[running]}"),
            TimeRemainingColumn(),
        )
        self.task = self.bar.add_task("", running="")
        self.stage = ""
        self.looked = 0.0

    def note(self, line: str) -> None:
        write_line(self.bar, line)

    def epoch(self, epoch: int, epochs: int, stage: str, batch: int, total: int) -> None:
        self.bar.start()
        if stage != self.stage:
            write_line(self.bar, stage, "bold")
            self.stage = stage
        self.bar.reset(self.task, description=f"epoch {epoch}/{epochs}", completed=batch, total=total, running="")

    def batch(self, means: Means) -> None:
        if time.monotonic() - self.looked > REFRESH:
            self.looked = time.monotonic()
            self.bar.update(self.task, running=brief(means.values()))
        self.bar.advance(self.task)

    def closed(self, event: Event) -> None:
        valid = "  ".join(f"{name} {value:.2f}" for name, value in event["valid"].items())
        seconds = sum(event["seconds"].values())
        line = f"  epoch {event['epoch']:3}  {brief(event['train'])}  | valid: {valid}{' *' if event['best'] else '  '}"
        write_line(self.bar, f"{line}  {seconds:.1f} s")
        for symptom in event["symptoms"]:
            write_line(self.bar, f"    {symptom}", "yellow")

    def stop(self) -> None:
        self.bar.stop()


def brief(means: dict[str, float]) -> str:
    """The few numbers worth a glance."""
    shown = ("reward", "entropy", "length_ratio") if "reward" in means else ("xent",)
    return "  ".join(f"{name} {means[name]:.3f}" for name in shown if name in means)
