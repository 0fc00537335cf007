"""The generators that sampling and dropout draw from: each process has its own, and a checkpoint has them all."""

from collections.abc import Mapping

import torch
from torch import Tensor

from seqmixer import ranks


def states(device: torch.device) -> dict[str, Tensor]:
    """The states of all generators: `cpu` and `device` of the first process, `1.cpu` and `1.device` of the next, ..."""
    mine = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        mine["device"] = torch.get_device_module(device).get_rng_state(device)
    own, *others = ranks.gathered(mine)
    return own | {f"{i}.{name}": state for i, other in enumerate(others, 1) for name, state in other.items()}


def restore(states: Mapping[str, Tensor], device: torch.device) -> bool:
    """Go on with what `states` gave, if as many processes are there as were then; else say so."""
    if 1 + sum(name.endswith(".cpu") for name in states) != ranks.world():
        return False
    prefix = "" if ranks.first() else f"{ranks.rank()}."
    torch.set_rng_state(states[f"{prefix}cpu"])
    if f"{prefix}device" in states and device.type != "cpu":
        torch.get_device_module(device).set_rng_state(states[f"{prefix}device"], device)
    return True
