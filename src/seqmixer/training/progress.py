"""What a person sees while a run goes on: a bar with the running reward, and a line for each finished epoch."""

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from seqmixer.errors import printable
from seqmixer.training.callbacks import Callback, Event

if TYPE_CHECKING:
    from seqmixer.training.loop import Training

REFRESH = 0.5  # seconds between readings of the running averages: each synchronises with the device


class Terminal(Callback):
    """A bar on standard error while an epoch runs; one line for each that is over."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[running]}"),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        self.bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("", running="")
        self.stage = ""
        self.refreshed = 0.0

    def note(self, line: str) -> None:
        self.print(line)

    def print(self, line: str, style: str | None = None) -> None:
        """A line as it is: a sentence in it may have brackets, or control characters."""
        self.bar.console.print(printable(line), style=style, highlight=False, soft_wrap=True, markup=False)

    def epoch_begin(self, run: "Training") -> None:
        self.bar.start()
        if run.stage.label != self.stage:
            self.stage = run.stage.label
            self.print(self.stage, "bold")
        description, done = f"epoch {run.position.epoch + 1}/{run.epochs}", run.position.batch
        self.bar.reset(self.task, description=description, completed=done, total=run.batch_count, running="")

    def step(self, run: "Training") -> None:
        if time.monotonic() - self.refreshed > REFRESH:
            self.refreshed = time.monotonic()
            self.bar.update(self.task, running=brief(run.averages.values()))
        self.bar.advance(self.task)

    def epoch_end(self, run: "Training", event: Event) -> None:
        valid = "  ".join(f"{name} {value:.2f}" for name, value in event["valid"].items())
        seconds = sum(event["seconds"].values())
        line = f"  epoch {event['epoch']:3}  {brief(event['train'])}  | valid: {valid}{' *' if event['best'] else '  '}"
        self.print(f"{line}  {seconds:.1f} s")
        for symptom in event["symptoms"]:
            self.print(f"    {symptom}", "yellow")

    def end(self, run: "Training") -> None:
        self.bar.stop()


def brief(averages: dict[str, float]) -> str:
    """The few numbers worth a glance."""
    shown = ("reward", "entropy", "length_ratio") if "reward" in averages else ("xent",)
    return "  ".join(f"{name} {averages[name]:.3f}" for name in shown if name in averages)
