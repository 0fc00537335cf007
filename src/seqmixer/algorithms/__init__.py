"""How a model learns: (model, batch, epoch) to a loss. ALGORITHMS lists them: each is a file, and a line here."""

from collections.abc import Mapping

from seqmixer.algorithms.actor_critic import ActorCritic
from seqmixer.algorithms.algorithm import Algorithm, AlgorithmSettings, Candidates, Parts, Stage
from seqmixer.algorithms.baselines import GreedyReward, GroupMean, LeaveOneOut, LinearBaseline, StepBaseline
from seqmixer.algorithms.best import BestOfN
from seqmixer.algorithms.brio import Brio
from seqmixer.algorithms.clipped import ClippedGradient, ClippedSettings
from seqmixer.algorithms.critic import Critic
from seqmixer.algorithms.dad import Dad
from seqmixer.algorithms.diagnostics import symptoms
from seqmixer.algorithms.e2e import E2E
from seqmixer.algorithms.gold import Gold
from seqmixer.algorithms.groups import GroupLoss, GroupSettings
from seqmixer.algorithms.grpo import Grpo
from seqmixer.algorithms.margins import MaxMargin, SequenceNll, SoftmaxMargin
from seqmixer.algorithms.mixer import Mixer
from seqmixer.algorithms.policy import PolicyGradient, PolicySettings
from seqmixer.algorithms.ppo import Ppo
from seqmixer.algorithms.preferences import Cpo, Dpo
from seqmixer.algorithms.prefix import Prefix
from seqmixer.algorithms.raml import Raml
from seqmixer.algorithms.reinforce import Reinforce
from seqmixer.algorithms.risk import ExpectedRisk
from seqmixer.algorithms.rloo import Rloo
from seqmixer.algorithms.sampled import Learnt, Sampled, SampledSettings
from seqmixer.algorithms.scst import Scst
from seqmixer.algorithms.xent import Xent

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    "xent": Xent,
    "dad": Dad,
    "e2e": E2E,
    "raml": Raml,
    "gold": Gold,
    "reinforce": Reinforce,
    "mixer": Mixer,
    "scst": Scst,
    "rloo": Rloo,
    "grpo": Grpo,
    "ppo": Ppo,
    "actor-critic": ActorCritic,
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
    "ActorCritic",
    "Algorithm",
    "AlgorithmSettings",
    "BestOfN",
    "Brio",
    "Candidates",
    "ClippedGradient",
    "ClippedSettings",
    "Cpo",
    "Critic",
    "Dad",
    "Dpo",
    "ExpectedRisk",
    "Gold",
    "GreedyReward",
    "GroupLoss",
    "GroupMean",
    "GroupSettings",
    "Grpo",
    "Learnt",
    "LeaveOneOut",
    "LinearBaseline",
    "MaxMargin",
    "Mixer",
    "Parts",
    "PolicyGradient",
    "PolicySettings",
    "Ppo",
    "Prefix",
    "Raml",
    "Reinforce",
    "Rloo",
    "Sampled",
    "SampledSettings",
    "Scst",
    "SequenceNll",
    "SoftmaxMargin",
    "Stage",
    "StepBaseline",
    "Xent",
    "symptoms",
]
