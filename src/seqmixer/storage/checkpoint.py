"""Checkpoints: weights in safetensors, the rest in JSON; nothing is ever unpickled.

A checkpoint is a folder with a manifest of its files' checksums. It is written beside its place, flushed to the disk
and then renamed, and the one before is kept as NAME.1: whatever happens, one of the two is complete, and a damaged one
is known by its checksums.
"""

import json
import os
import re
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqmixer import files
from seqmixer.errors import RunError

Tensors = Mapping[str, Tensor]
State = dict[str, Any]

TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
UNREADABLE = (RunError, SafetensorError, ValueError, OSError)
NUMBER = re.compile(r"\.[0-9]{1,9}")


def save(folder: Path, tensors: Tensors, state: Mapping[str, Any], keep: int = 1) -> None:
    """Write the checkpoint `folder`; the `keep` before it become folder.1, folder.2, ..."""
    with replacing(folder, keep) as new:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, new / TENSORS)
        (new / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")


@contextmanager
def replacing(folder: Path, keep: int) -> Iterator[Path]:
    """A folder to fill, which takes the name `folder` when it is complete, sealed and on the disk.

    A crash leaves it as folder.new, complete or not. The newest complete one never lies there while a next is written.
    """
    new = sibling(folder, "new")
    if complete(new) and not complete(folder):
        put(new, folder)  # death came just before it got its name
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    yield new
    seal(new)
    put(new, folder)
    for old in numbered(folder):
        if int(old.suffix[1:]) > keep:
            shutil.rmtree(old)


def seal(folder: Path) -> None:
    """Write the manifest of a folder, and force all of it to the disk."""
    mode = stat.S_IMODE(folder.stat().st_mode) & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)  # safetensors makes files that only their owner may read
            files.flush(path)
        else:
            files.flush_folder(path)
    manifest = {name: files.sha256(folder / name) for name in sorted(contents(folder))}
    files.write(folder / MANIFEST, json.dumps(manifest, indent=1))


def put(new: Path, folder: Path) -> None:
    """Give a complete folder its name; what had it becomes folder.1."""
    make_room(folder, 0)
    os.rename(new, folder)
    files.flush_folder(folder.parent)


def make_room(folder: Path, number: int) -> None:
    """Rename folder.NUMBER (0: the folder itself) to the next number, and what is there before it."""
    place = sibling(folder, str(number)) if number else folder
    if place.is_dir():
        make_room(folder, number + 1)
        os.rename(place, sibling(folder, str(number + 1)))


def load(folder: Path) -> tuple[dict[str, Tensor], State]:
    """Read the newest complete checkpoint; a damaged one is skipped with a warning."""
    with suppress(*UNREADABLE):  # a run that saves may rename it meanwhile: no reason to warn, looked for again below
        return read(next(places(folder), folder))
    reasons = []
    for place in places(folder):
        try:
            return read(place)
        except UNREADABLE as error:
            reasons.append(f"{place.name}: {error}")
            warnings.warn(f"{place}: {error}; looking for the checkpoint before it", stacklevel=2)
    found = "; ".join(reasons) or "there is none"
    raise RunError(f"{folder}: no checkpoint that can be used: {found}")


def peek(folder: Path) -> State | None:
    """The newest intact state.json, whatever its tensors are; None where there is none."""
    for place in places(folder):
        with suppress(*UNREADABLE, KeyError):
            if files.read_json(place / MANIFEST, dict[str, str])[STATE] == files.sha256(place / STATE):
                return read_state(place)
    return None


def read(place: Path) -> tuple[dict[str, Tensor], State]:
    verify(place)
    return load_file(place / TENSORS), read_state(place)


def read_state(place: Path) -> State:
    found: State = files.read_json(place / STATE, dict[str, Any])
    return found


def lost(best: Path, found: int, epoch: int) -> str:
    """The message for a folder whose newest complete model is of an epoch before the best one's."""
    return f"{best}: that of epoch {epoch} is missing or damaged, and the one before it is of epoch {found}"


