"""The one training loop: epochs of updates, validation after each, the best model kept, and resume at any batch."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from seqmixer.algorithms import Algorithm, Stage, symptoms
from seqmixer.config import TrainingConfig
from seqmixer.data import Table, Task, batch_count, batches
from seqmixer.decoding import GREEDY, Search
from seqmixer.errors import RewardError
from seqmixer.evaluation import evaluate, perplexity
from seqmixer.parallel import ranks
from seqmixer.rewards import DEFAULT, Metric
from seqmixer.schedules import decayed
from seqmixer.training import recovery
from seqmixer.training.callbacks import Callback, Event
from seqmixer.training.clock import Clock, machine
from seqmixer.training.log import Log, samples
from seqmixer.training.recovery import Interrupt, interruptible
from seqmixer.training.regime import Regime
from seqmixer.training.saving import Checkpoints, Position
from seqmixer.training.step import Step, device
from seqmixer.types import Batch, SequenceModel

CHECK_EVERY = 50  # batches between checks for numbers that are not finite on an accelerator: each synchronises


class Training:
    """A run: `Training(...).run()` resumes where its folder says, or begins."""

    def __init__(
        self,
        model: SequenceModel,
        algorithm: Algorithm,
        task: Task,
        out: Path | str,
        *,
        epochs: int,
        settings: TrainingConfig | None = None,
        metrics: Sequence[Metric] = (DEFAULT,),
        decode_batch: int = 256,
        search: Search = GREEDY,
        seed: int = 1,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.settings = settings or TrainingConfig()
        ranks.start(self.settings.device)
        self.device = device(self.settings.device)
        self.model, self.algorithm = model.to(self.device), algorithm.to(self.device)
        self.task, self.out, self.epochs, self.seed = task, Path(out), epochs, seed
        self.metrics, self.search, self.decode_batch = metrics, search, decode_batch  # the first metric selects
        self.train = Table.of(task.train, self.device)
        self.batch_count = batch_count(task.train, self.settings.batch_size)
        self.callbacks = [Log(self.out), *callbacks] if ranks.first() else []  # the log first: all else may fail
        self.clock = Clock()
        self.step = Step(self.model, self.algorithm, self.settings, self.clock, self.note)
        self.averages = self.step.averages
        self.checkpoints = Checkpoints(self.out, self.step)
        self.position = Position(rate=self.settings.lr)
        self.ending: str | None = None  # why the run is to end after this epoch

    # The run

    def run(self) -> Position:
        """Train to the end and leave the model with its best weights.

        Ctrl-C saves and raises `Interrupted`; the same call then resumes.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        self.begin()
        with interruptible() as interrupt, self.clock.watch(self.algorithm):
            try:
                while not self.finished:
                    self.epoch(interrupt)
            except RewardError as error:
                where = f"{self.out}, epoch {self.position.epoch + 1}, batch {self.position.batch + 1}"
                raise RewardError(f"{where}: {error}; fixed, the same command resumes from what was saved") from error
            finally:
                self.call(lambda callback: callback.end(self))
        self.checkpoints.load_best(self.position)
        return self.position

    def begin(self) -> None:
        """Resume from the checkpoint `last`; where there is none, begin."""
        if self.checkpoints.usable():
            self.position, same_noise = self.checkpoints.load()
            if not same_noise:
                self.reseed()
            if self.finished:
                self.note(f"{self.out}: all epochs are done, nothing is trained; another folder begins anew")
            else:
                self.note(f"resuming at epoch {self.position.epoch + 1}, batch {self.position.batch + 1}")
        else:
            torch.manual_seed(ranks.own_seed(self.seed))
            if self.settings.nonfinite == "rollback":  # until a model is validated, the first is the best
                self.checkpoints.keep_best()
        self.call(lambda callback: callback.begin(self))

    def reseed(self) -> None:
        """Seed by the position of the run: the states of the generators are lost."""
        done = self.position.epoch * self.batch_count + self.position.batch
        torch.manual_seed(ranks.own_seed(self.seed, moment=done + 1))
        self.note(f"{self.out} was saved by another number of processes: same data, other noise from here on")

    @property
    def finished(self) -> bool:
        return self.position.epoch >= self.epochs or self.position.over

    def end(self, why: str) -> None:
        """End the run after the epoch under way, however many are planned."""
        self.ending = self.ending or why

    # An epoch

    def epoch(self, interrupt: Interrupt) -> None:
        """The rest of the epoch the run is in, then validation; a checkpoint wherever one is due."""
        position, regime = self.position, self.regime(self.position.epoch)
        if position.batch == 0:
            self.begin_stage(regime)
        self.call(lambda callback: callback.epoch_begin(self))
        self.model.train(regime.dropout)
        with self.clock.time("train"):
            for batch in self.batches(position.batch):
                self.step(batch, position.epoch)
                position.batch += 1
                self.call(lambda callback: callback.step(self))
                stop, due = ranks.agreed(interrupt.asked, self.checkpoints.due)  # once: they may change at any moment
                if stop or due or self.device.type == "cpu" or position.batch % CHECK_EVERY == 0:
                    self.check_numbers()
                if stop or due:
                    self.checkpoints.save(position)
                if stop:
                    raise interrupt.error(self.out, position.epoch + 1, position.batch, self.batch_count)
            self.check_numbers()
        self.close_epoch(regime)

    @property
    def stage(self) -> Stage:
        """What the epoch under way does."""
        return self.algorithm.stage(self.position.epoch)

    def regime(self, epoch: int) -> Regime:
        """How an epoch is trained."""
        return Regime.of(self.algorithm.stage(epoch), self.settings)

    def batches(self, skip: int) -> Iterator[Batch]:
        """The batches of the epoch under way, without the first `skip`."""
        size, length = self.settings.batch_size, self.task.length
        return batches(self.train, size, length, seed=self.seed, epoch=self.position.epoch, skip=skip)

    def begin_stage(self, regime: Regime) -> None:
        """Where another regime begins: with a rate of its own, from the best model so far with a fresh optimiser."""
        epoch = self.position.epoch
        if epoch and self.regime(epoch - 1) == regime:
            return
        if regime.rate is not None:
            if epoch:
                self.checkpoints.load_best(self.position)
            self.renew_optimizer(regime.rate)
            self.position.rollbacks = 0
        if regime.sets_reference:
            self.algorithm.set_reference(self.model)

    def renew_optimizer(self, rate: float) -> None:
        self.step.optimizer = self.step.fresh(rate)
        self.position.rate = rate

    def close_epoch(self, regime: Regime) -> None:
        """Validate, keep the model if it is the best, log, adapt the rate, save if it is time."""
        position, stage = self.position, self.stage
        with self.clock.time("validate"):
            given = self.model, self.task, self.task.valid
            ppl = perplexity(*given, self.decode_batch)
            valid = evaluate(*given, *self.metrics, search=self.search, batch_size=self.decode_batch)
        position.epoch, position.batch = position.epoch + 1, 0
        better = (valid.score, -ppl) > (position.best, -position.best_perplexity)
        if better:
            position.best, position.best_perplexity, position.best_epoch = valid.score, ppl, position.epoch
            position.rollbacks = 0
            self.checkpoints.keep_best()
        train = self.averages.values()
        event: Event = {
            "event": "epoch",
            "epoch": position.epoch,
            "stage": stage.label,
            "rate": position.rate,
            "train": train,
            "valid": {"perplexity": ppl} | {each.metric: each.score for each in valid.scored},
            "effects": valid.effects,
            "best": better,
            "symptoms": symptoms(train),
            "seconds": self.clock.split(),
            "machine": machine(),
            "samples": samples(self.task.valid.meta[: self.settings.examples], valid.hypotheses),
        }
        self.log(*position.events, event)
        for skipped in (found for found in position.events if found["done"] == "skipped"):
            self.note(f"  epoch {skipped['epoch']}: {skipped['batches']} batches skipped")
        position.events = []
        self.decay(math.log(ppl), regime)
        self.averages.clear()
        self.clock.seconds.clear()
        restored = self.lose_patience(better, regime.patience)
        self.end_early()
        (due,) = ranks.agreed(self.checkpoints.due)
        if restored or due or self.finished or position.epoch == 1:
            self.checkpoints.save(position)

    def decay(self, entropy: float, regime: Regime) -> None:
        """The released rule. The run ends below min_lr, unless a stage with a rate of its own is still to come."""
        position, least = self.position, self.settings.min_lr
        if regime.decays:
            before = position.rate
            position.rate = decayed(before, entropy, position.entropy, self.settings.decay)
            if position.rate < min(before, least):  # not where it began below
                if any(self.regime(epoch).rate is not None for epoch in range(position.epoch, self.epochs)):
                    position.rate = min(before, least)
                else:
                    self.end(f"the rate {position.rate:g} is below training.min_lr = {least:g}")
        position.entropy = min(position.entropy, entropy)
        self.step.rate = position.rate

    def end_early(self) -> None:
        """End the run if the rate, lost patience or a callback asked for it; only the first rank has callbacks."""
        why = ranks.from_first(lambda: self.ending)
        if why is not None:
            self.position.over = True
            self.log({"event": "end", "epoch": self.position.epoch, "why": why})
            self.note(f"  {why}: the run ends after {self.position.epoch} of {self.epochs} epochs")

    # Recovery

    def check_numbers(self) -> None:
        """Deal with numbers that were not finite as training.nonfinite says. The step left the weights as they were."""
        found = self.averages.nonfinite()
        if found is None:
            return
        position, policy = self.position, self.settings.nonfinite
        batch = next(self.batches(found.batch - 1))
        guilty = recovery.suspects(self.model, self.algorithm, batch, self.stage.rewarded)
        event = recovery.described(found, position.epoch + 1, recovery.named(guilty, batch))
        self.averages.clear_nonfinite()
        reason = recovery.hopeless(policy, found, position.rollbacks, self.checkpoints.has_best)
        if reason is not None:
            self.log(*position.events, {**event, "done": "stopped"})
            raise recovery.diverged(self.out, event, reason)
        done = "skipped" if policy == "skip" else self.roll_back()
        if recovery.added(position.events, {**event, "done": done}):
            self.note(f"{recovery.in_words(event)}; {done}")
        if policy == "rollback":
            self.checkpoints.save(position)  # so that `last` is never far behind a `best` that was written on the way

    def roll_back(self) -> str:
        """Restore the best model, with half the rate and a fresh optimiser. The baseline stays.  -> in words"""
        position = self.position
        self.checkpoints.load_best(position)
        self.renew_optimizer(position.rate / 2)
        position.rollbacks += 1
        model = f"the model of epoch {position.best_epoch}" if position.best_epoch else "the first model"
        return f"went back to {model}, rate {position.rate:g}"

    def lose_patience(self, better: bool, patience: int | None) -> bool:
        """Restore the best model, or end, after so many epochs (None: never) that did not beat it. -> whether it did"""
        position = self.position
        position.waited = 0 if better or patience is None else position.waited + 1
        if patience is None or position.waited < patience:
            return False
        epochs = "1 epoch has" if position.waited == 1 else f"{position.waited} epochs have"
        why = f"{epochs} not beaten {self.metrics[0].name} {position.best:.2f}"
        if position.rollbacks >= recovery.ROLLBACKS or position.rate / 2 < self.settings.min_lr:
            self.end(why)
        else:
            done = self.roll_back()
            self.log({"event": "patience", "epoch": position.epoch, "why": why, "done": done})
            self.note(f"  {why}: {done}")
        position.waited = 0
        return True

    # Callbacks

    def call(self, method: Callable[[Callback], None]) -> None:
        for callback in self.callbacks:
            method(callback)

    def note(self, line: str) -> None:
        """A line for whoever watches."""
        self.call(lambda callback: callback.note(line))

    def log(self, *events: Event) -> None:
        """Tell the callbacks, log.jsonl among them, what happened."""
        for event in events:
            if event["event"] == "epoch":
                self.call(lambda callback, event=event: callback.epoch_end(self, event))  # type: ignore[misc]
            else:
                self.call(lambda callback, event=event: callback.event(self, event))  # type: ignore[misc]
