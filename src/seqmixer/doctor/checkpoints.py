"""What a run folder holds: whole or damaged checkpoints, how far the run is, and the command to go on with."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmixer.build import run_length
from seqmixer.config import Config
from seqmixer.doctor.findings import Check, Finding
from seqmixer.errors import RunError, SeqmixerError
from seqmixer.rewards import DocumentFrequencies
from seqmixer.runs import located
from seqmixer.storage import checkpoint
from seqmixer.storage.identity import is_run, python_code, require_same_config
from seqmixer.training import epochs, read_log
from seqmixer.training.saving import Best, Position, restored, restored_best

Places = dict[str, str | None]  # by checkpoint folder: what is wrong with it; None: it is whole


@dataclass(frozen=True)
class Subject:
    """What is examined."""

    config: Config
    path: Path  # of the config's file
    folder: Path  # of the run, which may not be there yet
    trusted: bool  # whether Python code that the config names may be imported
    overrides: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What begins the run, or resumes it."""
        settings = [part for override in self.overrides for part in ("--set", override)]
        trust = ["--trust"] if python_code(self.config) and is_run(self.path.parent) else []
        parts = ["seqmixer", "train", str(self.path), *settings, "--out", str(self.folder.parent), *trust]
        return shlex.join(parts)


def examine_checkpoints(subject: Subject, length: int | None) -> Check:
    """`length` is T; None where the data could not be read."""
    folder = subject.folder
    if not (folder / "config.toml").is_file() and not is_run(folder):
        return Check("checkpoint", [Finding("ok", f"no run in {folder} yet; begin it with: {subject.command}")])
    findings = [*refused(subject), *damaged_files(folder)]
    values: dict[str, Any] = {}
    for name in ("last", "best"):
        places = inspected(folder / name)
        findings += list(judged(folder / name, places))
        values[name] = places
    found = Check("checkpoint", findings, values)
    if found.broken:
        return found
    position, model = position_of(folder), state(folder / "best", values["best"])
    best = None if model is None else restored_best(model, folder / "best")
    if position is not None:
        findings += list(standing(subject, position, best, length))
        values |= {"epoch": position.epoch, "batch": position.batch}
    return Check("checkpoint", findings, values)


def refused(subject: Subject) -> Iterator[Finding]:
    """What `train` would say."""
    if subject.folder.name != subject.config.name:
        what = f"{subject.folder} holds the run {subject.config.name!r}"
        yield Finding("note", what, "it can be used as it is, but resumed only under its name", "rename the folder")
    try:
        require_same_config(subject.folder, located(subject.config))
    except SeqmixerError as error:
        yield Finding("problem", str(error))


def inspected(folder: Path) -> Places:
    """Every checkpoint of that name, newest first."""
    places: Places = {}
    for place in checkpoint.places(folder):
        try:
            checkpoint.verify(place)
            places[place.name] = None
        except RunError as error:
            places[place.name] = str(error)
    return places


def judged(folder: Path, places: Places) -> Iterator[Finding]:
    whole = [name for name, wrong in places.items() if wrong is None]
    for name, wrong in places.items():
        if wrong is not None:
            why = f"{whole[0]} is used" if whole else "there is no other"
            advice = "" if whole else "fetch it again, or begin another run (--set name=...)"
            yield Finding("warning" if whole else "problem", f"{folder.parent / name} is {wrong}", why, advice)
    if whole:
        yield Finding("ok", f"{folder}: {', '.join(whole)} whole, checksums right")


def damaged_files(folder: Path) -> Iterator[Finding]:
    """The log and the document frequencies; checkpoints and the rest have checksums that others look at."""
    try:
        read_log(folder)
        for path in sorted(folder.glob("cider*.safetensors")):
            DocumentFrequencies.load(path)
    except SeqmixerError as error:
        yield Finding("problem", str(error))


def standing(subject: Subject, position: Position, best: Best | None, length: int | None) -> Iterator[Finding]:
    """How far the run is, and what to do next."""
    done, folder = position.epoch, subject.folder
    logged = [event["epoch"] for event in epochs(read_log(folder))]
    if logged[:done] != list(range(1, done + 1)):
        yield Finding("warning", f"{folder / 'log.jsonl'} lacks epochs: {done} are done, {len(logged)} are there")
    total = planned(subject.config, length)
    over = position.over or (total is not None and done >= total)
    where = f"{done} epochs done" if over or total is None else f"{done} of {total} epochs done"
    if position.batch:
        where += f", {position.batch} batches of the next"
    if best is not None and best.epoch:
        where += f"; the best model is of epoch {best.epoch}, {subject.config.metrics[0]} {best.score:.2f}"
    if best is not None and best.epoch < position.best_epoch:
        yield Finding(
            "problem", checkpoint.lost(folder / "best", best.epoch, position.best_epoch), advice="put it back"
        )
    if over:
        use = shlex.join(["seqmixer", "evaluate", str(folder)])
        yield Finding("ok", f"finished: {where}; score it with: {use}")
    else:
        yield Finding("ok", f"{where}; resume with: {subject.command}")


def planned(config: Config, length: int | None) -> int | None:
    """How many epochs the run has; None where that depends on data that could not be read."""
    return config.training.epochs if length is None else run_length(config, length)


def position_of(folder: Path) -> Position | None:
    """Where a run is; None where it has no checkpoint that can be used."""
    found = state(folder / "last", inspected(folder / "last"))
    return None if found is None else restored(found, folder / "last")


def state(folder: Path, places: Places) -> dict[str, Any] | None:
    """The state of the newest complete checkpoint."""
    whole = [name for name, wrong in places.items() if wrong is None]
    return checkpoint.read_state(folder.parent / whole[0]) if whole else None
