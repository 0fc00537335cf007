"""A run in other programs' views: TensorBoard and trackio. Their files are made of log.jsonl, which stays the truth."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmixer import files
from seqmixer.errors import missing_extra, unknown
from seqmixer.training.callbacks import Callback, Event
from seqmixer.training.log import epochs, read_log

if TYPE_CHECKING:
    from seqmixer.training.loop import Training


PROJECT = "seqmixer"


class Tracker(Callback):
    """Shows each epoch's numbers at its step, its samples, and the config.

    When a run begins or resumes, all is written anew from log.jsonl: no step is there twice, and none is missing.
    """

    def begin(self, run: "Training") -> None:
        config = run.out / "config.toml"
        self.batches = run.batch_count
        self.open(run.out, config.read_text(encoding="utf-8") if config.exists() else "")
        for event in epochs(read_log(run.out)):
            self.show(event, event["epoch"] * self.batches)

    def epoch_end(self, run: "Training", event: Event) -> None:
        self.show(event, event["epoch"] * self.batches)

    def open(self, folder: Path, config: str) -> None:
        """Begin anew."""
        raise NotImplementedError

    def show(self, event: Event, step: int) -> None:
        """An epoch that ended with the update `step`."""
        raise NotImplementedError


class TensorBoard(Tracker):
    """RUN/tensorboard, for `tensorboard --logdir RUN`."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise missing_extra("--track tensorboard needs tensorboard", "track") from None
        self.writer: Callable[..., Any] = SummaryWriter

    def open(self, folder: Path, config: str) -> None:
        for old in (folder / "tensorboard").glob("events.out.tfevents.*"):
            old.unlink()
        self.file = self.writer(str(folder / "tensorboard"))
        self.file.add_text("config", indented(config))

    def show(self, event: Event, step: int) -> None:
        for name, value in scalars(event).items():
            self.file.add_scalar(name, value, step)
        text = [f"{kind:>10}  {text}" for sample in event["samples"] for kind, text in [*sample.items(), ("", "")]]
        self.file.add_text("samples", indented("\n".join(text)), step)
        self.file.flush()

    def end(self, run: "Training") -> None:
        self.file.close()


class Trackio(Tracker):
    """RUN/trackio, or TRACKIO_DIR, for `trackio show`; never a server, whatever trackio's other variables say."""

    def __init__(self) -> None:
        try:
            from trackio import Table, sqlite_storage
        except ImportError:
            raise missing_extra("--track trackio needs trackio", "track") from None
        self.module: Any = sqlite_storage
        self.table = Table

    def open(self, folder: Path, config: str) -> None:
        self.folder = Path(os.environ.get("TRACKIO_DIR") or folder / "trackio")
        self.name, self.identity = folder.name, str(folder.resolve())
        self.config = files.parse_toml(config, str(folder))
        self.storage().delete_run(PROJECT, self.name, run_id=self.identity)

    def show(self, event: Event, step: int) -> None:
        values = {**scalars(event), "samples": self.table(data=event["samples"])._to_dict(PROJECT, self.name)}
        self.storage().bulk_log(PROJECT, self.name, [values], steps=[step], config=self.config, run_id=self.identity)

    def storage(self) -> Any:
        """trackio's database in the folder of this run; its own `init` prints, and may send what it gets."""
        self.module.TRACKIO_DIR = self.folder
        self.module.SQLiteStorage._dataset_import_attempted = True  # else it might download
        return self.module.SQLiteStorage


TRACKERS: dict[str, Callable[[], Tracker]] = {"tensorboard": TensorBoard, "trackio": Trackio}


def trackers(names: Sequence[str]) -> list[Tracker]:
    """Refused here if the package is missing: before the run, not after its first epoch."""
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
    return [TRACKERS[name]() for name in dict.fromkeys(names)]


def scalars(event: Event) -> dict[str, float]:
    """The numbers of an event, those of a group as GROUP/NAME.

    >>> scalars({"epoch": 2, "best": True, "train": {"loss": 0.5}, "stage": "XENT"})
    {'epoch': 2, 'train/loss': 0.5}
    """
    groups = [(f"{name}/", value) if isinstance(value, dict) else ("", {name: value}) for name, value in event.items()]
    flat = {prefix + name: value for prefix, group in groups for name, value in group.items()}
    return {
        name: value for name, value in flat.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def indented(text: str) -> str:
    """Text as Markdown shows it unchanged."""
    return "\n".join(f"    {line}" for line in text.splitlines())
