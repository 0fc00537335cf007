"""Where a run is: what a resumed run needs to know beside the weights."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqmixer.errors import RunError
from seqmixer.training.log import Event


@dataclass
class Position:
    """Where a run is. With the checkpoint's tensors it is all that a resumed run needs to know."""

    epoch: int = 0  # epochs done
    batch: int = 0  # batches done of the next one
    best: float = -math.inf  # validation score of the best model
    best_perplexity: float = math.inf  # its perplexity, which decides between equal scores, such as 0 at the beginning
    best_epoch: int = 0
    entropy: float = math.inf  # lowest validation entropy so far, for the decay rule
    rate: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)  # of the epoch under way
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])  # of its batches, see `means.py`
    events: list[Event] = field(default_factory=list)  # what happened in it so far, for the log
    waited: int = 0  # sampled epochs since the best model was found or gone back to
    rollbacks: int = 0  # times the run went back to the best model since it was found
    over: bool = False  # whether patience, or a rate below min_lr, ended the run


def restored(state: dict[str, Any], folder: Path) -> Position:
    try:
        return Position(**state)
    except TypeError:
        raise RunError(f"{folder}: state.json was written by another version of seqmixer") from None
