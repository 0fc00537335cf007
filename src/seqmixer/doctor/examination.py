"""Examine a config or a run: the parts in the order in which a run would meet them."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from seqmixer import configs
from seqmixer.build import Dimensions, Metrics, Model, build_algorithm, build_model
from seqmixer.config import Config, HuggingFaceSettings
from seqmixer.data import Task
from seqmixer.doctor.checkpoints import Subject, examine_checkpoints, planned, position_of
from seqmixer.doctor.cost import Plan, examine_cost
from seqmixer.doctor.data import examine_data
from seqmixer.doctor.environment import examine_environment
from seqmixer.doctor.findings import Check, Diagnosis, Finding
from seqmixer.doctor.preflight import described, preflight, verdict
from seqmixer.doctor.settings import examine_settings
from seqmixer.errors import ConfigError, SeqmixerError, within_memory
from seqmixer.functions import is_path
from seqmixer.runs import load, located, start_from, threads
from seqmixer.storage import checkpoint, pretrained
from seqmixer.storage.identity import is_run, python_code, read_config, without_code
from seqmixer.training import Position, device
from seqmixer.types import Reward

BEST = "the best model of"  # a run


def examine(target: Path, overrides: Sequence[str] = (), out: Path = Path("runs"), trust: bool = False) -> Diagnosis:
    """Look at everything that a run depends on. Nothing is written, and no code of a run folder is run.

    Args:
        target: a TOML file, or the folder of a run.
        overrides: settings such as "model.hidden=512".
        out: where the run folder of a TOML file is, or would be.
        trust: whether Python code that a run folder's config names may be imported.
    """
    try:
        subject = read_subject(target, overrides, out, trust)
    except SeqmixerError as error:
        unread = Check("settings", [Finding("problem", str(error))])
        return Diagnosis([examine_environment(None, None), unread])
    config = subject.config
    built_in = without_code(config)
    imported = subject if subject.trusted else replace(subject, config=built_in)
    data, task = examine_data(built_in, subject.folder)
    length = task.length if task else None
    sections = [
        examine_environment(config, subject.folder),
        examine_settings(config, length),
        data,
        examine_checkpoints(subject, length),
    ]
    broken = [section.name for section in sections if section.name != "settings" and section.broken]
    if task is None or broken:
        why = f"the {' and the '.join(broken)} must be fixed first"
        return Diagnosis([*sections, Check("cost", [Finding("note", "time, memory and pre-flight not measured", why)])])
    return Diagnosis([*sections, *measured(imported, task)])


def read_subject(target: Path, overrides: Sequence[str], out: Path, trust: bool) -> Subject:
    if target.is_dir():
        read_config(target)  # refuses what is no run folder
        path = target / "config.toml"
        return Subject(located(Config.load(path, overrides)), path, target, trust, tuple(overrides))
    target = configs.found(target)
    if not target.exists():
        raise ConfigError(f"{target}: no such file or folder; name a TOML file or the folder of a run")
    config = Config.load(target, overrides)
    return Subject(config, target, out / config.name, trust or not is_run(target.parent), tuple(overrides))


def measured(subject: Subject, task: Task) -> list[Check]:
    """What needs the model: the pre-flight with it as it is, then a few updates, which change it."""
    config = threads.as_begun(subject.config, subject.folder)
    torch.manual_seed(config.seed)
    if is_path(config.algorithm.name) and not subject.trusted:
        what = f"the algorithm {config.algorithm.name!r} is Python code that a run folder names, and is not imported"
        advice = "add --trust if the code is yours"
        return [Check("cost", [Finding("note", what, "time, memory and pre-flight not measured", advice)])]
    try:
        model, origin = model_at_hand(subject, task)
        reward, findings = reward_at_hand(subject, task)
    except SeqmixerError as error:
        return [Check("model", [Finding("problem", str(error))])]
    algorithm = build_algorithm(config.algorithm, reward, model.features, task.length).to(
        device(config.training.device)
    )
    epochs = planned(config, task.length)
    assert epochs is not None  # T is known
    stages = [algorithm.stage(epoch) for epoch in range(epochs)]
    samples = any(stage.rewarded for stage in stages)
    if seconds := threads.measured(model, task, config.training, samples):
        config = threads.with_threads(config, threads.fewest(seconds))
    flights = []
    if samples:
        flight = partial(examine_preflight, model, origin, task, reward, findings, stages[0].rewarded)
        flights = [attempted("pre-flight", flight)]
    position = position_of(subject.folder) or Position()
    plan = Plan(subject.folder, epochs, min(position.epoch, epochs), [stage.label for stage in stages])
    cost = partial(examine_cost, config, task, model, algorithm, plan)
    return [attempted("cost", cost, "an update does not go through"), *flights]


def attempted(name: str, examine: Callable[[], Check], what: str = "") -> Check:
    """A check, or the error that ended it as its only finding."""
    try:
        return examine()
    except SeqmixerError as error:
        finding = Finding("problem", what, str(error)) if what else Finding("problem", str(error))
        return Check(name, [finding])


def examine_preflight(
    model: Model, origin: str, task: Task, reward: Reward, findings: list[Finding], at_once: bool
) -> Check:
    """`at_once`: REINFORCE begins with the first epoch, so that an untrained model is no passing state."""
    valid, train = (preflight(model, split, task.length, reward) for split in (task.valid, task.train))
    judged = verdict(valid, train)
    if not origin.startswith(BEST) and not at_once:
        what = f"cross entropy comes first, and this is {origin} yet"
        why = "it says nothing of the RL stages"
        judged = [Finding("note", what, why, "ask again once that is done")]
    begun = Finding("ok", f"{origin}, on {valid.sentences} validation sentences with {valid.samples} samples each")
    values = {"model": origin, "valid": asdict(valid), "train": asdict(train)}
    return Check("pre-flight", [*findings, begun, *described(valid), *judged], values)


@within_memory()
def model_at_hand(subject: Subject, task: Task) -> tuple[Model, str]:
    """The run's best model; or the one that it starts from; or a pretrained or random one. And which it is."""
    config, folder = subject.config, subject.folder
    kept = folder if checkpoint.exists(folder / "best") else None
    if isinstance(config.model, HuggingFaceSettings):
        pretrained.require_positions(pretrained.place(config.model, kept), task)
    model = build_model(config.model, Dimensions.of(task), kept)
    origin = f"the pretrained model {config.model.pretrained}" if config.model.pretrained else "a random model"
    if kept:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged one before it has its line already
            model.load_state_dict(load(folder).model.state_dict())
        origin = f"{BEST} {folder}"
    elif config.training.start is not None:
        start_from(model, task, Path(config.training.start))
        origin = f"{BEST} {config.training.start}"
    return model.to(device(config.training.device)), origin


def reward_at_hand(subject: Subject, task: Task) -> tuple[Reward, list[Finding]]:
    """The reward of training; where that is code which must not be imported, the reward of the metric's name."""
    config = subject.config
    code = python_code(config)
    if code is None or subject.trusted:
        metrics = Metrics(config, task)
        _ = metrics.chosen  # there, too
        return metrics.reward, []
    what = f"the reward {code!r} is Python code that a run folder names, and is not imported"
    metric = config.metrics[0]
    why = f"samples are rewarded and judged here as with reward.name = {metric!r} in its place"
    stand_in = config.model_copy(update={"reward": config.reward.model_copy(update={"name": metric})})
    return Metrics(stand_in, task).reward, [Finding("note", what, why, "add --trust if the code is yours")]
