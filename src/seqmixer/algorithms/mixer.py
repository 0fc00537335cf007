"""Mixed Incremental Cross-Entropy Reinforce, MIXER (Sec. 3.2.2, Algorithm 1)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqmixer.algorithms.algorithm import Algorithm, Stage
from seqmixer.algorithms.measures import measures
from seqmixer.algorithms.xent import XENT, reference_loss
from seqmixer.decoding import generate, sample, shift
from seqmixer.losses import baseline_error, cross_entropy, policy_gradient
from seqmixer.rewards import begin
from seqmixer.schedules import at
from seqmixer.types import PAD, Batch, Generate, Loss, Reward, Rollout, SequenceModel


class Mixer(Algorithm):
    """XENT on the first s words, REINFORCE on the rest; s falls from T, where all is XENT, by Delta at each stage."""

    def __init__(
        self,
        reward: Reward,
        baseline: nn.Module,
        length: int,
        forced: Sequence[int],
        *,
        xent_weight: float = 0.5,
        reinforce_weight: float = 0.5,
        overlap: bool = False,
        generate: Generate = generate,
        kl: float = 0.0,
    ) -> None:
        super().__init__(reward, generate, kl)
        self.baseline = baseline
        self.length = length  # T
        self.forced = forced  # by epoch: s
        self.xent_weight = xent_weight  # in the mixed stages; pure XENT has weight 1, as released
        self.reinforce_weight = reinforce_weight
        self.overlap = overlap  # as released: word s is sampled, and trained by both losses

    def loss(self, model: SequenceModel, batch: Batch, stage: Stage, dial: Tensor) -> Loss:
        assert self.reward is not None
        if stage is XENT:
            return reference_loss(model, batch, inputs=batch.target)
        s = dial.long()  # ()
        start = (s - 1).clamp(min=0) if self.overlap else s  # the first word the model writes
        steps = torch.arange(self.length, device=batch.target.device)  # (T,)
        given = (steps < start).expand_as(batch.target)  # (B, T)
        words = self.generate(model, batch.source, batch.target, given, sample)  # w_1..w_s w^g_{s+1}..w^g_T: (B, T)
        free = ~given & (words != PAD)  # (B, T) true on the REINFORCE part
        pending = begin(self.reward, Rollout(words, batch.references, start, batch.source, batch.meta))

        h = model.unroll(shift(words), model.encode(batch.source))  # (B, T, H)
        log_p = model.log_prob(h, words)  # (B, T)
        drift, kl = self.drift(batch.source, words, log_p, free)  # (B, T)
        r = pending()  # (B,)
        r_bar = self.baseline(h)  # (B, T)

        taught = model.log_prob(h, batch.target) if self.overlap else log_p  # else words are the target's up to s
        xent = cross_entropy(taught, (steps < s) & batch.mask)
        reinforce = policy_gradient(log_p, r.unsqueeze(-1) - drift - r_bar, free)
        mixed = self.xent_weight * xent + self.reinforce_weight * reinforce
        value = (mixed + baseline_error(r_bar, r, free)) / len(batch)
        return Loss(value, measures(log_p, words, free, r, r_bar, batch) | kl)

    def stage(self, epoch: int) -> Stage:
        s = at(self.forced, epoch)
        if s >= self.length:
            return XENT
        return Stage(f"MIXER, XENT on the first s = {s} words, REINFORCE on the rest", True, "mixer", s)
