"""One update of the parameters: loss, backward, clipping, optimisers. On a CUDA device it is one captured program."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from seqmixer.algorithms import Algorithm, Candidates, Stage
from seqmixer.config import TrainingConfig
from seqmixer.errors import RunError
from seqmixer.kernels import Programs, multiply_in, plain
from seqmixer.parallel import ranks
from seqmixer.training.clock import Clock
from seqmixer.training.means import Means
from seqmixer.types import Batch, Loss, SequenceModel, tally


class Step:
    """step(batch, epoch): one update; what is worth logging is added to `means`.

    The algorithm's own parameters (the baseline) have an Adam of their own: its steps are bounded whatever the scale of
    the hidden state, so the regressor cannot diverge, and its gradient does not count when the model's is clipped.
    """

    def __init__(
        self,
        model: SequenceModel,
        algorithm: Algorithm,
        settings: TrainingConfig,
        clock: Clock | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.model, self.algorithm, self.settings, self.clock = model, algorithm, settings, clock or Clock()
        self.device = next(model.parameters()).device
        self.means = Means(self.device)
        self.dial = torch.zeros((), device=self.device)
        self.programs = Programs(report)
        if ranks.many() and settings.fast and self.device.type == "cuda":
            report("not captured as one program, which is slower: in every step the processes wait for one another")
        multiply_in(settings.precision)
        self.optimizer = self.fresh(settings.lr)
        own = [parameter for parameter in algorithm.parameters() if parameter.requires_grad]
        self.own_optimizer = self.adam(own, settings.baseline_lr) if own else None

    def fresh(self, rate: float) -> torch.optim.Optimizer:
        """A new optimiser of the model, without memory."""
        self.programs.forget()  # they update what the old one remembers
        parameters = list(self.model.parameters())
        if self.settings.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=self.changeable(rate), fused=True)
        return self.adam(parameters, rate)

    def adam(self, parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.changeable(rate), fused=True, capturable=self.device.type == "cuda")

    def changeable(self, rate: float) -> float | Tensor:
        """A rate that a captured program reads anew each time."""
        return torch.tensor(rate, device=self.device) if self.device.type == "cuda" else rate

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @rate.setter
    def rate(self, value: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)
            else:
                group["lr"] = value

    def __call__(self, batch: Batch, epoch: int) -> None:
        stage = self.algorithm.stage(epoch)
        self.dial.fill_(stage.dial)
        if not self.settings.fast:
            with plain():
                self.update(batch, epoch)
        elif self.device.type != "cuda" or ranks.many():
            self.update(batch, epoch)
        else:
            run = partial(self.captured_update, batch, epoch)
            self.programs(stage.program, run, batch.source, batch.target, batch.references)

    def captured_update(self, batch: Batch, epoch: int, source: Tensor, target: Tensor, references: Tensor) -> None:
        self.update(Batch(source, target, references, batch.meta), epoch)

    def update(self, batch: Batch, epoch: int) -> None:
        """Collect once, learn `algorithm.updates` times; a batch is logged once, with the sums of its tallies."""
        mine, stage = ranks.share(batch), self.algorithm.stage(epoch)
        with self.clock.time("forward"), self.precision():
            candidates = self.algorithm.collect(self.model, mine, stage, self.dial)
        updates = self.algorithm.updates if candidates is not None else 1
        logged = [self.learn(mine, candidates, stage, len(batch)) for _ in range(updates)]
        self.means.add({name: torch.stack([each[name] for each in logged]).sum(0) for name in logged[0]})

    def learn(self, mine: Batch, candidates: Candidates | None, stage: Stage, sentences: int) -> dict[str, Tensor]:
        """One update of the parameters from this rank's share of a batch.  -> the tallies of the whole batch"""
        with self.clock.time("forward"), self.precision():
            loss = self.algorithm.loss(self.model, mine, candidates, stage, self.dial)
        with self.clock.time("backward"):
            self.model.zero_grad(set_to_none=True)
            self.algorithm.zero_grad(set_to_none=True)
            loss.value.backward()
        with self.clock.time("update"):
            metrics = self.exchange(loss, len(mine), sentences)
            norm = self.apply(metrics["loss"][0])
        return {**metrics, "gradient": tally(norm)}

    def exchange(self, loss: Loss, mine: int, sentences: int) -> dict[str, Tensor]:
        """Bring gradients, loss and metrics of all processes together: those of the whole batch.  -> loss and metrics

        Each has the mean over the sentences of its own share, and counts by how many these are.
        """
        tallies = torch.stack([*loss.metrics.values(), mine * tally(loss.value.detach())])  # (M, 2)
        learnt = [p for module in (self.model, self.algorithm) for p in module.parameters() if p.grad is not None]
        gradients = [p.grad for p in learnt if p.grad is not None]
        *means, shares = ranks.average([*gradients, tallies / mine], mine)
        for parameter, gradient in zip(learnt, means, strict=True):
            parameter.grad = gradient
        return dict(zip([*loss.metrics, "loss"], sentences * shares, strict=True))

    def precision(self) -> torch.autocast:
        """What matrices are multiplied in while losses are computed."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bfloat16")

    def apply(self, loss: Tensor) -> Tensor:
        """Update, gradients re-scaled where their norm is above `clip`; not at all where a number is bad.  -> the norm

        Both are told to the optimiser as tensors: nobody waits for the device, and broken weights never come about.
        """
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        bad = (~(norm + loss).isfinite()).float()
        self.optimizer.grad_scale = (norm / self.settings.clip).clamp(min=1)  # type: ignore[attr-defined]
        for optimizer in (self.optimizer, self.own_optimizer):
            if optimizer is not None:
                optimizer.found_inf = bad  # type: ignore[attr-defined]
                optimizer.step()
        return norm


def device(name: str) -> torch.device:
    """The device of a setting; auto takes an accelerator if there is one."""
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        tried = torch.empty(1, device=name)
        tried.tolist()  # a device such as meta holds no numbers
        return tried.device
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0].replace("meta, ", "")
        raise RunError(f"training.device = {name!r} cannot be used here: {reason}") from None
