"""Run the trials of a search, here or in several processes."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seqmixer.config import Config
from seqmixer.errors import ConfigError, Diverged, Interrupted, OutOfMemory, within_memory
from seqmixer.evaluation import read_scores
from seqmixer.experiments.grid import share_cores, shared_task
from seqmixer.experiments.sweep.search import Claim, Sweep, claim, load_study, open_search, trial_name
from seqmixer.experiments.sweep.space import Values, changed
from seqmixer.parallel import workers as processes
from seqmixer.runs import train
from seqmixer.training import Callback, Place, Training, epochs, machine, read_log
from seqmixer.training.callbacks import Event

if TYPE_CHECKING:  # an extra: loaded by the functions that need it
    from optuna import Trial
    from optuna.trial import FrozenTrial

Objective = Callable[[Config, Path, Callback], float]  # a config, where its run folder goes, the pruner -> the score


@dataclass(frozen=True)
class Outcome:
    """The result of a trial."""

    number: int
    state: str  # complete, pruned, failed, running
    score: float | None  # the best on the validation split; of a pruned trial, the best until then
    values: Values
    epochs: int
    seconds: float  # of training and validation
    reason: str | None  # why it failed
    machine: str | None  # that ran it, or its end; None before it began


Report = Callable[[Outcome], None]


def run_search(search: Sweep, workers: int, report: Report, objective: Objective | None = None) -> None:
    """Run what is left of a search, some trials at a time. Stopped, the same call resumes it."""
    open_search(search)
    try:
        for outcome in run_all(search, workers, objective or validation_score):
            report(outcome)
    except (KeyboardInterrupt, Interrupted):
        message = f"stopped with {over(search)} of {search.trials} trials over; saved in {search.folder}"
        raise Interrupted(message) from None


def run_all(search: Sweep, workers: int, objective: Objective) -> Iterator[Outcome]:
    """The outcomes of this process's trials, as they come."""
    if workers == 1:
        with processes.stop_handler(signal.default_int_handler):
            while (outcome := run_next(search, objective)) is not None:
                yield outcome
        return
    with processes.started(workers, partial(share_cores, workers)) as pool:
        under_way = {pool.submit(run_next, search, objective) for _ in range(workers)}
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for outcome in (future.result() for future in done):
                if outcome is not None:
                    under_way.add(pool.submit(run_next, search, objective))
                    yield outcome


def run_next(search: Sweep, objective: Objective) -> Outcome | None:
    """Claim a trial and run it. -> None when there is none left

    A run that diverges, settings that clash and a model too large for the memory are what a search finds out: the trial
    failed. Any other error would be the next trial's too: it stops the search, and the trial waits to be taken up.
    """
    from optuna.trial import TrialState

    with claim(search) as claimed:
        if claimed is None:
            return None
        study, number = load_study(search), claimed.trial.number
        claimed.trial.set_user_attr("machine", machine())
        try:
            score, pruned = score_of(search, claimed, objective)
            study.tell(number, state=TrialState.PRUNED) if pruned else study.tell(number, score)
        except (ConfigError, Diverged, OutOfMemory) as error:
            claimed.trial.set_user_attr("reason", str(error).splitlines()[0])
            study.tell(number, state=TrialState.FAIL)
        return outcome(search, load_study(search).get_trials(deepcopy=False)[number])


@within_memory()
def score_of(search: Sweep, claimed: Claim, objective: Objective) -> tuple[float, bool]:
    """Run a trial.  -> its score, and whether it was pruned"""
    values = changed(search.config, claimed.values) | {"name": trial_name(claimed.trial.number)}
    config = Config.parse(values, trial_name(claimed.trial.number))
    reported = load_study(search).get_trials(deepcopy=False)[claimed.trial.number].intermediate_values
    pruner = Pruner(claimed.trial, dict(reported))
    return objective(config, search.folder, pruner), pruner.pruned


def validation_score(config: Config, folder: Path, pruner: Callback) -> float:
    """Train a run to its end. -> the validation score of its best model"""
    run = train(config, folder, [pruner, Place()], task=shared_task(config))
    return read_scores(run.folder).valid


class Pruner(Callback):
    """Reports how a trial does after each epoch, and ends the run of one that does badly."""

    def __init__(self, trial: "Trial", reported: dict[int, float]) -> None:
        self.trial = trial
        self.reported = reported  # best validation score so far, by epoch; also those before a stop

    @property
    def pruned(self) -> bool:
        """Whether the trial is pruned. The study keeps this: a run resumed after a crash ends in the same epoch."""
        return "pruned" in self.trial.user_attrs

    def epoch_end(self, run: Training, event: Event) -> None:
        (score,) = (value for name, value in event["valid"].items() if name != "perplexity")
        epoch = event["epoch"]
        if epoch not in self.reported:  # a resumed run may do again what it did not save
            self.reported[epoch] = max([score, *self.reported.values()])
            self.trial.report(self.reported[epoch], epoch)
        if self.pruned or self.trial.should_prune():
            self.trial.set_user_attr("pruned", epoch)
            run.end(f"the sweep prunes it: {self.reported[epoch]:.2f} is below the median of the other trials")


def over(search: Sweep) -> int:
    """How many trials are over, whoever ran them."""
    return sum(trial.state.is_finished() for trial in load_study(search).get_trials(deepcopy=False))


def outcomes(search: Sweep) -> list[Outcome]:
    """All trials so far, whoever ran them."""
    return [outcome(search, trial) for trial in load_study(search).get_trials(deepcopy=False)]


def outcome(search: Sweep, trial: "FrozenTrial") -> Outcome:
    events = epochs(read_log(search.folder / trial_name(trial.number)))
    state = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}.get(trial.state.name, "running")
    return Outcome(
        trial.number,
        state,
        trial.value,
        dict(trial.params),
        len(events),
        round(sum(sum(event["seconds"].values()) for event in events), 1),
        trial.user_attrs.get("reason"),
        trial.user_attrs.get("machine"),
    )
