"""Checkpoints of a run: its position, `last` and `best`, and the states of the random generators."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from seqmixer import files
from seqmixer.errors import RunError
from seqmixer.parallel import ranks
from seqmixer.storage import checkpoint
from seqmixer.training.callbacks import Event
from seqmixer.training.log import BadNumbers
from seqmixer.training.step import Step

SHARE = 1 / 20  # of the time, at most, goes into writing checkpoints
SEPARATOR = "|"  # of the names of metrics in a checkpoint

Count = Annotated[int, Field(ge=0, lt=2**63)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Counts = Annotated[list[Count], Field(min_length=4, max_length=4)]


@dataclass
class Position:
    """Where a run is. With the checkpoint's tensors it is all that a resumed run needs to know."""

    epoch: Count = 0  # epochs done
    batch: Count = 0  # batches done of the next one
    best: float = -math.inf  # validation score of the best model
    best_perplexity: float = math.inf  # its perplexity, which decides between equal scores, such as 0 at the beginning
    best_epoch: Count = 0
    entropy: float = math.inf  # lowest validation entropy so far, for the decay rule
    rate: Rate = 0.0
    seconds: dict[str, float] = field(default_factory=dict)  # of the epoch under way
    counts: Counts = field(default_factory=lambda: [0, 0, 0, 0])  # of its batches, see `averages.py`
    events: list[Event] = field(default_factory=list)  # what happened in it so far, for the log
    waited: Count = 0  # sampled epochs since the best model was found or restored
    rollbacks: Count = 0  # times the best model was restored since it was found
    over: bool = False  # whether the run ended early


@dataclass
class EpochsDone:
    """The part of a position that is needed to open a run."""

    epoch: Count
    best_epoch: Count


def progress_of(state: dict[str, Any] | None, folder: Path) -> tuple[int, int]:
    """The epochs done, and the best of them; 0 where there is no checkpoint yet."""
    if state is None:
        return 0, 0
    found: EpochsDone = files.checked(state, EpochsDone, f"{folder}: state.json")
    return found.epoch, found.best_epoch


@dataclass
class Best:
    """The epoch and the score of a best model."""

    epoch: Count
    score: float


def restored(state: dict[str, Any], folder: Path) -> Position:
    """The position that a checkpoint's state.json has, or a line that says what is wrong with it."""
    if not state.keys() <= {each.name for each in fields(Position)}:
        raise RunError(f"{folder}: state.json was written by another version of seqmixer")
    position: Position = files.checked(state, Position, f"{folder}: state.json")
    files.checked(position.events, list[BadNumbers], f"{folder}: state.json: events")
    return position


def restored_best(state: dict[str, Any], folder: Path) -> Best:
    best: Best = files.checked(state, Best, f"{folder}: state.json")
    return best


class Checkpoints:
    """`last`, all that the rest of the run depends on, and `best`, the weights of the best model so far."""

    def __init__(self, folder: Path, step: Step) -> None:
        self.last, self.best, self.step = folder / "last", folder / "best", step
        self.unsaved: dict[str, Tensor] | None = None  # weights of the best model that are not on the disk yet
        self.saved, self.seconds = time.monotonic(), 0.0  # when a checkpoint was written, and how long it took

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self.saved > max(60 * self.step.settings.save_minutes, self.seconds / SHARE)

    @property
    def has_best(self) -> bool:
        return self.unsaved is not None or checkpoint.exists(self.best)

    def usable(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return ranks.from_first(lambda: checkpoint.usable(self.last))

    def keep_best(self) -> None:
        """The model as it is now is the best one."""
        self.unsaved = {name: weight.clone() for name, weight in self.step.model.state_dict().items()}

    def save_best(self, position: Position) -> None:
        if self.unsaved is not None:
            if ranks.first():
                checkpoint.save(self.best, self.unsaved, {"epoch": position.best_epoch, "score": position.best})
            self.unsaved = None

    def load_best(self, position: Position) -> None:
        """Give the model the weights of the best one."""
        self.save_best(position)
        tensors, state = ranks.from_first(lambda: checkpoint.load(self.best))
        found = restored_best(state, self.best).epoch
        if found < position.best_epoch:
            raise RunError(f"{checkpoint.lost(self.best, found, position.best_epoch)}; put it back, or train anew")
        checkpoint.load_weights(self.step.model, tensors, self.best)

    def save(self, position: Position) -> None:
        """Write the best model, if there is a new one, then `last`."""
        began, step = time.monotonic(), self.step
        self.save_best(position)
        position.seconds, position.counts = step.clock.so_far(), step.averages.counts.tolist()
        tensors = {
            **checkpoint.prefixed("model", step.model.state_dict()),
            **checkpoint.prefixed("algorithm", step.algorithm.state_dict()),
            **checkpoint.prefixed("optimizer", checkpoint.optimizer_tensors(step.optimizer)),
            **checkpoint.prefixed("means", {SEPARATOR.join(k): v for k, v in step.averages.sums.items()}),
            **checkpoint.prefixed("random", random_states(step.device)),
        }
        if step.own_optimizer:
            tensors |= checkpoint.prefixed("own", checkpoint.optimizer_tensors(step.own_optimizer))
        if ranks.first():
            checkpoint.save(self.last, tensors, asdict(position), keep=step.settings.keep)
        ranks.wait()  # torchrun ends all processes with the first that ends
        self.saved = time.monotonic()
        self.seconds = self.saved - began

    def load(self) -> tuple[Position, bool]:
        """Restore everything from `last`.  -> the position, and whether the random states could be restored too"""
        folder, step = self.last, self.step
        tensors, state = ranks.from_first(lambda: checkpoint.load(folder))
        position = restored(state, folder)
        checkpoint.load_weights(step.model, checkpoint.under("model", tensors), folder)
        if checkpoint.under("algorithm.reference", tensors):
            step.algorithm.set_reference(step.model)  # makes room for what is loaded now
        checkpoint.load_weights(step.algorithm, checkpoint.under("algorithm", tensors), folder)
        checkpoint.load_optimizer(step.optimizer, checkpoint.under("optimizer", tensors), folder)
        if step.own_optimizer:
            checkpoint.load_optimizer(step.own_optimizer, checkpoint.under("own", tensors), folder)
        found = checkpoint.under("means", tensors)
        sums = {k: torch.zeros(3, len(k.split(SEPARATOR)), dtype=torch.double) for k in found}
        checkpoint.require_like(found, sums, folder)
        step.averages.sums = {tuple(k.split(SEPARATOR)): v.to(step.device) for k, v in found.items()}
        step.averages.counts.copy_(torch.tensor(position.counts))
        step.rate = position.rate
        step.clock.seconds = dict(position.seconds)
        if ranks.first():  # a best model of an epoch that is not done will come again
            checkpoint.discard(self.best, lambda state: restored_best(state, self.best).epoch > position.epoch)
        return position, restore_random(checkpoint.under("random", tensors), step.device, folder)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Of the generators of sampling and dropout: `cpu` and `device` of the first rank, then `1.cpu`, ..."""
    mine = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        mine["device"] = torch.get_device_module(device).get_rng_state(device)
    own, *others = ranks.gathered(mine)
    return own | {f"{i}.{name}": state for i, other in enumerate(others, 1) for name, state in other.items()}


def restore_random(states: Mapping[str, Tensor], device: torch.device, where: Path) -> bool:
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
