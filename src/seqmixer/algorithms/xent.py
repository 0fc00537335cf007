"""Cross entropy training, XENT (Sec. 3.1.1): predict the next word of the reference from its words so far."""

from torch import Tensor

from seqmixer.algorithms.algorithm import Algorithm, Stage
from seqmixer.decoding import shift
from seqmixer.losses import cross_entropy
from seqmixer.types import Batch, Loss, SequenceModel


class Xent(Algorithm):
    """Eq. 6 with the reference as input and as target."""

    def forward(self, model: SequenceModel, batch: Batch, epoch: int) -> Loss:
        return reference_loss(model, batch, inputs=batch.target)

    def stage(self, epoch: int) -> Stage:
        return Stage("XENT", sampled=False)


def reference_loss(model: SequenceModel, batch: Batch, inputs: Tensor) -> Loss:
    """Eq. 6 towards the reference, whatever words (B, T) were fed."""
    o = model.logits(model.unroll(shift(inputs), model.encode(batch.source)))  # (B, T, V)
    return word_loss(o, batch)


def word_loss(o: Tensor, batch: Batch) -> Loss:
    """Eq. 6 of given logits (B, T, V), and the same per word for the log."""
    total = cross_entropy(o, batch.target, batch.mask)
    return Loss(total / len(batch), {"xent": total.detach() / batch.mask.sum()})