def discard(folder: Path, unwanted: Callable[[State], bool]) -> None:
    """Remove the checkpoints whose state is `unwanted`."""
    for place in list(places(folder)):
        if complete(place) and unwanted(read_state(place)):
            shutil.rmtree(place)


def exists(folder: Path) -> bool:
    """Whether a checkpoint was ever completed: a crash may have left half of the first one."""
    return any(place != sibling(folder, "new") or complete(place) for place in places(folder))


def usable(folder: Path) -> bool:
    """Whether there is one to load."""
    return any(complete(place) for place in places(folder))


def complete(place: Path) -> bool:
    try:
        verify(place)
    except (RunError, OSError):
        return False
    return True


def places(folder: Path) -> Iterator[Path]:
    """The folders of a checkpoint, newest first: a crash between two renames leaves the new one as NAME.new."""
    yield from (path for path in (folder, sibling(folder, "new"), *numbered(folder)) if path.is_dir())


def numbered(folder: Path) -> list[Path]:
    """Those before it, newest first."""
    older = (path for path in folder.parent.glob(f"{folder.name}.*") if NUMBER.fullmatch(path.name, len(folder.name)))
    return sorted(older, key=lambda path: int(path.suffix[1:]))


def sibling(folder: Path, suffix: str) -> Path:
    return folder.with_name(f"{folder.name}.{suffix}")


def verify(place: Path) -> None:
    """Compare the files of a sealed folder with its manifest."""
    try:
        manifest: dict[str, str] = files.read_json(place / MANIFEST, dict[str, str])
    except RunError:
        raise RunError("damaged: no readable manifest") from None
    there = contents(place)
    for name in sorted(manifest.keys() | there):
        if name not in there:
            raise RunError(f"damaged: {name} is missing")
        if manifest.get(name) != files.sha256(place / name):
            raise RunError(f"damaged: {name} is not what was written")


def contents(folder: Path) -> set[str]:
    """The files that are sealed: all but the manifest, hidden ones (of a desktop) and texts for people."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = {path.as_posix() for path in found if not path.name.startswith(".") and path.suffix != ".md"}
    return names - {MANIFEST}


def prefixed(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    """The tensors saved with `prefixed`, by their own names."""
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def load_weights(module: nn.Module, tensors: Tensors, where: Path) -> None:
    """Load weights into a module of the same names, shapes and types."""
    wanted = module.state_dict()
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise RunError(f"{where}: the weights do not fit the model: {lines[-1].strip()}") from None
    both = tensors.keys() & wanted.keys()
    require_like({name: tensors[name] for name in both}, {name: wanted[name] for name in both}, where)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser for each parameter, as a flat dict."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, memory in state.items() for name, value in memory.items() if value is not None}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors, where: Path) -> None:
    """Load the state of an optimiser; its settings stay. A parameter without a gradient yet has no state."""
    numbers = {key.partition(".")[0] for key in tensors}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    memory: dict[int, dict[str, Tensor]] = {
        i: {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
        for i, parameter in enumerate(parameters)
        if str(i) in numbers and isinstance(optimizer, torch.optim.Adam)  # SGD without momentum remembers nothing
    }
    wanted = {f"{i}.{name}": like for i, several in memory.items() for name, like in several.items()}
    require_like(tensors, wanted, where)
    state = {i: {name: tensors[f"{i}.{name}"] for name in several} for i, several in memory.items()}
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def require_like(tensors: Tensors, wanted: Tensors, where: Path) -> None:
    """Refuse tensors of other names, shapes or types than `wanted`: fused kernels would read past their ends."""
    for name in sorted(tensors.keys() | wanted.keys()):
        if described(tensors.get(name)) != described(wanted.get(name)):
            got, needed = described(tensors.get(name)), described(wanted.get(name))
            raise RunError(f"{where}: {TENSORS} does not fit the run: {name!r} is {got}, not {needed}")


def described(tensor: Tensor | None) -> str:
    """
    >>> described(torch.zeros(2, 3)), described(None)
    ('float32 (2, 3)', 'missing')
    """
    if tensor is None:
        return "missing"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
