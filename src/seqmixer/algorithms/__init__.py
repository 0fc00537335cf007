"""How a model learns: (model, batch, epoch) to a loss. ALGORITHMS lists them: each is a file, and a line here."""

from collections.abc import Mapping

from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.algorithms.baselines import LeaveOneOut, LinearBaseline, StepBaseline
from seqmixer.algorithms.best import BestOfN
from seqmixer.algorithms.brio import Brio
from seqmixer.algorithms.dad import Dad
from seqmixer.algorithms.diagnostics import symptoms
from seqmixer.algorithms.e2e import E2E
from seqmixer.algorithms.groups import GroupLoss, GroupSettings
from seqmixer.algorithms.margins import MaxMargin, SequenceNll, SoftmaxMargin
from seqmixer.algorithms.mixer import Mixer
from seqmixer.algorithms.preferences import Cpo, Dpo
from seqmixer.algorithms.prefix import Prefix
from seqmixer.algorithms.reinforce import Reinforce
from seqmixer.algorithms.risk import ExpectedRisk
from seqmixer.algorithms.sampled import Learnt, Sampled, SampledSettings
from seqmixer.algorithms.xent import Xent

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    "xent": Xent,
    "dad": Dad,
    "e2e": E2E,
    "reinforce": Reinforce,
    "mixer": Mixer,
    "mrt": ExpectedRisk,
    "seq-nll": SequenceNll,
    "max-margin": MaxMargin,
    "softmax-margin": SoftmaxMargin,
    "brio": Brio,
    "dpo": Dpo,
    "cpo": Cpo,
    "best-of-n": BestOfN,
}

__all__ = [
    "ALGORITHMS",
    "E2E",
    "Algorithm",
    "AlgorithmSettings",
    "BestOfN",
    "Brio",
    "Candidates",
    "Cpo",
    "Dad",
    "Dpo",
    "ExpectedRisk",
    "GroupLoss",
    "GroupSettings",
    "Learnt",
    "LeaveOneOut",
    "LinearBaseline",
    "MaxMargin",
    "Mixer",
    "Parts",
    "Prefix",
    "Reinforce",
    "Sampled",
    "SampledSettings",
    "SequenceNll",
    "SoftmaxMargin",
    "Stage",
    "StepBaseline",
    "Xent",
    "symptoms",
]
