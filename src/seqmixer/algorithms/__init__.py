"""How a model learns: (model, batch, epoch) to a loss."""

from seqmixer.algorithms.algorithm import Algorithm, Stage
from seqmixer.algorithms.baselines import LeaveOneOut, LinearBaseline, StepBaseline
from seqmixer.algorithms.dad import Dad
from seqmixer.algorithms.e2e import E2E
from seqmixer.algorithms.measures import symptoms
from seqmixer.algorithms.mixer import Mixer
from seqmixer.algorithms.reinforce import Reinforce
from seqmixer.algorithms.xent import Xent

__all__ = [
    "E2E",
    "Algorithm",
    "Dad",
    "LeaveOneOut",
    "LinearBaseline",
    "Mixer",
    "Reinforce",
    "Stage",
    "StepBaseline",
    "Xent",
    "symptoms",
]
