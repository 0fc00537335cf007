"""The rules of a run folder: no link leads out of it, and config, task and vocabularies are as they were written.

A checkpoint has its checksums beside it; this is the same for the rest of the folder. A run folder may come from a
stranger, or from a bad disk: weights read with another vocabulary or another window would be silently wrong.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from seqmixer import files
from seqmixer.config import Config
from seqmixer.data import Split
from seqmixer.errors import ConfigError, RunError
from seqmixer.functions import is_path
from seqmixer.parallel import ranks
from seqmixer.rewards import parse
from seqmixer.settings import flat
from seqmixer.storage import checkpoint, pretrained

MANIFEST = "manifest.json"
SPLITS = ("train", "valid", "test")
SIDES = ("source", "target")
FILES = ("task.json", *(f"{side}.{kind}" for side in SIDES for kind in ("vocab", "case", "pieces")))
EDITABLE = {"data": {"folder"}, "text": set[str](), "model": set[str](), "evaluation": {"batch_size"}}  # after training
MAY_CHANGE = {  # between resumes
    "data.folder",  # what is read there is checked against the fingerprints
    "evaluation.batch_size",
    *(f"reward.{name}" for name in ("workers", "seconds")),
    *(f"training.{name}" for name in ("nonfinite", "device", "epochs", "keep", "examples", "save_minutes", "threads")),
}


def seal(folder: Path, config: Config) -> None:
    """Write the manifest that `require_intact` reads."""
    files.write(folder / MANIFEST, json.dumps(dict(checksums(folder, config)), indent=1))


def require_intact(folder: Path, config: Config) -> None:
    """Refuse a run folder that is not what was written. `config` is what its config.toml says."""
    pretrained.require_intact(folder)
    if not (folder / MANIFEST).exists():
        return  # an older run, or one whose manifest was deleted: its files are taken as they are
    try:
        written: dict[str, str] = files.read_json(folder / MANIFEST, dict[str, str])
    except RunError:
        raise RunError(f"{folder / MANIFEST} is damaged; fetch the run again, or delete that file") from None
    now = dict(checksums(folder, config))
    for name in sorted(written.keys() | now.keys()):
        if written.get(name) == now.get(name):
            continue
        if name in FILES:
            state = "is not what was written" if name in now else "is missing"
            raise RunError(f"{folder / name} {state}; fetch the run again, or begin another (--set name=...)")
        may = "of [data], [text], [model] and [evaluation] only data.folder and evaluation.batch_size may be edited"
        raise RunError(f"{folder / 'config.toml'}: {name} is not what the run was trained with; undo the change: {may}")


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock a run folder; an error while it is written is one line."""
    try:
        if ranks.first():
            folder.mkdir(parents=True, exist_ok=True)
            require_inside(folder)
        with FileLock(folder / ".lock", timeout=0) if ranks.first() else nullcontext():
            ranks.wait()
            require_shared(folder)
            yield
    except Timeout:
        raise RunError(f"{folder} is in use by another process; wait for it, or choose another name") from None
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RunError(f"{folder} cannot be written: {reason}; what was saved before is intact") from error


def require_shared(folder: Path) -> None:
    """Refuse a run folder that is not shared by all nodes: the first rank wrote a lock there."""
    if not (folder / ".lock").exists():
        raise RunError(f"{folder.resolve()} is not the same folder on every node; --out names one that all nodes see")


def require_inside(folder: Path) -> None:
    """Refuse links out of a run folder, and anything in it that is neither a file nor a folder, such as a FIFO."""
    home = folder.resolve()
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent) / name for name in (*folders, *names)):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise RunError(f"{path} is neither a file nor a folder; delete it")
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):
                raise RunError(
                    f"{path} is a link to {path.readlink()}, outside the run folder; put the file itself there "
                    "(cp -rL copies a folder so), or delete the link"
                )
            if path.is_symlink() and not path.exists():  # also one to itself
                raise RunError(f"{path} is a link to {path.readlink()}, where nothing is; delete it")


def require_own_code(path: Path, config: Config, trust: bool) -> None:
    """Refuse to import Python code that the config of a run folder names, unless the user trusts it."""
    if not trust and is_run(path.parent) and (code := python_code(config)):
        raise ConfigError(
            f"{path} lies in a run folder and names the Python code {code!r}; if that code is yours, add --trust"
        )


