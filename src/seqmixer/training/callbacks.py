"""Callbacks of a training run: the log, the terminal, a sweep's pruner, and those of users."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqmixer.training.loop import Training

Event = dict[str, Any]  # a line of log.jsonl


class Callback:
    """Called at the points of a run that its methods name, in the first process only. A subclass overrides some.

    `run` is the training loop: `run.position` says where it is, `run.averages.values()` has the metrics of the epoch so
    far (to read them waits for the device), and `run.end(why)` ends the run after the epoch under way.
    """

    def begin(self, run: "Training") -> None:
        """The run begins, or resumes at `run.position`."""

    def note(self, line: str) -> None:
        """A line for whoever watches."""

    def epoch_begin(self, run: "Training") -> None:
        """An epoch begins, or resumes at batch `run.position.batch` of `run.batch_count`."""

    def step(self, run: "Training") -> None:
        """A batch is done."""

    def epoch_end(self, run: "Training", event: Event) -> None:
        """An epoch was validated: `event` is its line of log.jsonl. The checkpoint comes after."""

    def event(self, run: "Training", event: Event) -> None:
        """Anything else that log.jsonl records: bad numbers, lost patience, an early end."""

    def end(self, run: "Training") -> None:
        """The run is over, was stopped, or failed."""
