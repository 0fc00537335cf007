"""Where a run is: what a resumed run needs to know beside the weights."""

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from seqmixer import files
from seqmixer.errors import RunError
from seqmixer.training.log import BadNumbers, Event

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
    counts: Counts = field(default_factory=lambda: [0, 0, 0, 0])  # of its batches, see `means.py`
    events: list[Event] = field(default_factory=list)  # what happened in it so far, for the log
    waited: Count = 0  # sampled epochs since the best model was found or gone back to
    rollbacks: Count = 0  # times the run went back to the best model since it was found
    over: bool = False  # whether patience, or a rate below min_lr, ended the run


@dataclass
class EpochsDone:
    """What is needed of a position to open a run."""

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
    """What is known of a best model beside its weights."""

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
