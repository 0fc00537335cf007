"""Before the model's samples are rewarded: what would their rewards be, and is there anything to learn from them?

REINFORCE lifts sentences whose reward is above the expected one. It needs a model that writes different sentences for
one source, some with a higher reward than others; and it mostly lifts words that the model ranks second or third
already.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmixer.bars import watched
from seqmixer.build import first
from seqmixer.data import Split, in_order
from seqmixer.decoding import deployed, free, generate, greedy, sample, shift
from seqmixer.doctor.findings import Finding, note, ok, problem, warning
from seqmixer.errors import within_memory
from seqmixer.evaluation import device_of
from seqmixer.losses import entropy
from seqmixer.types import EOS, PAD, Batch, Choose, Reward, SequenceModel

SENTENCES = 64
SAMPLES = 8  # of each sentence
WRITES = 0.2  # share of right words ranked first: below it a model cannot write; a trained one has twice that and more
SURE = 0.9  # share of samples equal to greedy search's, from which on there is nothing to compare


@dataclass(frozen=True)
class Preflight:
    """Means over some sentences, of several samples each."""

    sentences: int
    samples: int
    reward_samples: float
    reward_best: float  # of the best sample of each source
    reward_greedy: float
    reward_references: float
    spread_batch: float  # deviation of the reward over all samples
    spread_source: float  # over the samples of one source: what REINFORCE learns from
    entropy: float  # nats a step, along the samples
    ranks: dict[str, float]  # of the reference's next word under the model: shares of 1, 2-3, 4-10, more
    same_as_greedy: float  # share of samples
    length_ratio: float  # words of samples / words of targets
    cut: float  # share of samples with no EOS before T


@within_memory()
@torch.no_grad()
def preflight(
    model: SequenceModel, split: Split, length: int, reward: Reward, sentences: int = SENTENCES, samples: int = SAMPLES
) -> Preflight:
    """Measure the first sentences of a split, with the model as it is."""
    (batch,) = in_order(first(split, sentences), sentences, length)
    batch = batch.to(device_of(model))

    def written(choose: Choose) -> Tensor:
        return generate(model, batch.source, *free(batch.source, length), choose)  # (B, T)

    def rewarded(words: Tensor) -> Tensor:
        return reward(batch.rollout(words))  # (B,)

    best = written(greedy)  # (B, T)
    drawn = [written(sample) for _ in watched(range(samples), "pre-flight: samples")]
    words = torch.stack(drawn)  # (K, B, T)
    r = torch.stack([rewarded(each) for each in drawn])  # (K, B)
    return Preflight(
        sentences=len(batch),
        samples=samples,
        reward_samples=float(r.mean()),
        reward_best=float(r.amax(0).mean()),
        reward_greedy=float(rewarded(best).mean()),
        reward_references=float(rewarded(batch.target).mean()),
        spread_batch=float(r.std(correction=0)),
        spread_source=float(r.std(0, correction=0).mean()),
        entropy=float(entropy(scores(model, batch, drawn[0]))[drawn[0] != PAD].mean()),
        ranks=ranks(scores(model, batch, batch.target), batch.target),
        same_as_greedy=float((words == best).all(-1).float().mean()),
        length_ratio=float((words != PAD).sum() / (samples * batch.mask.sum())),
        cut=float((~(words == EOS).any(-1)).float().mean()),
    )


def scores(model: SequenceModel, batch: Batch, words: Tensor) -> Tensor:
    """The scores of every word, without dropout.  (B, T) -> (B, T, V)"""
    with deployed(model):
        return model.scores(model.unroll(shift(words), model.encode(batch.source)))


def ranks(o: Tensor, target: Tensor) -> dict[str, float]:
    """Where the target's words rank under the model, as shares.  (B, T, V), (B, T)"""
    rank = 1 + (o > o.gather(-1, target.unsqueeze(-1))).sum(-1)  # (B, T)
    counted = rank[target != PAD]
    bounds = {"1": (1, 1), "2-3": (2, 3), "4-10": (4, 10), "more": (11, o.shape[-1])}
    return {name: float(((counted >= low) & (counted <= high)).float().mean()) for name, (low, high) in bounds.items()}


