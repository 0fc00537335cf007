"""Examine a config or a run: the parts in the order in which a run would meet them.

What `train` would refuse is found by the checks that `train` makes: their errors are findings.
"""

import os
import platform
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from seqmixer import __version__, configs
from seqmixer.algorithms import Algorithm, Parts
from seqmixer.build import Dimensions, Metrics, Model, build_algorithm, build_model, run_length
from seqmixer.config import Config, HuggingFaceSettings
from seqmixer.data import Task
from seqmixer.doctor import cost, data
from seqmixer.doctor.checkpoints import Subject, examine_checkpoints, planned_epochs
from seqmixer.doctor.findings import Diagnosis, Finding, note, ok
from seqmixer.doctor.preflight import described, preflight, verdict
from seqmixer.doctor.settings import conflicts
from seqmixer.errors import ConfigError
from seqmixer.runs import load, located, start_from, task_of, threads
from seqmixer.storage import checkpoint, pretrained
from seqmixer.storage.identity import is_run, python_code, read_config
from seqmixer.training import Position, device
from seqmixer.types import Reward

UNMEASURED = "time, memory and pre-flight not measured"


def examine(target: Path, overrides: Sequence[str] = (), out: Path = Path("runs"), trust: bool = False) -> Diagnosis:
    """Look at everything that a run depends on. Nothing is written, and no code of a run folder is run.

    Args:
        target: a TOML file, or the folder of a run.
        overrides: settings such as "model.hidden=512".
        out: where the run folder of a TOML file is, or would be.
        trust: whether Python code that a run folder's config names may be imported.
    """
    found, subject, task = Diagnosis(), None, None
    versions = {"seqmixer": __version__, "Python": platform.python_version(), "torch": str(torch.__version__)}
    found.add("environment", [ok(", ".join(map(" ".join, versions.items())))], **versions)
    with found.attempt("settings"):
        subject = read_subject(target, overrides, out, trust)
    if subject is None:
        return found
    config, folder = subject.config, subject.folder
    found.add("environment", machine(config), cores=os.cpu_count())
    with found.attempt("data"):
        task = task_of(config, folder)
    length = task.length if task else None
    found.add("settings", conflicts(config, length))
    if not found.findings["settings"]:
        found.add("settings", [ok("every setting is valid, and none works against another")])
    if task is not None:
        found.add("data", data.described(config, task, folder), **data.measured(task))
    epochs = planned_epochs(config, length)
    position = examine_checkpoints(found, subject, epochs)
    broken = found.broken("environment", "data", "checkpoint")
    code = python_code(config)
    if task is None or epochs is None or broken:
        found.add("cost", [note(UNMEASURED, f"the {' and the '.join(broken)} must be fixed first")])
    elif code is not None and not subject.trusted:
        what = f"{code!r} is Python code that a run folder names, and is not imported"
        found.add("cost", [note(what, UNMEASURED, "add --trust if the code is yours")])
    else:
        measure(found, subject, task, epochs, position or Position())
    return found


def read_subject(target: Path, overrides: Sequence[str], out: Path, trust: bool) -> Subject:
    if target.is_dir():
        read_config(target)  # refuses what is no run folder
        path = target / "config.toml"
        return Subject(located(Config.load(path, overrides)), path, target, trust, tuple(overrides))
    path = configs.found(target)
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder; name a TOML file or the folder of a run")
    config = Config.load(path, overrides)
    return Subject(config, target, out / config.name, trust or not is_run(path.parent), tuple(overrides))


def machine(config: Config) -> Iterator[Finding]:
    """The device that training.device names."""
    found = device(config.training.device)
    memory = cost.in_bytes(cost.memory_of(found))
    yield ok(f"device {found}, {memory} of memory, {os.cpu_count()} CPU cores")


@dataclass(frozen=True)
class Ready:
    """What a run trains with."""

    model: Model
    origin: str  # of the model
    learnt: bool  # whether the model was trained before its samples are rewarded
    reward: Reward
    algorithm: Algorithm


def measure(found: Diagnosis, subject: Subject, task: Task, epochs: int, position: Position) -> None:
    """What needs the model: the pre-flight with it as it is, then a few updates, which change it."""
    config = threads.as_begun(subject.config, subject.folder)
    torch.manual_seed(config.seed)
    ready = None
    with found.attempt("model"):
        ready = made_ready(config, subject.folder, task)
    if ready is None:
        return
    stages = [ready.algorithm.stage(epoch) for epoch in range(epochs)]
    samples = any(stage.rewarded for stage in stages)
    if seconds := threads.measured(ready.model, task, config.training, samples):
        config = threads.with_threads(config, threads.fewest(seconds))
    if samples:
        with found.attempt("pre-flight"):
            examine_preflight(found, ready, task, stages[0].rewarded)
    memory = cost.counted(config, task, ready.model)
    disk = cost.disk(config, memory)
    available = cost.memory_of(device(config.training.device))
    counted = [cost.fits(memory, available), cost.room(disk, subject.folder)]
    found.add("cost", counted, memory=memory, disk=disk)
    with found.attempt("cost", "an update does not go through"):
        timing = cost.measured(config, task, ready.model, ready.algorithm, epochs)
        labels = [stage.label for stage in stages]
        found.add("cost", [cost.lasts(config, task, timing, labels, position.epoch)], seconds=asdict(timing))


def made_ready(config: Config, folder: Path, task: Task) -> Ready:
    """The run's best model; or the one that it starts from; or a pretrained or random one; and what rewards it."""
    kept = folder if checkpoint.exists(folder / "best") else None
    if isinstance(config.model, HuggingFaceSettings):
        pretrained.require_positions(pretrained.place(config.model, kept), task)
    model = build_model(config.model, Dimensions.of(task), kept)
    origin = f"the pretrained model {config.model.pretrained}" if config.model.pretrained else "a random model"
    if kept:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged one before it has its line already
            model.load_state_dict(load(folder).model.state_dict())
        origin = f"the best model of {folder}"
    elif config.training.start is not None:
        start_from(model, task, Path(config.training.start))
        origin = f"the best model of {config.training.start}"
    model.to(device(config.training.device))
    metrics = Metrics(config, task)
    _ = metrics.chosen  # an unknown one is an error
    epochs = run_length(config, task.length)
    parts = Parts(metrics.reward, model.features, task.length, len(task.target_vocab), epochs)
    algorithm = build_algorithm(config.algorithm, parts)
    learnt = kept is not None or config.training.start is not None
    return Ready(model, origin, learnt, metrics.reward, algorithm.to(device(config.training.device)))


def examine_preflight(found: Diagnosis, ready: Ready, task: Task, at_once: bool) -> None:
    """`at_once`: the first epoch is rewarded already, so that an untrained model is no passing state."""
    valid, train = (preflight(ready.model, split, task.length, ready.reward) for split in (task.valid, task.train))
    judged = verdict(valid, train)
    if not ready.learnt and not at_once:
        what = f"cross entropy comes first, and this is {ready.origin} yet"
        judged = [note(what, "it says nothing of the RL stages", "ask again once that is done")]
    begun = ok(f"{ready.origin}, on {valid.sentences} validation sentences with {valid.samples} samples each")
    values = {"model": ready.origin, "valid": asdict(valid), "train": asdict(train)}
    found.add("pre-flight", [begun, *described(valid), *judged], **values)
