"""The progress of a run: a bar with the running reward, and a line or a row for each finished epoch."""

import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import get_console
from rich.box import SIMPLE
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Table

from seqmixer.bars import progress_bar, write_line
from seqmixer.errors import printable
from seqmixer.evaluation.effects import expected_words
from seqmixer.training.callbacks import Callback, Event

if TYPE_CHECKING:
    from seqmixer.training.loop import Training

REFRESH = 0.5  # seconds between readings of the running averages: each synchronises with the device
HEARTBEAT = 60.0  # seconds between lines of an epoch where there is no bar
NOW = "now"  # the file of a run folder that says where the run is, while it is under way
LONGEST = 80  # characters of it


class Pace:
    """How fast a run is, by what this process has done of it, validations counted in."""

    def __init__(self, run: "Training") -> None:
        self.began, self.first = time.monotonic(), batches_done(run)

    def seconds(self, run: "Training") -> float:
        """Of a batch."""
        return (time.monotonic() - self.began) / max(batches_done(run) - self.first, 1)

    def left(self, run: "Training") -> str:
        batches = run.epochs * run.batch_count - batches_done(run)
        return f"{timedelta(seconds=round(self.seconds(run) * batches))} left"


class Terminal(Callback):
    """A bar on standard error while an epoch runs, or a line now and then where that is no terminal; a line an epoch.

    Words are those of the references; the time left is that of the run, at the pace so far.
    """

    def __init__(self) -> None:
        self.bar = progress_bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[running]}")
        )
        self.task = self.bar.add_task("", running="")
        self.stage = ""
        self.refreshed = self.spoken = 0.0
        self.words = 0.0  # of a batch, in the mean

    def begin(self, run: "Training") -> None:
        self.spoken, self.pace = time.monotonic(), Pace(run)
        self.words = float(expected_words(run.train, run.task.length)) / run.batch_count

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
        now = time.monotonic()
        if now - self.refreshed > REFRESH and not self.bar.disable:
            self.refreshed = now
            self.bar.update(self.task, running=self.running(run))
        if now - self.spoken > HEARTBEAT and self.bar.disable:
            self.spoken = now
            self.note(f"  {where(run)}  {self.running(run)}")
        self.bar.advance(self.task)

    def running(self, run: "Training") -> str:
        """What the averages are, how fast it goes, and when it will be over."""
        speed = f"{self.words / self.pace.seconds(run):,.0f} words/s"
        return f"{brief(run.averages.values())}  {speed}  {self.pace.left(run)}"

    def epoch_end(self, run: "Training", event: Event) -> None:
        self.spoken = time.monotonic()
        train, valid, seconds = in_words(event)
        write_line(self.bar, f"  epoch {event['epoch']:3}  {train}  | valid: {valid}{star(event)}  {seconds}")
        for symptom in event["symptoms"]:
            write_line(self.bar, f"    {symptom}", "yellow")

    def end(self, run: "Training") -> None:
        self.bar.stop()


class Notebook(Terminal):
    """A live table in a cell of Jupyter: a row for each epoch, and where the run is below them."""

    def begin(self, run: "Training") -> None:
        from IPython.display import display  # there, or this would not be a notebook

        super().begin(run)
        self.table = Table("epoch", "stage", "train", "valid", "best", "time", box=SIMPLE)
        self.shown: Any = display(self.table, display_id=True)

    def note(self, line: str) -> None:
        print(printable(line))

    def epoch_begin(self, run: "Training") -> None:
        pass

    def step(self, run: "Training") -> None:
        now = time.monotonic()
        if now - self.refreshed > REFRESH:
            self.refreshed = now
            self.table.caption = f"{where(run)}  {self.running(run)}"
            self.shown.update(self.table)

    def epoch_end(self, run: "Training", event: Event) -> None:
        self.table.add_row(str(event["epoch"]), event["stage"], *in_words(event)[:2], star(event), in_words(event)[2])
        for symptom in event["symptoms"]:
            self.note(f"epoch {event['epoch']}: {symptom}")

    def end(self, run: "Training") -> None:
        self.table.caption = None
        self.shown.update(self.table)


class Place(Callback):
    """Keeps in the run folder where the run is, for another process to show."""

    def begin(self, run: "Training") -> None:
        self.pace, self.written = Pace(run), 0.0

    def step(self, run: "Training") -> None:
        now = time.monotonic()
        if now - self.written > REFRESH:
            self.written = now
            (run.out / NOW).write_text(f"{where(run)}, {self.pace.left(run)}", encoding="utf-8")

    def end(self, run: "Training") -> None:
        (run.out / NOW).unlink(missing_ok=True)


def read_place(folder: Path) -> str:
    """What `Place` has written of a run under way; empty where it has not."""
    try:
        return printable((folder / NOW).read_text(encoding="utf-8")[:LONGEST])
    except (OSError, UnicodeDecodeError):
        return ""


def on_screen() -> Terminal:
    """The progress of a run where this process shows something: a notebook, or standard error."""
    return Notebook() if get_console().is_jupyter else Terminal()


def where(run: "Training") -> str:
    return f"epoch {run.position.epoch + 1}/{run.epochs}, batch {run.position.batch}/{run.batch_count}"


def in_words(event: Event) -> tuple[str, str, str]:
    """Training, validation and time of an epoch."""
    valid = "  ".join(f"{name} {value:.2f}" for name, value in event["valid"].items())
    return brief(event["train"]), valid, f"{sum(event['seconds'].values()):.1f} s"


def star(event: Event) -> str:
    return " *" if event["best"] else "  "


def batches_done(run: "Training") -> int:
    return run.position.epoch * run.batch_count + run.position.batch


def brief(averages: dict[str, float]) -> str:
    """The most important numbers."""
    shown = ("reward", "entropy", "length_ratio") if "reward" in averages else ("xent",)
    return "  ".join(f"{name} {averages[name]:.3f}" for name in shown if name in averages)