def described(found: Preflight) -> Iterator[Finding]:
    """What was measured, in words."""
    ranks = ", ".join(f"{name}: {share:.0%}" for name, share in found.ranks.items())
    yield ok(
        f"reward of samples {found.reward_samples:.3f}, of the best of {found.samples} {found.reward_best:.3f}, of "
        f"greedy search {found.reward_greedy:.3f}, of references {found.reward_references:.3f}"
    )
    yield ok(
        f"spread of the reward {found.spread_batch:.3f}, between samples of one source {found.spread_source:.3f}; "
        f"entropy {found.entropy:.2f} nats; {found.same_as_greedy:.0%} of samples are what greedy search writes"
    )
    yield ok(
        f"rank of the right word {ranks}; samples have {found.length_ratio:.2f} times the words of their references, "
        f"{found.cut:.0%} do not end before T"
    )


def verdict(valid: Preflight, train: Preflight) -> list[Finding]:
    """Whether sequence-level training is likely to work. It takes place on training sentences: they decide."""
    if train.spread_batch < 1e-6 and train.same_as_greedy < SURE:
        why = f"every sample has reward {train.reward_samples:.3f}, whatever it says"
        return [problem("sequence-level training will not work", why, "look at the reward")]
    if train.ranks["1"] < WRITES:
        what = "sequence-level training is not likely to work: the model cannot write yet"
        why = f"the right word is its first choice only {train.ranks['1']:.0%} of the time"
        return [problem(what, why, "train with cross entropy first: algorithm.xent_epochs, or training.start")]
    if train.same_as_greedy >= SURE or train.spread_source < 0.01 * abs(train.reward_references):
        return [nothing_to_learn(train)]
    if found := [*doubts(valid, train)]:
        return [*found, note("sequence-level training may work, in spite of these")]
    why = (
        f"samples differ (spread {valid.spread_source:.3f} for one source), the best of {valid.samples} beats greedy "
        f"search by {valid.reward_best - valid.reward_greedy:.3f}, and {valid.ranks['2-3']:.0%} of the right words "
        "rank 2nd or 3rd: those are the ones it lifts"
    )
    return [ok("sequence-level training is likely to work", why)]


def nothing_to_learn(train: Preflight) -> Finding:
    what = "sequence-level training has nothing to learn from"
    why = (
        f"{train.same_as_greedy:.0%} of the samples of training sentences are what greedy search writes, and samples "
        f"of one source differ by {train.spread_source:.3f} in reward"
    )
    if train.reward_greedy < 0.95 * train.reward_references:
        return problem(what, why, "start from a model that is less sure of itself, such as an earlier one")
    advice = "have more training sentences, a smaller model.hidden, model.dropout, or fewer epochs of cross entropy"
    return problem(what, f"{why}: the model knows its references by heart", advice)


def doubts(valid: Preflight, train: Preflight) -> Iterator[Finding]:
    """What does not stop it, but will show."""
    longer = "train with cross entropy for longer"
    if valid.reward_greedy < 0.5 * train.reward_greedy:
        why = "the model has learnt the former by heart, and its reward there will not carry over"
        rewards = f"{train.reward_greedy:.3f} on training sentences and {valid.reward_greedy:.3f} on validation"
        what = f"greedy search has reward {rewards} sentences"
        yield warning(what, why, "have more training sentences, or model.dropout")
    if valid.reward_best <= valid.reward_greedy:
        best = f"the best of {valid.samples} samples has reward {valid.reward_best:.3f}"
        why = "sampling finds nothing better, so there is little to learn"
        yield warning(f"{best}, greedy search {valid.reward_greedy:.3f}", why, f"{longer}, or take a finer reward")
    if valid.reward_references <= valid.reward_greedy:
        what = f"references have reward {valid.reward_references:.3f}, no more than greedy search"
        yield warning(what, "the reward does not prefer them", "look at the reward")
    if valid.cut > 0.5:
        advice = "raise data.length, or give the reward a length penalty"
        what = f"{valid.cut:.0%} of the samples do not end before T"
        yield warning(what, "the model does not know when to stop", advice)
    elif not 0.5 < valid.length_ratio < 1.5:
        what = f"samples have {valid.length_ratio:.2f} times the words of their references"
        yield warning(what, "the model is not trained enough", longer)
