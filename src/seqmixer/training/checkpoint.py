"""Checkpoints: weights in safetensors, the rest in JSON; nothing is ever unpickled.

A checkpoint is a folder, written beside its place and then renamed, so that it is there whole or not at all.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqmixer.errors import RunError

Tensors = Mapping[str, Tensor]


def save(folder: Path, tensors: Tensors, state: Mapping[str, Any]) -> None:
    """Write `tensors` and `state` as the checkpoint `folder`, replacing the one that is there."""
    new, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    save_file(plain, new / "tensors.safetensors")
    (new / "state.json").write_text(json.dumps(state, indent=1))
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def load(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint. If the machine died between the two renames of `save`, the one before is taken."""
    old = folder.with_name(folder.name + ".old")
    place = old if old.is_dir() and not folder.is_dir() else folder
    for name in ("tensors.safetensors", "state.json"):
        if not (place / name).is_file():
            raise RunError(f"{folder}: no checkpoint here ({name} is missing)")
    try:
        return load_file(place / "tensors.safetensors"), json.loads((place / "state.json").read_text())
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise RunError(f"{folder}: damaged checkpoint: {error}") from None


def exists(folder: Path) -> bool:
    return folder.is_dir() or folder.with_name(folder.name + ".old").is_dir()


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
