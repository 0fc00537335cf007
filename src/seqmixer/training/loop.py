"""The one training loop: epochs of updates, validation after each, the best model kept, and resume at any batch."""

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from seqmixer.algorithms import Algorithm, Stage, symptoms
from seqmixer.config import TrainingConfig
from seqmixer.data import Table, Task, batch_count, batches
from seqmixer.errors import RewardError, RunError
from seqmixer.evaluation import evaluate, perplexity
from seqmixer.parallel import ranks
from seqmixer.rewards import BLEU, Metric
from seqmixer.schedules import decayed
from seqmixer.storage import checkpoint
from seqmixer.training import noise, recovery
from seqmixer.training.clock import Clock
from seqmixer.training.log import Event, Log
from seqmixer.training.position import Position, restored, restored_best
from seqmixer.training.progress import Progress, Silent
from seqmixer.training.regime import Regime
from seqmixer.training.signals import Interrupt, interruptible
from seqmixer.training.step import Step, device
from seqmixer.types import Batch, SequenceModel

SHARE = 1 / 20  # of the time, at most, goes into writing checkpoints
LOOK = 50  # batches between looks for bad numbers on an accelerator: each look waits for it
SEPARATOR = "|"  # of the names of metrics in a checkpoint


class Training:
    """A run: `Training(...).run()` goes on from where its folder says, or begins."""

    def __init__(
        self,
        model: SequenceModel,
        algorithm: Algorithm,
        task: Task,
        out: Path | str,
        *,
        epochs: int,
        settings: TrainingConfig | None = None,
        metrics: Sequence[Metric] = (BLEU,),
        decode_batch: int = 256,
        seed: int = 1,
        progress: Progress | None = None,
    ) -> None:
        self.settings = settings or TrainingConfig()
        ranks.start(self.settings.device)
        self.device = device(self.settings.device)
        self.model, self.algorithm = model.to(self.device), algorithm.to(self.device)
        self.task, self.out, self.epochs, self.seed = task, Path(out), epochs, seed
        self.metrics, self.decode_batch = metrics, decode_batch  # the first metric selects the best model
        self.train = Table.of(task.train, self.device)
        self.clock, self.log = Clock(), Log(self.out, writes=ranks.first())
        self.progress = progress if progress and ranks.first() else Silent()
        self.step = Step(self.model, self.algorithm, self.settings, self.clock, self.progress.note)
        self.means = self.step.means
        self.position = Position(rate=self.settings.lr)
        self.saved, self.saving = time.monotonic(), 0.0  # when a checkpoint was written, and how long it took
        self.best: dict[str, torch.Tensor] | None = None  # weights that are not on the disk yet

    def run(self) -> Position:
        """Train to the end and leave the model with its best weights.

        Ctrl-C saves and raises `Interrupted`; the same call then goes on.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        if ranks.from_first(lambda: checkpoint.usable(self.out / "last")):
            self.resume()
            if self.finished:
                self.progress.note(f"{self.out}: all epochs are done, nothing is trained; another folder begins anew")
        else:
            ranks.equal_weights(self.model, self.algorithm)
            torch.manual_seed(ranks.own_seed(self.seed))
            self.log.keep_before(1)
            if self.settings.nonfinite == "rollback":  # until a model is validated, the first is the best
                self.best = copied(self.model)
        with interruptible() as interrupt, self.clock.watch(self.algorithm):
            try:
                while not self.finished:
                    self.epoch(interrupt)
            except RewardError as error:
                where = f"{self.out}, epoch {self.position.epoch + 1}, batch {self.position.batch + 1}"
                raise RewardError(f"{where}: {error}; mended, the same command goes on from what was saved") from error
            finally:
                self.progress.stop()
        self.load_best()
        return self.position

    @property
    def finished(self) -> bool:
        return self.position.epoch >= self.epochs or self.position.over

    def epoch(self, interrupt: Interrupt) -> None:
        """The rest of the epoch the run is in, then validation; a checkpoint wherever one is due."""
        position, stage = self.position, self.algorithm.stage(self.position.epoch)
        regime = self.regime(position.epoch)
        if position.batch == 0:
            self.enter_stage(regime)
        total = batch_count(self.task.train, self.settings.batch_size)
        self.progress.epoch(position.epoch + 1, self.epochs, stage.label, position.batch, total)
        self.model.train(regime.dropout)
        with self.clock.time("train"):
            for batch in self.batches(position.batch):
                self.step(batch, position.epoch)
                position.batch += 1
                self.progress.batch(self.means)
                stop, due = ranks.agreed(interrupt.asked, self.due)  # asked once: it may change at any moment
                if stop or due or self.device.type == "cpu" or position.batch % LOOK == 0:
                    recovery.look(self)
                if stop or due:
                    self.save()
                if stop:
                    raise interrupt.error(self.out, position.epoch + 1, position.batch, total)
            recovery.look(self)
        self.close_epoch(stage)

    def batches(self, skip: int) -> Iterator[Batch]:
        """The batches of the epoch under way, without the first `skip`."""
        size, length = self.settings.batch_size, self.task.length
        return batches(self.train, size, length, seed=self.seed, epoch=self.position.epoch, skip=skip)

    def regime(self, epoch: int) -> Regime:
        """How an epoch is trained."""
        return Regime.of(self.algorithm.stage(epoch), self.settings)

    def enter_stage(self, regime: Regime) -> None:
        """Where another regime begins: with a rate of its own, from the best model so far with a fresh optimiser."""
        epoch = self.position.epoch
        if epoch and self.regime(epoch - 1) == regime:
            return
        if regime.rate is not None:
            if epoch:
                self.load_best()
            self.begin_anew(regime.rate)
            self.position.rollbacks = 0
        if regime.remembers:
            self.algorithm.remember(self.model)

    def begin_anew(self, rate: float) -> None:
        self.step.optimizer = self.step.fresh(rate)
        self.position.rate = rate

    def close_epoch(self, stage: Stage) -> None:
        """Validate, keep the model if it is the best, log, decay the rate, lose patience, save if it is time."""
        position = self.position
        with self.clock.time("validate"):
            ppl = perplexity(self.model, self.task, self.task.valid, self.decode_batch)
            valid = evaluate(self.model, self.task, self.task.valid, *self.metrics, batch_size=self.decode_batch)
        position.epoch, position.batch = position.epoch + 1, 0
        better = (valid.score, -ppl) > (position.best, -position.best_perplexity)
        if better:
            position.best, position.best_perplexity, position.best_epoch = valid.score, ppl, position.epoch
            position.rollbacks = 0
            self.best = copied(self.model)
        train = self.means.values()
        event: Event = {
            "event": "epoch",
            "epoch": position.epoch,
            "stage": stage.label,
            "rate": position.rate,
            "train": train,
            "valid": {"perplexity": ppl} | {each.metric: each.score for each in valid.scored},
            "best": better,
            "symptoms": symptoms(train),
            "seconds": self.clock.split(),
            "samples": self.samples(valid.hypotheses),
        }
        recovery.log_epoch(self, event)
        self.log.write_samples()
        self.progress.closed(event)
        regime = self.regime(position.epoch - 1)
        self.decay(math.log(ppl), regime)
        self.means.clear()
        self.clock.seconds.clear()
        lost = recovery.lose_patience(self, better, regime.patience)
        (due,) = ranks.agreed(self.due)
        if lost or due or self.finished or position.epoch == 1:
            self.save()

    def decay(self, entropy: float, regime: Regime) -> None:
        """The released rule. The run ends below min_lr, unless a stage with a rate of its own is still to come."""
        position, least = self.position, self.settings.min_lr
        if regime.decays:
            before = position.rate
            position.rate = decayed(before, entropy, position.entropy, self.settings.decay)
            if position.rate < min(before, least):  # not where it began below
                waits = any(self.regime(epoch).rate is not None for epoch in range(position.epoch, self.epochs))
                if waits:
                    position.rate = min(before, least)
                else:
                    self.end(f"the rate {position.rate:g} is below training.min_lr = {least:g}")
        position.entropy = min(position.entropy, entropy)
        self.step.rate = position.rate

    def end(self, why: str) -> None:
        """Train no further epochs, and say so."""
        self.position.over = True
        self.log.write({"event": "end", "epoch": self.position.epoch, "why": why})
        self.progress.note(f"  {why}: the run ends after {self.position.epoch} of {self.epochs} epochs")

    def samples(self, hypotheses: list[str]) -> list[dict[str, str]]:
        chosen = self.task.valid.meta[: self.settings.examples]
        return [
            {"source": str(meta["source"]), "reference": meta["references"][0], "hypothesis": hypothesis}
            for meta, hypothesis in zip(chosen, hypotheses, strict=False)
        ]

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self.saved > max(60 * self.settings.save_minutes, self.saving / SHARE)

    def save(self) -> None:
        """The best model, if there is a new one, and the checkpoint `last`: all that the rest of the run depends on."""
        began = time.monotonic()
        self.save_best()
        self.position.seconds, self.position.counts = self.clock.so_far(), self.means.counts.tolist()
        tensors = {
            **checkpoint.prefixed("model", self.model.state_dict()),
            **checkpoint.prefixed("algorithm", self.algorithm.state_dict()),
            **checkpoint.prefixed("optimizer", checkpoint.optimizer_tensors(self.step.optimizer)),
            **checkpoint.prefixed("means", {SEPARATOR.join(k): v for k, v in self.means.sums.items()}),
            **checkpoint.prefixed("random", noise.states(self.device)),
        }
        if self.step.own_optimizer:
            tensors |= checkpoint.prefixed("own", checkpoint.optimizer_tensors(self.step.own_optimizer))
        if ranks.first():
            checkpoint.save(self.out / "last", tensors, asdict(self.position), keep=self.settings.keep)
        ranks.wait()  # torchrun ends all processes with the first that ends
        self.saved = time.monotonic()
        self.saving = self.saved - began

    def save_best(self) -> None:
        if self.best is not None:
            state = {"epoch": self.position.best_epoch, "score": self.position.best}
            if ranks.first():
                checkpoint.save(self.out / "best", self.best, state)
            self.best = None

    def resume(self) -> None:
        folder = self.out / "last"
        tensors, state = ranks.from_first(lambda: checkpoint.load(folder))
        self.position = restored(state, folder)
        checkpoint.load_weights(self.model, checkpoint.under("model", tensors), folder)
        if checkpoint.under("algorithm.reference", tensors):
            self.algorithm.remember(self.model)  # makes room for what is loaded now
        checkpoint.load_weights(self.algorithm, checkpoint.under("algorithm", tensors), folder)
        checkpoint.load_optimizer(self.step.optimizer, checkpoint.under("optimizer", tensors), folder)
        if self.step.own_optimizer:
            checkpoint.load_optimizer(self.step.own_optimizer, checkpoint.under("own", tensors), folder)
        means = checkpoint.under("means", tensors)
        sums = {k: torch.zeros(3, len(k.split(SEPARATOR)), dtype=torch.double) for k in means}
        checkpoint.require_like(means, sums, folder)
        self.means.sums = {tuple(k.split(SEPARATOR)): v.to(self.device) for k, v in means.items()}
        self.means.counts.copy_(torch.tensor(self.position.counts))
        self.step.rate = self.position.rate
        self.clock.seconds = dict(self.position.seconds)
        self.log.keep_before(self.position.epoch + 1)
        if ranks.first():
            done, best = self.position.epoch, self.out / "best"
            checkpoint.discard(best, lambda state: restored_best(state, best).epoch > done)  # it will come again
            if lacking := self.log.lacking(done):
                what = f"lacks {len(lacking)} of {done} epochs that are done, the first is {lacking[0]}"
                warnings.warn(f"{self.log.path} {what}; if you have a copy, stop and put it back", stacklevel=2)
        if not noise.restore(checkpoint.under("random", tensors), self.device, folder):
            self.renew_noise()

    def renew_noise(self) -> None:
        """Seed anew, by where the run is: nobody has the generators that drew so far."""
        done = self.position.epoch * batch_count(self.task.train, self.settings.batch_size) + self.position.batch
        torch.manual_seed(ranks.own_seed(self.seed, moment=done + 1))
        self.progress.note(f"{self.out} was saved by another number of processes: same data, other noise from here on")

    def load_best(self) -> None:
        self.save_best()
        folder = self.out / "best"
        tensors, state = ranks.from_first(lambda: checkpoint.load(folder))
        found = restored_best(state, folder).epoch
        if found < self.position.best_epoch:
            raise RunError(f"{checkpoint.lost(folder, found, self.position.best_epoch)}; put it back, or train anew")
        checkpoint.load_weights(self.model, tensors, folder)


def copied(model: SequenceModel) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}
