"""A search in its folder: its identity, and the claims of processes on its trials.

search.json  journal.log                   what the search is; Optuna's record of its trials
trial-0000/  trial-0001/  ...              an ordinary run folder each
sweep.json  sweep.md  sweep.svg  best.toml what came of it

Any number of processes, on any machines that share the folder, work on one search. A process that hands out a trial
holds `.locks/search` for a moment, and one that runs a trial holds `.locks/NUMBER` until the trial is over. The system
releases locks when a process dies: a trial that runs without its lock is taken up by the next process that asks.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout

from seqmixer import files
from seqmixer.config import Config
from seqmixer.errors import ConfigError, RunError, missing_extra, unknown
from seqmixer.experiments.grid import shared_task
from seqmixer.experiments.sweep.space import Choices, Domain, Space, Value, Values, combinations, last_point
from seqmixer.runs import task_of
from seqmixer.settings import flat
from seqmixer.storage.identity import MAY_CHANGE

if TYPE_CHECKING:  # an extra: loaded by the functions that need it
    from optuna import Study, Trial
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

METHODS = ("tpe", "random", "grid")
STUDY = "sweep"


@dataclass(frozen=True)
class Sweep:
    """A search: its space, its method and its budget."""

    folder: Path
    config: Config  # what the trials have in common
    space: Space
    method: str  # one of METHODS
    trials: int  # in all, whoever runs them
    seed: int
    prune_after: int | None = None  # the first epoch after which a trial may be stopped


@dataclass(frozen=True)
class Claim:
    """A trial that this process has claimed."""

    trial: "Trial"
    values: Values


def plan(
    folder: Path, config: Config, space: Space, *, method: str, trials: int | None, seed: int, prune_after: int | None
) -> Sweep:
    """A valid search. `trials` is how many, 20 by default; a grid has as many as it has cells."""
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if method == "grid":
        cells = len(combinations(space, "--method grid"))
        if trials is not None:
            raise ConfigError(f"--trials {trials} with --method grid: this grid has {cells} trials, and runs them all")
        trials = cells
    return Sweep(folder, config, space, method, 20 if trials is None else trials, seed, prune_after)


def require_extra() -> None:
    try:
        import matplotlib  # noqa: F401
        import optuna
    except ImportError:
        raise missing_extra("a sweep needs optuna and matplotlib", "sweep") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # its lines would come between ours


def open_search(search: Sweep) -> None:
    """Begin a search in its folder, or join the same one there."""
    from optuna import create_study

    sought = identity(search)  # reads the data: before others wait
    try:
        (search.folder / ".locks").mkdir(parents=True, exist_ok=True)
        with locked(search):
            require_same_search(search, sought)
            repair_journal(search)
            study = create_study(storage=storage(search), study_name=STUDY, direction="maximize", load_if_exists=True)
            there = len(study.get_trials(deepcopy=False))
    except OSError as error:
        raise RunError(f"{search.folder} cannot be written: {error.strerror or error}") from error
    if there > search.trials:  # its record would not be that of this command
        raise RunError(f"{search.folder} has {there} trials; ask for as many or more, or choose another --out")


def require_same_search(search: Sweep, sought: dict[str, Any]) -> None:
    """Refuse to resume a search with other settings or data."""
    path = search.folder / "search.json"
    now = json.loads(json.dumps(sought))
    if not path.is_file():
        files.write(path, json.dumps(now, indent=1))
        return
    try:
        before: dict[str, Any] = files.read_json(path, dict[str, Any])
    except RunError:
        raise RunError(f"{path} is damaged; put it back, or choose another --out") from None
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise RunError(
                f"{search.folder} holds a search with {name} = {before.get(name)!r}, not {now.get(name)!r}; choose "
                "another --out, or delete the folder"
            )


def repair_journal(search: Sweep) -> None:
    """Cut off half a line, which a process leaves that is killed while it writes."""
    path = search.folder / "journal.log"
    with journal_lock(search):
        if path.is_file():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def identity(search: Sweep) -> dict[str, Any]:
    """The settings and data that a search is resumed with. The number of trials and the machine may change."""
    may_change = MAY_CHANGE - {"training.epochs"}
    base = {name: value for name, value in flat(search.config.model_dump()) if name not in may_change}
    space = {f"the search of {name}": asdict(found) for name, found in search.space.items()}
    task = shared_task(search.config) or task_of(search.config)
    data = {f"the fingerprint of {name}": split.fingerprint for name, split in task.splits.items()}
    how = {"--method": search.method, "--seed": search.seed, "--prune-after": search.prune_after}
    return {**how, **space, **base, **data}


def locked(search: Sweep) -> FileLock:
    """The lock that a process holds while it claims a trial."""
    return FileLock(search.folder / ".locks" / "search")


@contextmanager
def claim(search: Sweep) -> Iterator[Claim | None]:
    """Claim the next trial: one that a dead process left, or a new one. None where there is none."""
    with locked(search):
        found = orphan(search) or fresh(search)
    if found is None:
        yield None
        return
    claimed, lock = found
    try:
        yield claimed
    finally:
        lock.release()


def orphan(search: Sweep) -> tuple[Claim, BaseFileLock] | None:
    """A trial that is running according to the study, but whose lock is free: its process died."""
    from optuna import Trial
    from optuna.trial import TrialState

    for left in load_study(search).get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        lock = trial_lock(search, left.number)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        study, store = load_study(search, sampler(search, left.number)), storage(search)
        if study.get_trials(deepcopy=False)[left.number].state.is_finished():  # since it was listed
            lock.release()
            continue
        key = store.get_trial_id_from_study_id_trial_number(store.get_study_id_from_name(STUDY), left.number)
        return claimed(search, Trial(study, key)), lock
    return None


def fresh(search: Sweep) -> tuple[Claim, BaseFileLock] | None:
    """A new trial; None where the search has as many as planned."""
    from optuna.trial import TrialState

    trials = load_study(search).get_trials(deepcopy=False)
    waiting = [trial.number for trial in trials if trial.state == TrialState.WAITING]  # by a death within this function
    if len(trials) >= search.trials and not waiting:
        return None
    number = waiting[0] if waiting else len(trials)
    study = load_study(search, sampler(search, number))
    if search.method == "grid" and not waiting:
        study.enqueue_trial(combinations(search.space, "--method grid")[number])
    lock = trial_lock(search, number)
    lock.acquire(timeout=0)
    return claimed(search, study.ask()), lock


def claimed(search: Sweep, trial: "Trial") -> Claim:
    return Claim(trial, {name: suggested(trial, name, found) for name, found in search.space.items()})


def suggested(trial: "Trial", name: str, found: Domain) -> Value:
    """The value of a setting in a trial; asked again, it is the same."""
    if isinstance(found, Choices):
        value = trial.suggest_categorical(name, found.values)
        assert value is not None  # which is no choice
        return value
    high = last_point(found)  # Optuna wants an integer number of steps
    if found.integers:
        return trial.suggest_int(name, int(found.low), int(high), step=int(found.step or 1), log=found.log)
    return trial.suggest_float(name, found.low, float(high), step=found.step, log=found.log)


def trial_name(number: int) -> str:
    return f"trial-{number:04}"


def trial_lock(search: Sweep, number: int) -> BaseFileLock:
    return FileLock(search.folder / ".locks" / f"{number:04}")


def storage(search: Sweep) -> "BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(search.folder / "journal.log"), cast(Any, journal_lock(search))))


def journal_lock(search: Sweep) -> BaseFileLock:
    """Optuna's own outlives a process that is killed, by 30 s."""
    return FileLock(search.folder / ".locks" / "journal")


def load_study(search: Sweep, sampler: "BaseSampler | None" = None) -> "Study":
    from optuna import load_study as load

    return load(storage=storage(search), study_name=STUDY, sampler=sampler, pruner=pruner(search))


def sampler(search: Sweep, number: int) -> "BaseSampler":
    """What draws the values of one trial: with a seed of its own, a resumed search draws what it would have drawn."""
    from optuna.samplers import RandomSampler, TPESampler

    seed = int(np.random.SeedSequence([search.seed, number]).generate_state(1)[0])
    return TPESampler(seed=seed) if search.method == "tpe" else RandomSampler(seed=seed)


def pruner(search: Sweep) -> "BasePruner":
    from optuna.pruners import MedianPruner, NopPruner

    return NopPruner() if search.prune_after is None else MedianPruner(n_warmup_steps=search.prune_after)
