"""What test_ranks.py computes in one process, and torchrun in two: `together.py OUT` leaves OUT/RANK.safetensors."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from seqmixer.algorithms import (
    ActorCritic,
    Critic,
    Dpo,
    ExpectedRisk,
    GreedyReward,
    GroupMean,
    Grpo,
    LeaveOneOut,
    LinearBaseline,
    Mixer,
    Ppo,
    Reinforce,
    Scst,
    Xent,
)
from seqmixer.config import TrainingConfig
from seqmixer.data import batches, text_task
from seqmixer.decoding import generate, greedy
from seqmixer.evaluation import evaluate, perplexity
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.parallel import ranks
from seqmixer.rewards import BLEU, sentence_bleu
from seqmixer.training.step import Step
from seqmixer.types import PAD

SIZES = {4: 5, 3: 3, 1: 1}  # of first batches (even shares, uneven ones, fewer than ranks), by the batch size
WORDS = ["a", "b", "c", "d", "e"]


def task():
    sources = [" ".join(WORDS[(i * k) % 5] for k in range(1, 2 + i % 4)) for i in range(9)]
    pairs = sources, [[" ".join(reversed(source.split()))] for source in sources]
    return text_task("reverse", pairs, pairs, pairs, length=6)


def model(task):
    torch.manual_seed(3)
    encoder = AttentiveEncoder(len(task.source_vocab), 8, positions=8)
    made = Recurrent(LSTMCell, encoder, len(task.target_vocab), 8)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # so that gradients are large
    return made


def given(model, source, target, keep, choose):
    """The same words whoever writes them: nothing is drawn."""
    return generate(model, source, target, keep, greedy)


def cut_short(model, source, target, keep, choose):
    """The same again, but of the sentences for one source each has another length."""
    words = given(model, source, target, keep, choose)
    length = 1 + torch.arange(len(words)).remainder(3).unsqueeze(-1)  # (B, 1)
    return words.where(torch.arange(6) < length, PAD)


def algorithms(features):
    return {
        "xent": Xent(),
        "mixer": Mixer(sentence_bleu, LinearBaseline(features), 6, [3], generate=given),
        "reinforce": Reinforce(sentence_bleu, LinearBaseline(features), generate=given),
        "samples": Reinforce(sentence_bleu, LeaveOneOut(), generate=cut_short, samples=3),
        "scst": Scst(sentence_bleu, GreedyReward(), generate=cut_short, samples=2),
        "grpo": Grpo(sentence_bleu, GroupMean(), generate=cut_short, samples=3, updates=2, clip=0.05),
        "shaped": Reinforce(sentence_bleu, LeaveOneOut(), generate=cut_short, samples=3, shaped=True),
        "actor-critic": ActorCritic(sentence_bleu, Critic(9, 8, 6), generate=cut_short, samples=3, trace=0.5),
        "dpo": Dpo(sentence_bleu, generate=cut_short, samples=3, beta=0.5),
        "beam": ExpectedRisk(sentence_bleu, candidates="beam", samples=3, alpha=0.5, token_weight=0.2),
        "ppo": Ppo(sentence_bleu, LinearBaseline(features), generate=cut_short, samples=3, updates=2),
    }


def gradients(task):
    """Of one step of each algorithm, with what it logs."""
    for size, batch_size in SIZES.items():
        batch = next(batches(task.train, batch_size, task.length, seed=1, epoch=0))
        assert len(batch) == size
        for name in algorithms(8):
            net = model(task)
            algorithm = algorithms(net.features)[name]
            algorithm.set_reference(model(task))
            step = Step(net, algorithm, TrainingConfig(optimizer="sgd", lr=0.1))
            step(batch, 0)
            for module in (net, algorithm):
                for parameter, value in module.named_parameters():
                    if value.grad is not None:
                        yield f"gradient/{name}/{size}/{parameter}", value.grad.clone()
            for metric, mean in step.averages.values().items():
                if metric != "distinct" or name in (
                    "mixer",
                    "reinforce",
                ):  # of the pairs that one process sees; here some are equal
                    yield f"metric/{name}/{size}/{metric}", torch.tensor(mean, dtype=torch.double)


def scores(task):
    net = model(task)
    for size in (2, 4, 256):  # batches: more than processes, an odd number, and fewer
        result = evaluate(net, task, task.valid, BLEU, batch_size=size)
        yield f"score/{size}/statistics", result.statistics
        yield f"score/{size}/score", torch.tensor(result.score)
        yield f"score/{size}/perplexity", torch.tensor(perplexity(net, task, task.valid, size), dtype=torch.double)
        words = [word for text in result.hypotheses for word in [*text.split(), "|"]]
        yield f"score/{size}/words", torch.tensor([ord(word[0]) for word in words])


def exchanged():
    """What only several processes can show."""
    rank = ranks.rank()
    net = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(net.weight, rank + 5.0)
    Step(net, Xent(), TrainingConfig())
    yield "equal_weights", net.weight.detach().clone()
    yield "own_seed", torch.tensor([ranks.own_seed(7), ranks.own_seed(7, moment=3)])
    yield "agreed", torch.tensor(ranks.agreed(rank == 1, False, True))
    yield "gathered", torch.tensor(ranks.gathered(10 * rank))
    yield "from_first", torch.tensor(ranks.from_first(lambda: 3 + rank))
    yield "total", ranks.total(torch.tensor([1.0 + rank, 10.0 + 10 * rank]))
    yield "ratio", ranks.ratio(torch.tensor(3 * rank), torch.tensor(4 * rank))


def results(task):
    return {**dict(gradients(task)), **dict(scores(task))}


if __name__ == "__main__":
    torch.set_num_threads(1)
    ranks.start("cpu")
    found = {**results(task()), **dict(exchanged())}
    save_file(
        {name: value.contiguous() for name, value in found.items()}, Path(sys.argv[1]) / f"{ranks.rank()}.safetensors"
    )
