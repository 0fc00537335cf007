"""The generators that sampling and dropout draw from: each process has its own, and a checkpoint has them all."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from seqmixer.errors import RunError
from seqmixer.parallel import ranks
from seqmixer.storage import checkpoint


def states(device: torch.device) -> dict[str, Tensor]:
    """The states of all generators: `cpu` and `device` of the first process, `1.cpu` and `1.device` of the next, ..."""
    mine = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        mine["device"] = torch.get_device_module(device).get_rng_state(device)
    own, *others = ranks.gathered(mine)
    return own | {f"{i}.{name}": state for i, other in enumerate(others, 1) for name, state in other.items()}


def restore(states: Mapping[str, Tensor], device: torch.device, where: Path) -> bool:
    """Set the generators as `states` had them, if there are as many ranks as there were then. -> whether there are"""
    if 1 + sum(name.endswith(".cpu") for name in states) != ranks.world():
        return False
    prefix = "" if ranks.first() else f"{ranks.rank()}."
    mine = {name: states[f"{prefix}{name}"] for name in ("cpu", "device") if f"{prefix}{name}" in states}
    now = {"cpu": torch.get_rng_state()}
    if "device" in mine and device.type != "cpu":
        now["device"] = torch.get_device_module(device).get_rng_state(device)
    checkpoint.require_like({name: mine[name] for name in mine if name in {"cpu", *now}}, now, where)
    try:
        torch.set_rng_state(mine["cpu"])
        if "device" in now:
            torch.get_device_module(device).set_rng_state(mine["device"], device)
    except RuntimeError as error:
        raise RunError(f"{where}: a random state that is none: {str(error).splitlines()[0]}") from None
    return True
