"""What a person sees while a run goes on: a bar with the running reward, and a line for each finished epoch."""

import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from seqmixer.bars import progress_bar, write_line
from seqmixer.training.callbacks import Callback, Event

if TYPE_CHECKING:
    from seqmixer.training.loop import Training

REFRESH = 0.5  # seconds between readings of the running averages: each synchronises with the device


class Terminal(Callback):
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
        self.refreshed = 0.0

    def note(self, line: str) -> None:
        write_line(self.bar, line)

    def epoch_begin(self, run: "Training") -> None:
        self.bar.start()
        if run.stage.label != self.stage:
            self.stage = run.stage.label
            write_line(self.bar, self.stage, "bold")
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
        write_line(self.bar, f"{line}  {seconds:.1f} s")
        for symptom in event["symptoms"]:
            write_line(self.bar, f"    {symptom}", "yellow")

    def end(self, run: "Training") -> None:
        self.bar.stop()


def brief(averages: dict[str, float]) -> str:
    """The few numbers worth a glance."""
    shown = ("reward", "entropy", "length_ratio") if "reward" in averages else ("xent",)
    return "  ".join(f"{name} {averages[name]:.3f}" for name in shown if name in averages)
