"""Checkpoints: weights in safetensors, the rest in JSON; nothing is ever unpickled.

A checkpoint is a folder with a manifest of its files' checksums. It is written beside its place, flushed to the disk
and then renamed, and the one before is kept as NAME.1: whatever happens, one of the two is whole, and a damaged one is
known by its checksums.
"""

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqmixer.errors import RunError

Tensors = Mapping[str, Tensor]
State = dict[str, Any]

TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
UNREADABLE = (RunError, SafetensorError, ValueError, OSError)
NUMBER = re.compile(r"\.[0-9]{1,9}")


def save(folder: Path, tensors: Tensors, state: Mapping[str, Any], keep: int = 1) -> None:
    """Write the checkpoint `folder`; the `keep` before it become folder.1, folder.2, ..."""
    new = sibling(folder, "new")
    if new.is_dir() and not folder.is_dir():
        os.rename(new, folder)  # what a death between two renames left undone
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    save_file(plain, new / TENSORS)
    (new / STATE).write_text(json.dumps(state, indent=1))
    (new / MANIFEST).write_text(json.dumps({name: checksum(new / name) for name in (TENSORS, STATE)}, indent=1))
    for path in (*new.iterdir(), new):
        flush(path)
    if folder.is_dir():
        shutil.rmtree(sibling(folder, str(keep)), ignore_errors=True)
        for number in range(keep, 1, -1):
            if sibling(folder, str(number - 1)).is_dir():
                os.rename(sibling(folder, str(number - 1)), sibling(folder, str(number)))
        os.rename(folder, sibling(folder, "1"))
    os.rename(new, folder)
    flush(folder.parent)


def load(folder: Path) -> tuple[dict[str, Tensor], State]:
    """Read the newest whole checkpoint; a damaged one is passed over with a warning."""
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
    """The state of the newest checkpoint that has a whole one; its tensors are not looked at. None where none has."""
    for place in places(folder):
        with suppress(*UNREADABLE, KeyError, TypeError):
            if json.loads((place / MANIFEST).read_text())[STATE] == checksum(place / STATE):
                return dict(json.loads((place / STATE).read_text()))
    return None


def read(place: Path) -> tuple[dict[str, Tensor], State]:
    verify(place)
    return load_file(place / TENSORS), json.loads((place / STATE).read_text())


def lost(best: Path, found: State, epoch: int) -> str:
    """What to say of a folder whose newest whole model is of an epoch before the best one's."""
    return f"{best}: that of epoch {epoch} is missing or damaged, and the one before it is of epoch {found['epoch']}"


def discard(folder: Path, unwanted: Callable[[State], bool]) -> None:
    """Remove the checkpoints whose state is `unwanted`."""
    for place in list(places(folder)):
        if whole(place) and unwanted(json.loads((place / STATE).read_text())):
            shutil.rmtree(place)


def exists(folder: Path) -> bool:
    """Whether one was ever written: of the very first, a death may have left half beside its place."""
    return any(place != sibling(folder, "new") or whole(place) for place in places(folder))


def whole(place: Path) -> bool:
    try:
        verify(place)
    except RunError:
        return False
    return True


def places(folder: Path) -> Iterator[Path]:
    """Where the checkpoint may be, newest first: a new one is left beside its place by a death between two renames."""
    older = (path for path in folder.parent.glob(f"{folder.name}.*") if NUMBER.fullmatch(path.name, len(folder.name)))
    numbered = sorted(older, key=lambda path: int(path.suffix[1:]))
    yield from (path for path in (folder, sibling(folder, "new"), *numbered) if path.is_dir())


def sibling(folder: Path, suffix: str) -> Path:
    return folder.with_name(f"{folder.name}.{suffix}")


def verify(place: Path) -> None:
    """Hold the files against the manifest."""
    try:
        manifest = json.loads((place / MANIFEST).read_text())
        wanted = {name: manifest[name] for name in (TENSORS, STATE)}
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError("damaged: no readable manifest") from None
    for name, expected in wanted.items():
        if not (place / name).is_file():
            raise RunError(f"damaged: {name} is missing")
        if checksum(place / name) != expected:
            raise RunError(f"damaged: {name} is not what was written")


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, text: str) -> None:
    """Write a file, or leave the one before: never half of it, and never through a link."""
    new = sibling(path, "new")
    new.unlink(missing_ok=True)
    new.write_text(text, encoding="utf-8")
    flush(new)
    os.replace(new, path)


def flush(path: Path) -> None:
    """Force a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prefixed(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    """The tensors saved with `prefixed`, by their own names."""
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def load_weights(module: nn.Module, tensors: Tensors, where: Path) -> None:
    """Put weights into a module that must have just these."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise RunError(f"{where}: the weights do not fit the model: {lines[-1].strip()}") from None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers of each parameter, as a flat dict."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, memory in state.items() for name, value in memory.items() if value is not None}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Give an optimiser its memory back; its settings stay."""
    memory: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        i, _, name = key.partition(".")
        memory.setdefault(int(i), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": memory})
