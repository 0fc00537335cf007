"""Recovery from signals, numbers that are not finite and falling scores: stop, skip, or restore the best model.

The best model is restored, not the last checkpoint: that is written by the clock, and its weights may already be on
their way to a number that is not finite; the best model was validated, and a resumed run finds the same one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Literal, assert_never

import torch

from seqmixer.algorithms import Algorithm
from seqmixer.decoding import free, generate, greedy, score
from seqmixer.errors import Diverged, Interrupted
from seqmixer.parallel.workers import stop_handler
from seqmixer.training.averages import NonFinite
from seqmixer.training.callbacks import Event
from seqmixer.types import Batch, SequenceModel

NonFinitePolicy = Literal["stop", "skip", "rollback"]

IN_A_ROW = 10  # bad batches, and skipping ends the run: a bad sentence breaks its own batch, a broken model all of them
ROLLBACKS = 5  # returns to one model, and the run ends: the rate is then a 32nd, and lower would hardly train
NAMED = 3  # sentences in a message
WIDTH = 60  # letters of each


class Interrupt:
    """Ctrl-C or SIGTERM. The first one only sets `asked`: the loop finishes the batch and saves. A second one ends."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def error(self, out: Path, epoch: int, batch: int, total: int) -> Interrupted:
        return Interrupted(f"stopped in epoch {epoch} after {batch} of {total} batches; saved in {out / 'last'}")


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within the block, signals go to an `Interrupt`."""
    interrupt = Interrupt()
    with stop_handler(interrupt.ask):
        yield interrupt


def hopeless(policy: NonFinitePolicy, found: NonFinite, rollbacks: int, has_best: bool) -> str | None:
    """Why a run ends after numbers that were not finite; None where it continues."""
    match policy:
        case "stop":
            return ""
        case "skip":
            return f"{found.in_a_row} batches in a row were skipped; " if found.in_a_row >= IN_A_ROW else None
        case "rollback":
            if not has_best:
                return "there is no model to go back to yet; "
            return f"the run went back to the same model {ROLLBACKS} times; " if rollbacks >= ROLLBACKS else None
        case _:
            assert_never(policy)


def diverged(out: Path, event: Event, reason: str) -> Diverged:
    """The error that ends a run, and what to do."""
    return Diverged(
        f"{out}: {in_words(event)}; {reason}what was saved before is intact. Resume with another training.nonfinite, "
        "or begin another run (--set name=...) with a lower training.lr, training.rl_lr or training.clip"
    )


def described(found: NonFinite, epoch: int, where: str) -> Event:
    """The log's event of numbers that were not finite."""
    return {
        "event": "bad numbers",
        "epoch": epoch,
        "batch": found.batch,
        "batches": found.batches,
        "quantities": found.quantities,
        "where": where,
    }


def added(events: list[Event], event: Event) -> bool:
    """Add an event to those of an epoch; skipped batches are one event. -> whether it is a new one"""
    for before in events:
        if before["done"] == event["done"] == "skipped":
            before["batches"] += event["batches"]
            before["quantities"] = sorted({*before["quantities"], *event["quantities"]})
            return False
    events.append(event)
    return True


@torch.no_grad()
def suspects(model: SequenceModel, algorithm: Algorithm, batch: Batch, rewarded: bool) -> list[str]:
    """The sources whose reference has no finite probability, or whose greedy output no finite reward.

    Nothing is drawn at random: the run then draws the numbers it would have had.
    """
    finite = score(model, batch.source, batch.target).isfinite()  # (B,)
    if rewarded and algorithm.reward is not None:
        words = generate(model, batch.source, *free(batch.source, batch.target.shape[1]), greedy)  # (B, T)
        finite &= algorithm.reward(batch.rollout(words)).isfinite()
    return [str(meta["source"]) for meta, fine in zip(batch.meta, finite.tolist(), strict=True) if not fine]


def named(guilty: list[str], batch: Batch) -> str:
    """Where a bad number came from; where no sentence gives one by itself, somewhere in the batch."""
    sources = guilty or [str(meta["source"]) for meta in batch.meta]
    first = ", ".join(repr(source if len(source) <= WIDTH else source[:WIDTH] + "...") for source in sources[:NAMED])
    more = f" and {len(sources) - NAMED} more" if len(sources) > NAMED else ""
    return f"{'sentences' if guilty else 'somewhere in'} {first}{more}"


def in_words(event: Event) -> str:
    """
    >>> in_words({"epoch": 2, "batch": 7, "quantities": ["reward", "loss"], "where": "sentences 'a b'"})
    "epoch 2, batch 7: not a finite number: reward, loss; sentences 'a b'"
    """
    quantities = ", ".join(event["quantities"])
    return f"epoch {event['epoch']}, batch {event['batch']}: not a finite number: {quantities}; {event['where']}"