def is_run(folder: Path) -> bool:
    """Whether a folder has anything that only a run leaves."""
    names = (*FILES, MANIFEST, "log.jsonl", "scores.json", pretrained.FOLDER)
    kinds = ("last", "best", pretrained.FOLDER)
    return any((folder / name).exists() for name in names) or any(
        any(place.iterdir()) for kind in kinds for place in checkpoint.places(folder / kind)
    )


def python_code(config: Config) -> str | None:
    """The first reward, metric or algorithm that is the path of Python code.

    >>> python_code(Config.parse({"reward": {"name": "0.5*bleu + 0.5*mine:f"}}))
    'mine:f'
    """
    return first_path(config.reward.name, *config.metrics, config.algorithm.name)


def require_no_code(folder: Path, metrics: Sequence[str]) -> None:
    """Refuse to import metrics that are Python code, unless the user trusts the run folder."""
    if code := first_path(*metrics):
        raise ConfigError(
            f"{folder} names the Python code {code!r} as a metric; if that code is yours, add --trust (in Python: "
            "load(folder, trust=True)), or choose built-in metrics with --metrics"
        )


def first_path(*named: str) -> str | None:
    return next((name for text in named for _, name in parse(text) if is_path(name)), None)


def checksums(folder: Path, config: Config) -> Iterator[tuple[str, str]]:
    for name in FILES:
        if (folder / name).is_file():
            yield name, files.sha256(folder / name)
    for section, editable in EDITABLE.items():
        settings = config.model_dump_json(include={section}, exclude={section: editable}, exclude_defaults=True)
        if section == "text" and not config.text.raw:
            continue  # older runs have no such section
        yield f"[{section}]", hashlib.sha256(settings.encode()).hexdigest()


def read_config(folder: Path) -> Config:
    require_inside(folder)
    path = folder / "config.toml"
    if not path.is_file():
        raise RunError(f"{folder}: not a run folder (no config.toml); `seqmixer train` makes one")
    return Config.load(path)


@dataclass(frozen=True)
class Description:
    """The content of task.json."""

    dimensions: dict[str, int | None]  # of the model
    text: dict[str, str]  # fingerprints of the data by split
    sizes: dict[str, int] = field(default_factory=dict)  # examples by split
    parameters: int | None = None  # of the model


def read_task(folder: Path) -> Description:
    try:
        found: Description = files.read_json(folder / "task.json", Description)
    except RunError:
        raise damaged(folder) from None
    if not found.text.keys() >= set(SPLITS):
        raise damaged(folder)
    return found


def damaged(folder: Path) -> RunError:
    return RunError(f"{folder / 'task.json'} is missing or damaged; this is no complete run folder")


def require_same_config(folder: Path, config: Config) -> None:
    """Refuse to resume a run with another config."""
    if not (folder / "config.toml").is_file():
        if is_run(folder):
            raise RunError(f"{folder} holds a run without its config.toml; put that back, or choose another name")
        return
    began = read_config(folder)
    require_intact(folder, began)
    before = dict(flat(began.model_dump()))
    now = dict(flat(config.model_dump()))
    changed = [name for name in now if now[name] != before.get(name) and name not in MAY_CHANGE]
    if "training.start" in changed and same_start(before["training.start"], now["training.start"]):
        changed.remove("training.start")
    if changed:
        name = changed[0]
        raise RunError(
            f"{folder} holds a run with {name} = {before.get(name)!r}, not {now[name]!r}; choose another name "
            "(--set name=...), or delete the folder"
        )


def same_start(before: str | None, now: str | None) -> bool:
    """Whether two values of training.start may be the same run: it may have been moved or copied since."""
    if before is None or now is None:
        return False
    return not Path(before).exists() or Path(before).resolve() == Path(now).resolve() or same_best(before, now)


def same_best(one: str, other: str) -> bool:
    """Whether two run folders have the same best model: one is a copy of the other."""
    seals = [Path(run) / "best" / checkpoint.MANIFEST for run in (one, other)]
    return all(map(Path.is_file, seals)) and len({files.sha256(seal) for seal in seals}) == 1


def require_same_data(folder: Path, splits: Mapping[str, Split]) -> None:
    """Refuse to resume or score a run with other data, whose scores would have the same signature."""
    if not (folder / "task.json").is_file():
        return
    began = read_task(folder).text
    for name, split in splits.items():
        if began[name] != split.fingerprint:
            raise RunError(
                f"{folder}: the {name} data is not what the run began with; put the old files back, or begin another "
                "run (--set name=...)"
            )
