"""Small models of every kind, batches for them, and every algorithm: for the tests of the fast path."""

import pytest
import torch

from seqmixer.algorithms import (
    E2E,
    ActorCritic,
    BestOfN,
    Brio,
    Cpo,
    Critic,
    Dad,
    Dpo,
    ExpectedRisk,
    Gold,
    GreedyReward,
    GroupMean,
    Grpo,
    LeaveOneOut,
    LinearBaseline,
    MaxMargin,
    Mixer,
    Ppo,
    Raml,
    Reinforce,
    Rloo,
    Scst,
    SequenceNll,
    SoftmaxMargin,
    Xent,
)
from seqmixer.models import (
    AttentiveEncoder,
    Blueprint,
    ElmanCell,
    GRUCell,
    ImageEncoder,
    ImageMemory,
    LSTMCell,
    NoEncoder,
    Recurrent,
    TextMemory,
    Transformer,
    initialise,
)
from seqmixer.rewards import sentence_bleu
from seqmixer.types import EOS, PAD, Batch

B, T, N, V, D, H = 5, 6, 8, 11, 6, 8
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]
CELLS = {"elman": ElmanCell, "lstm": LSTMCell, "gru": GRUCell}
MODELS = [
    *(f"{cell}-{source}" for cell in (*CELLS, "transformer") for source in ("text", "image", "nothing")),
    "elman-text-released",
    "lstm-text-released",
]
ALGORITHMS = {
    "xent": lambda features, reward: Xent(),
    "dad": lambda features, reward: Dad([0.5]),
    "e2e": lambda features, reward: E2E([2], k=3),
    "xent-smoothed": lambda features, reward: Xent(smoothing=0.1, unlikelihood=0.5),
    "raml": lambda features, reward: Raml(0.85, 9),  # of fewer words than V: other tasks have no more
    "gold": lambda features, reward: Gold(),
    "reinforce": lambda features, reward: Reinforce(reward, LinearBaseline(features)),
    "mixer": lambda features, reward: Mixer(reward, LinearBaseline(features), T, [4, 4, 4, 2]),
    "mixer-samples": lambda features, reward: Mixer(reward, LeaveOneOut(), T, [4, 4, 4, 2], samples=3),
    "scst": lambda features, reward: Scst(reward, GreedyReward(), samples=2),
    "rloo-shaped": lambda features, reward: Rloo(reward, LeaveOneOut(), samples=3, shaped=True),
    "grpo": lambda features, reward: Grpo(reward, GroupMean(), samples=3),
    "gspo": lambda features, reward: Grpo(reward, GroupMean(), samples=3, updates=2, clip=0.01, ratio="sentence"),
    "ppo": lambda features, reward: Ppo(reward, LinearBaseline(features), updates=3),
    "actor-critic": lambda features, reward: ActorCritic(reward, Critic(V, H, T), shaped=True),
    "mrt": lambda features, reward: ExpectedRisk(reward, samples=3, alpha=0.005, token_weight=0.1),
    "mrt-distinct": lambda features, reward: ExpectedRisk(reward, samples=3, alpha=0.005, candidates="distinct"),
    "mrt-beam": lambda features, reward: ExpectedRisk(reward, samples=3, alpha=0.005, candidates="beam"),
    "seq-nll": lambda features, reward: SequenceNll(reward, samples=3, length_penalty=1.0),
    "max-margin": lambda features, reward: MaxMargin(reward, samples=3, margin=1.0),
    "softmax-margin": lambda features, reward: SoftmaxMargin(reward, samples=3, margin=1.0),
    "brio": lambda features, reward: Brio(reward, samples=3, rank_margin=0.1, length_penalty=1.0),
    "dpo": lambda features, reward: Dpo(reward, samples=3, beta=0.1),
    "cpo": lambda features, reward: Cpo(reward, samples=3, beta=0.1),
    "best-of-n": lambda features, reward: BestOfN(reward, samples=3, with_reference=True),
}
OF_THE_PAPER = ("xent", "dad", "e2e", "reinforce", "mixer", "mixer-samples")
PAIRS = [  # every algorithm of the paper with every model; what the others add to these is the same for all models
    (model, algorithm)
    for model in MODELS
    for algorithm in ALGORITHMS
    if algorithm in OF_THE_PAPER or model in ("lstm-text", "transformer-text")
]


def network(name, dropout=0.0):
    """A model of MODELS, the same each time."""
    kind, source, *reading = name.split("-")
    torch.manual_seed(3)
    if kind == "transformer":
        blueprint = Blueprint(hidden=H, heads=2, feedforward=12, layers=2, dropout=dropout, rotary=True)
        memory = {"text": TextMemory(blueprint, V, N), "image": ImageMemory(blueprint, D), "nothing": None}[source]
        model = Transformer(blueprint, memory, V, T)
    else:
        encoder = {"text": AttentiveEncoder(V, H, N), "image": ImageEncoder(D, H), "nothing": NoEncoder()}[source]
        model = Recurrent(CELLS[kind], encoder, V, H, dropout=dropout, released=bool(reading))
    initialise(model, 0.4)
    return model


def sentences(rows, width):
    """Random words, ended at random lengths."""
    steps, end = torch.arange(width), torch.randint(1, width, (rows, 1))
    return torch.randint(4, V, (rows, width)).masked_fill(steps == end, EOS).masked_fill(steps > end, PAD)


def batch_for(name, seed=0):
    """A batch for a model of MODELS."""
    torch.manual_seed(100 + seed)
    target = sentences(B, T)
    references = torch.stack([target, sentences(B, T)], 1)  # (B, 2, T)
    source = name.split("-")[1]
    given = {"text": sentences(B, N), "image": torch.randn(B, D), "nothing": torch.zeros(B, 0, dtype=torch.long)}
    return Batch(given[source], target, references)


def algorithm(name, model, reward=sentence_bleu):
    return ALGORITHMS[name](model.features, reward)
