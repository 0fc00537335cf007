"""What a run folder holds: complete or damaged checkpoints, how far the run is, and the command that resumes it."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqmixer.build import run_length
from seqmixer.config import Config
from seqmixer.doctor.findings import Diagnosis, Finding, note, ok, problem, warning
from seqmixer.errors import RunError
from seqmixer.runs import located
from seqmixer.storage import checkpoint
from seqmixer.storage.identity import is_run, python_code, require_same_config
from seqmixer.training import Position, epochs, read_log
from seqmixer.training.saving import restored, restored_best


@dataclass(frozen=True)
class Subject:
    """The config and the run that are examined."""

    config: Config
    path: Path  # of the config, as the user named it
    folder: Path  # of the run, which may not be there yet
    trusted: bool  # whether Python code that the config names may be imported
    overrides: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that begins or resumes the run."""
        settings = [part for override in self.overrides for part in ("--set", override)]
        trust = ["--trust"] if python_code(self.config) and is_run(self.path.parent) else []
        parts = ["seqmixer", "train", str(self.path), *settings, "--out", str(self.folder.parent), *trust]
        return shlex.join(parts)


def examine_checkpoints(found: Diagnosis, subject: Subject, planned: int | None) -> Position | None:
    """Where the run is; None where it has no checkpoint to resume from. `planned`: its epochs, None if not known."""
    folder, part = subject.folder, "checkpoint"
    if not (folder / "config.toml").is_file() and not is_run(folder):
        found.add(part, [ok(f"no run in {folder} yet; begin it with: {subject.command}")])
        return None
    if folder.name != subject.config.name:
        what = f"{folder} holds the run {subject.config.name!r}"
        found.add(part, [note(what, "it can be used as it is, but resumed only under its name", "rename the folder")])
    with found.attempt(part):
        require_same_config(folder, located(subject.config))
    last, best = (inspected(folder / name) for name in ("last", "best"))
    found.add(part, [*judged(folder / "last", last), *judged(folder / "best", best)], last=last, best=best)
    newest = next((name for name, wrong in last.items() if wrong is None), None)
    if found.broken(part) or newest is None:
        return None
    with found.attempt(part):
        position = restored(checkpoint.read_state(folder / newest), folder / "last")
        found.add(part, standing(subject, position, planned), epoch=position.epoch, batch=position.batch)
        return position
    return None


def inspected(folder: Path) -> dict[str, str | None]:
    """Every checkpoint of that name, newest first, and what is wrong with it; None: it is complete."""
    places: dict[str, str | None] = {}
    for place in checkpoint.places(folder):
        try:
            checkpoint.verify(place)
            places[place.name] = None
        except RunError as error:
            places[place.name] = str(error)
    return places


def judged(folder: Path, places: dict[str, str | None]) -> Iterator[Finding]:
    complete = [name for name, wrong in places.items() if wrong is None]
    for name, wrong in places.items():
        what = f"{folder.parent / name} is {wrong}"
        if wrong is not None and complete:
            yield warning(what, f"{complete[0]} is used")
        elif wrong is not None:
            yield problem(what, "there is no other", "fetch it again, or begin another run (--set name=...)")
    if complete:
        yield ok(f"{folder}: {', '.join(complete)} complete, checksums right")


def standing(subject: Subject, position: Position, planned: int | None) -> Iterator[Finding]:
    """How far the run is, and what to do next."""
    done, folder = position.epoch, subject.folder
    logged = [event["epoch"] for event in epochs(read_log(folder))]
    if logged[:done] != list(range(1, done + 1)):
        yield warning(f"{folder / 'log.jsonl'} lacks epochs: {done} are done, {len(logged)} are there")
    over = position.over or (planned is not None and done >= planned)
    where = f"{done} epochs done" if over or planned is None else f"{done} of {planned} epochs done"
    if position.batch:
        where += f", {position.batch} batches of the next"
    state = checkpoint.peek(folder / "best")
    best = restored_best(state, folder / "best") if state else None
    if best is not None and best.epoch:
        where += f"; the best model is of epoch {best.epoch}, {subject.config.metrics[0]} {best.score:.2f}"
    if best is not None and best.epoch < position.best_epoch:
        yield problem(checkpoint.lost(folder / "best", best.epoch, position.best_epoch), advice="put it back")
    if over:
        use = shlex.join(["seqmixer", "evaluate", str(folder)])
        yield ok(f"finished: {where}; score it with: {use}")
    else:
        yield ok(f"{where}; resume with: {subject.command}")


def planned_epochs(config: Config, length: int | None) -> int | None:
    """How many epochs the run has; None where that depends on data that could not be read (T)."""
    return config.training.epochs if length is None else run_length(config, length)
