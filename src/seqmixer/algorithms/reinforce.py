"""REINFORCE (Sec. 3.2.1): sample a sentence, make its words more likely if its reward beat the expected one."""

from torch import Tensor

from seqmixer.algorithms.algorithm import Stage
from seqmixer.algorithms.paid import Paid
from seqmixer.types import Batch, Loss, SequenceModel


class Reinforce(Paid):
    """Eqs. 9-11 on whole sentences. From a random model it does not train (Sec. 4.4): start from an XENT one."""

    def loss(self, model: SequenceModel, batch: Batch, stage: Stage, dial: Tensor) -> Loss:
        written = self.write(model, batch)
        return Loss((written.reinforce + written.error) / len(written.batch), written.metrics)

    def stage(self, epoch: int) -> Stage:
        return Stage("REINFORCE", sampled=True, program="reinforce")
