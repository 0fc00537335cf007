"""What a run does about bad numbers and falling scores: stop, skip, or go back to the best model with half the rate.

It goes back to the best model, not to the last checkpoint: that was written when the clock said so, and may hold
weights on their way to the bad number; the best model was validated, and a resumed run finds the same one.
"""

from typing import TYPE_CHECKING, assert_never

import torch

from seqmixer.algorithms import Algorithm
from seqmixer.decoding import free, generate, greedy, score
from seqmixer.errors import Diverged
from seqmixer.storage import checkpoint
from seqmixer.training.log import Event
from seqmixer.training.means import Fault
from seqmixer.types import Batch, SequenceModel

if TYPE_CHECKING:
    from seqmixer.training.loop import Training

IN_A_ROW = 10  # bad batches, and skipping ends the run: a bad sentence breaks its own batch, a broken model all of them
ROLLBACKS = 5  # returns to one model, and the run ends: the rate is then a 32nd, and lower would hardly train
NAMED = 3  # sentences in a message
WIDTH = 60  # letters of each


def look(run: "Training") -> None:
    """Deal with bad numbers as training.nonfinite says. The step left the weights as they were."""
    fault = run.means.fault()
    if fault is None:
        return
    event = described(run, fault)
    run.means.forgive()
    reason = hopeless(run, fault)
    if reason is not None:
        write(run, *run.position.events, {**event, "done": "stopped"})
        raise Diverged(
            f"{run.out}: {in_words(event)}; {reason}what was saved before is intact. Go on with another "
            "training.nonfinite, or begin another run (--set name=...) with a lower training.lr, training.rl_lr "
            "or training.clip"
        )
    if run.settings.nonfinite == "skip":
        if not counted_in(run.position.events, event):
            run.position.events.append({**event, "done": "skipped"})
            run.progress.note(f"{in_words(event)}; skipped")
        return
    done = go_back(run)
    run.position.events.append({**event, "done": done})
    run.progress.note(f"{in_words(event)}; {done}")
    run.save()  # so that `last` is never far behind a `best` that was written on the way


def hopeless(run: "Training", fault: Fault) -> str | None:
    """Why a run does not go on after bad numbers; None where it does."""
    policy = run.settings.nonfinite
    match policy:
        case "stop":
            return ""
        case "skip":
            return f"{fault.in_a_row} batches in a row were skipped; " if fault.in_a_row >= IN_A_ROW else None
        case "rollback":
            if run.best is None and not checkpoint.exists(run.out / "best"):
                return "there is no model to go back to yet; "
            many = run.position.rollbacks >= ROLLBACKS
            return f"the run went back to the same model {ROLLBACKS} times; " if many else None
        case _:
            assert_never(policy)


def go_back(run: "Training") -> str:
    """To the best model, with half the rate and a fresh optimiser. The baseline stays.  -> what was done, in words"""
    run.load_best()
    run.begin_anew(run.position.rate / 2)
    run.position.rollbacks += 1
    model = f"the model of epoch {run.position.best_epoch}" if run.position.best_epoch else "the first model"
    return f"went back to {model}, rate {run.position.rate:g}"


def lose_patience(run: "Training", better: bool, patience: int | None) -> bool:
    """Count the epochs that did not beat the best model; after so many, go back to it or end. None: do not count.

    -> whether that was now
    """
    position = run.position
    position.waited = 0 if better or patience is None else position.waited + 1
    if patience is None or position.waited < patience:
        return False
    position.over = position.rollbacks >= ROLLBACKS or position.rate / 2 < run.settings.min_lr
    done = "the run ends" if position.over else go_back(run)
    epochs = "1 epoch has" if position.waited == 1 else f"{position.waited} epochs have"
    why = f"{epochs} not beaten {run.metrics[0].name} {position.best:.2f}"
    write(run, {"event": "patience", "epoch": position.epoch, "why": why, "done": done})
    run.progress.note(f"  {why}: {done}")
    position.waited = 0
    return True


def log_epoch(run: "Training", event: Event) -> None:
    """Log what happened in an epoch, and the event that closes it."""
    write(run, *run.position.events, event)
    for happened in run.position.events:
        if happened["done"] == "skipped":
            run.progress.note(f"  epoch {happened['epoch']}: {happened['batches']} batches skipped")
    run.position.events = []


def write(run: "Training", *events: Event) -> None:
    for event in events:
        run.log.write(event)


def described(run: "Training", fault: Fault) -> Event:
    """The log's event of bad numbers; the batch is made once more to find the sentences."""
    batch = next(run.batches(fault.batch - 1))
    guilty = suspects(run.model, run.algorithm, batch, run.algorithm.stage(run.position.epoch).rewarded)
    return {
        "event": "bad numbers",
        "epoch": run.position.epoch + 1,
        "batch": fault.batch,
        "batches": fault.batches,
        "quantities": fault.quantities,
        "where": named(guilty, batch),
    }


def counted_in(events: list[Event], event: Event) -> bool:
    """Count bad batches to those skipped before in the same epoch: one event of an epoch, not one of each batch."""
    for before in events:
        if before["done"] == "skipped":
            before["batches"] += event["batches"]
            before["quantities"] = sorted({*before["quantities"], *event["quantities"]})
            return True
    return False


@torch.no_grad()
def suspects(model: SequenceModel, algorithm: Algorithm, batch: Batch, rewarded: bool) -> list[str]:
    """The sources whose reference has no finite probability, or whose greedy output no finite reward.

    Nothing is drawn at random: the run goes on with the numbers it would have had.
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
