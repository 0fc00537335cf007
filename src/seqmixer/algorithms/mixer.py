"""Mixed Incremental Cross-Entropy Reinforce, MIXER (Sec. 3.2.2, Algorithm 1)."""

from collections.abc import Sequence

from torch import Tensor, nn

from seqmixer.algorithms.algorithm import Stage
from seqmixer.algorithms.paid import Paid, steps_of
from seqmixer.algorithms.xent import XENT, reference_loss
from seqmixer.decoding import generate
from seqmixer.losses import cross_entropy
from seqmixer.schedules import at
from seqmixer.types import Batch, Generate, Loss, Reward, SequenceModel


class Mixer(Paid):
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
        samples: int = 1,
    ) -> None:
        super().__init__(reward, baseline, generate, kl, samples)
        self.length = length  # T
        self.forced = forced  # by epoch: s
        self.xent_weight = xent_weight  # in the mixed stages; pure XENT has weight 1, as released
        self.reinforce_weight = reinforce_weight
        self.overlap = overlap  # as released: word s is sampled, and trained by both losses

    def loss(self, model: SequenceModel, batch: Batch, stage: Stage, dial: Tensor) -> Loss:
        if stage is XENT:
            return reference_loss(model, batch, inputs=batch.target)
        s = dial.long()  # ()
        start = (s - 1).clamp(min=0) if self.overlap else s  # the first word the model writes
        written = self.write(model, batch, start)
        batch = written.batch

        # up to s the words are the target's, unless the model wrote word s
        taught = model.log_prob(written.h, batch.target) if self.overlap else written.log_p
        xent = cross_entropy(taught, (steps_of(batch) < s) & batch.mask)
        mixed = self.xent_weight * xent + self.reinforce_weight * written.reinforce
        return Loss((mixed + written.error) / len(batch), written.metrics)

    def stage(self, epoch: int) -> Stage:
        s = at(self.forced, epoch)
        if s >= self.length:
            return XENT
        return Stage(f"MIXER, XENT on the first s = {s} words, REINFORCE on the rest", True, "mixer", s)
