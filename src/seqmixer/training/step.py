"""One update of the parameters: loss, backward, clipping, optimisers. On a CUDA device it is one captured program."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seqmixer.algorithms import Algorithm, Candidates, Stage
from seqmixer.config import TrainingConfig
from seqmixer.errors import RunError
from seqmixer.kernels import Programs, plain, set_matmul_precision
from seqmixer.parallel import ranks
from seqmixer.training.averages import Averages
from seqmixer.training.clock import Clock
from seqmixer.types import Batch, Loss, SequenceModel, tally


class Step:
    """step(batch, epoch): one update; its tallies are added to `averages`.

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
        self.averages = Averages(self.device)
        self.scheduled = torch.zeros((), device=self.device)
        self.objective = distributed(Objective(model, algorithm))
        self.programs = Programs(report)
        if ranks.many() and settings.fast and self.device.type == "cuda":
            report("not captured as one program, which is slower: in every step the processes wait for one another")
        set_matmul_precision(settings.precision)
        self.optimizer = self.fresh(settings.lr)
        own = [parameter for parameter in algorithm.parameters() if parameter.requires_grad]
        self.own_optimizer = self.adam(own, settings.baseline_lr) if own else None

    def fresh(self, rate: float) -> torch.optim.Optimizer:
        """A new optimiser of the model, without state."""
        self.programs.forget()  # they update the state of the old one
        parameters = list(self.model.parameters())
        if self.settings.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=self.changeable(rate), fused=True)
        return self.adam(parameters, rate)

    def adam(self, parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.changeable(rate), fused=True, capturable=self.device.type == "cuda")

    def changeable(self, rate: float) -> float | Tensor:
        """A rate that a captured program reads in each replay: a tensor on CUDA."""
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
        self.scheduled.fill_(stage.scheduled)
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
            candidates = self.algorithm.collect(self.model, mine, stage, self.scheduled)
        updates = self.algorithm.updates if candidates is not None else 1
        logged = [self.learn(mine, candidates, stage, len(batch)) for _ in range(updates)]
        self.averages.add({name: torch.stack([each[name] for each in logged]).sum(0) for name in logged[0]})

    def learn(self, mine: Batch, candidates: Candidates | None, stage: Stage, sentences: int) -> dict[str, Tensor]:
        """One update of the parameters from this rank's share of a batch.  -> the tallies of all ranks' shares

        DDP averages gradients over the ranks: a loss that is weighted by how many sentences this rank has of all that
        the ranks have, times the number of ranks, gives the gradient of the mean over the batch.
        """
        copies = ranks.copies(sentences)
        weight = len(mine) * ranks.world() / (sentences * copies)
        with self.clock.time("forward"), self.precision():
            loss: Loss = self.objective(mine, candidates, stage, self.scheduled)
        with self.clock.time("backward"):
            self.model.zero_grad(set_to_none=True)
            self.algorithm.zero_grad(set_to_none=True)
            with ranks.communication():
                (loss.value if weight == 1 else weight * loss.value).backward()
        with self.clock.time("update"):
            tallies = torch.stack([*loss.metrics.values(), len(mine) * tally(loss.value.detach())])  # (M, 2)
            metrics = dict(zip([*loss.metrics, "loss"], ranks.total(tallies) / copies, strict=True))
            norm = self.apply(metrics["loss"][0])
        return {**metrics, "gradient": tally(norm)}

    def precision(self) -> torch.autocast:
        """The precision of matrix products in losses."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bfloat16")

    def apply(self, loss: Tensor) -> Tensor:
        """Update, gradients re-scaled where their norm is above `clip`; not at all where a number is bad.  -> the norm

        Both are given to the optimiser as tensors, without synchronisation; weights never become non-finite.
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


class Objective(nn.Module):
    """The loss of an algorithm as one module with all parameters: what DDP wraps."""

    def __init__(self, model: SequenceModel, algorithm: Algorithm) -> None:
        super().__init__()
        self.model, self.algorithm = model, algorithm
        self.unused = nn.Parameter(torch.zeros((), device=next(model.parameters()).device))  # see `distributed`

    def forward(self, batch: Batch, candidates: Candidates | None, stage: Stage, scheduled: Tensor) -> Loss:
        return self.algorithm.loss(self.model, batch, candidates, stage, scheduled)


def distributed(objective: Objective) -> nn.Module:
    """With several ranks, wrapped so that they begin with the weights of the first, and backward averages gradients.

    Unused parameters are looked for in each step: XENT has no gradient for the baseline. It also keeps the layout of
    the messages from step to step, so that a resumed run adds in the same order and ends with the same bits. Where all
    are used, DDP warns that it looked in vain: one parameter never is. No buffer changes while a model is trained.
    """
    if not ranks.many():
        return objective
    buffers = [name for name, _ in objective.named_buffers()]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(objective, buffers)
    with ranks.communication():  # it compares the parameters of all ranks
        return DistributedDataParallel(objective, find_unused_parameters=True)


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
