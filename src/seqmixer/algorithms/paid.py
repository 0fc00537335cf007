"""What REINFORCE and MIXER have in common: the model writes, is paid, and learns from the difference (Eqs. 9-11)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqmixer.algorithms.algorithm import Algorithm
from seqmixer.algorithms.measures import measures, over
from seqmixer.algorithms.reference import divergence, drift_to_go, frozen, reference_log_prob
from seqmixer.decoding import generate, read, sample, shift
from seqmixer.errors import ConfigError
from seqmixer.losses import baseline_error, policy_gradient
from seqmixer.rewards import begin
from seqmixer.types import PAD, Batch, Generate, Reward, SequenceModel


@dataclass(frozen=True)
class Written:
    """What the model wrote, and what it learns from it."""

    batch: Batch  # what it was written for: each sentence k times in a row
    h: Tensor  # (B, T, H)
    log_p: Tensor  # (B, T) of the words, given or written
    reinforce: Tensor  # () Eq. 11, summed over the batch
    error: Tensor  # () of the baseline, summed over the batch
    metrics: dict[str, Tensor]


def steps_of(batch: Batch) -> Tensor:
    """0, 1, ... T - 1.  (T,)"""
    return torch.arange(batch.target.shape[1], device=batch.target.device)


class Paid(Algorithm):
    """An algorithm that pays the model for words of its own."""

    reward: Reward
    reference: SequenceModel | None  # what the KL term holds the model to

    def __init__(
        self, reward: Reward, baseline: nn.Module, generate: Generate = generate, kl: float = 0.0, samples: int = 1
    ) -> None:
        super().__init__(generate)
        self.reward = reward
        self.baseline = baseline
        self.kl = kl  # beta: what a nat of drift from the reference costs, in units of reward
        self.samples = samples  # k: how many sentences are written for each source
        self.register_module("reference", None)

    def remember(self, model: SequenceModel) -> None:
        if self.kl and self.reference is None:
            self.reference = frozen(model)

    def write(self, model: SequenceModel, batch: Batch, start: int | Tensor = 0) -> Written:
        """Let the model go on after the first `start` words of the target, and pay it for what it wrote."""
        source, batch = batch.source, batch.repeat(self.samples)
        given = (steps_of(batch) < start).expand_as(batch.target)  # (B, T)
        words = self.generate(model, source, batch.target, given, sample)  # w_1..w_s w^g_{s+1}..w^g_T: (B, T)
        free = ~given & (words != PAD)  # (B, T) what it wrote, up to and including EOS
        pending = begin(self.reward, batch.rollout(words, start))

        h = model.unroll(shift(words), read(model, source, len(words)))  # (B, T, H)
        log_p = model.log_prob(h, words)  # (B, T)
        drift, kl = self.drift(source, words, log_p, free)  # (B, T)
        r = pending()  # (B,)
        r_bar = self.baseline(h, r.view(-1, self.samples))  # (B, T)

        reinforce = policy_gradient(log_p, r.unsqueeze(-1) - drift - r_bar, free)
        metrics = measures(log_p, words, free, r, r_bar, batch, self.samples) | kl
        return Written(batch, h, log_p, reinforce, baseline_error(r_bar, r, free), metrics)

    def drift(self, source: Tensor, words: Tensor, log_p: Tensor, free: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """What each step pays for the KL to the reference, (B, T), and `kl` for the log; without a KL term nothing."""
        if not self.kl:
            return log_p.new_zeros(()), {}
        if self.reference is None:
            raise ConfigError(f"kl = {self.kl:g}, but there is no model to be held to; call remember(model) first")
        log_ref = reference_log_prob(self.reference, source, words)  # (B, T)
        return self.kl * drift_to_go(log_p, log_ref, free), {"kl": over(divergence(log_p, log_ref, free), free.any(-1))}
