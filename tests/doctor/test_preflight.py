"""The pre-flight's numbers against brute force, and its verdicts on models that differ."""

import dataclasses
import itertools
import random

import pytest
import torch

from seqmixer.algorithms import Xent
from seqmixer.config import TrainingConfig
from seqmixer.data import batches, in_order, text_task
from seqmixer.decoding import free, generate, sample, score, shift
from seqmixer.doctor.preflight import Preflight, described, preflight, ranks, verdict
from seqmixer.errors import OutOfMemory
from seqmixer.losses import entropy
from seqmixer.models import AttentiveEncoder, LSTMCell, NoEncoder, Recurrent, initialise
from seqmixer.rewards import rouge2_recall, sentence_bleu
from seqmixer.training.clock import Clock
from seqmixer.training.step import Step
from seqmixer.types import EOS, PAD, UNK, Rollout


def test_ranks_are_those_of_sorting():
    o = torch.randn(5, 6, 30)
    target = torch.randint(4, 30, (5, 6))
    target[2, 3:] = PAD
    counts = {"1": 0, "2-3": 0, "4-10": 0, "more": 0}
    for row, words in zip(o.tolist(), target.tolist(), strict=True):
        for logits, word in zip(row, words, strict=True):
            if word != PAD:
                rank = 1 + sorted(range(30), key=lambda w: -logits[w]).index(word)
                counts["1" if rank == 1 else "2-3" if rank <= 3 else "4-10" if rank <= 10 else "more"] += 1
    assert ranks(o, target) == pytest.approx({name: n / 27 for name, n in counts.items()})


@pytest.fixture
def tiny():
    """A language model of two words and UNK, whose sentences of three steps can all be listed."""
    pairs = None, [["a b"], ["b"], ["a a b"]] * 20
    task = text_task("tiny", pairs, pairs, pairs, length=3)
    model = Recurrent(LSTMCell, NoEncoder(), len(task.target_vocab), 6)
    initialise(model, 1.0)
    return task, model


def every_sentence(vocab):
    """All rows of three steps that the model can write."""
    for words in itertools.product([EOS, UNK, *range(4, vocab)], repeat=3):
        end = words.index(EOS) if EOS in words else 2
        if all(word == EOS for word in words[end + 1 :]):
            yield [*words[: end + 1], *[PAD] * (2 - end)]


def paid(rollout):
    """BLEU, and a number for each reference, so that sources differ more than samples."""
    return sentence_bleu(rollout) + (rollout.references[:, 0] != PAD).sum(-1)


def test_means_over_samples_are_expectations_over_all_sentences(tiny):
    task, model = tiny
    every = torch.tensor(list(every_sentence(len(task.target_vocab))))  # (n, T)
    p = score(model, every.new_zeros(len(every), 0), every).exp()  # (n,)
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    (batch,) = in_order(task.valid, 60, 3)
    rewards = [paid(Rollout(every, batch.references[i].expand(len(every), -1, -1))) for i in range(3)]
    means = torch.stack([(p * r).sum() for r in rewards])
    spreads = torch.stack([(p * (r - mean).square()).sum().sqrt() for r, mean in zip(rewards, means, strict=True)])
    o = step_scores(model, every)
    steps = every != PAD  # (n, T)
    (best,) = ((o.argmax(-1) == every) | ~steps).all(-1).nonzero()

    found = preflight(model, task.valid, 3, paid, samples=100)

    assert found.reward_samples == pytest.approx(float(means.mean()), abs=0.01)
    assert found.spread_source == pytest.approx(float(spreads.mean()), abs=0.01)
    total = torch.stack([(p * (r - means.mean()).square()).sum() for r in rewards]).mean().sqrt()
    assert found.spread_batch == pytest.approx(float(total), abs=0.01)
    assert found.cut == pytest.approx(float(p[~(every == EOS).any(-1)].sum()), abs=0.03)
    words = float((p * steps.sum(-1)).sum())
    assert found.length_ratio == pytest.approx(60 * words / int(batch.mask.sum()), abs=0.03)
    assert found.same_as_greedy == pytest.approx(float(p[best]), abs=0.03)
    assert found.reward_greedy == pytest.approx(float(torch.stack([r[best] for r in rewards]).mean()))
    expected = sum(expected_best(p.tolist(), r.tolist(), 100) for r in rewards) / 3
    assert found.reward_best == pytest.approx(expected, abs=0.03)
    assert found.reward_references == pytest.approx(float(paid(Rollout(batch.target, batch.references)).mean()))
    assert found.ranks == pytest.approx(ranks(step_scores(model, batch.target), batch.target))


def expected_best(p, r, k):
    """The mean of the largest of k draws: P(largest <= v) = P(one <= v)^k."""
    total, below, reached = 0.0, 0.0, 0.0
    for value, probability in sorted(zip(r, p, strict=True)):
        reached += probability
        total += value * (reached**k - below)
        below = reached**k
    return total


def step_scores(model, words):
    return model.scores(model.unroll(shift(words), model.encode(words.new_zeros(len(words), 0)))).detach()


def test_entropy_is_the_mean_over_the_steps_of_the_first_samples(tiny):
    task, model = tiny
    torch.manual_seed(5)
    found = preflight(model, task.valid, 3, sentence_bleu)
    torch.manual_seed(5)
    source = torch.zeros(60, 0, dtype=torch.long)
    words = generate(model, source, *free(source, 3), sample)
    h = entropy(step_scores(model, words)).tolist()
    steps = [h[i][t] for i, row in enumerate(words.tolist()) for t, word in enumerate(row) if word != PAD]
    assert len(steps) < 180
    assert found.entropy == pytest.approx(sum(steps) / len(steps))


def test_the_same_seed_gives_the_same_numbers_and_the_model_stays_as_it_was(tiny):
    task, model = tiny
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    torch.manual_seed(1)
    first = preflight(model.train(), task.valid, 3, sentence_bleu)
    torch.manual_seed(1)
    assert preflight(model, task.valid, 3, sentence_bleu) == first
    assert model.training
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def either_way(n):
    """Sources of two or three letters; the target has one style or the other, drawn: half of it cannot be known."""
    rng = random.Random(0)
    sources = [" ".join(letters) for k in (2, 3) for letters in itertools.product("abcdefgh", repeat=k)]
    sources = rng.sample(sources, n)
    targets = [
        [" ".join(f"{word}{style}" for word in source.split())] for source in sources for style in rng.choice("12")
    ]
    valid = sources[:40], targets[:40]
    return text_task("either way", (sources, targets), valid, valid, length=4)


def trained(task, epochs):
    torch.manual_seed(0)
    model = Recurrent(LSTMCell, AttentiveEncoder(len(task.source_vocab), 32, 6, window=1), len(task.target_vocab), 32)
    initialise(model, 0.2)
    step = Step(model.train(), Xent(), TrainingConfig(lr=0.02), Clock())
    for epoch in range(epochs):
        for batch in batches(task.train, 16, task.length, seed=1, epoch=epoch):
            step(batch, epoch)
    return model


def judged(task, epochs, reward=sentence_bleu):
    model = trained(task, epochs)
    valid, train = (preflight(model, split, task.length, reward) for split in (task.valid, task.train))
    return [(finding.level, str(finding)) for finding in verdict(valid, train)], valid, train


def test_a_random_model_cannot_write_yet():
    lines, _, train = judged(either_way(40), epochs=0)
    share = f"{train.ranks['1']:.0%}"
    assert lines == [
        (
            "problem",
            "sequence-level training is not likely to work: the model cannot write yet: the right word is its first choice "
            f"only {share} of the time; train with cross entropy first: algorithm.xent_epochs, or training.start",
        )
    ]


def test_a_model_that_knows_its_references_by_heart_has_nothing_to_learn_from():
    lines, _, train = judged(either_way(12), epochs=120)
    assert train.ranks["1"] == 1
    assert lines == [
        (
            "problem",
            f"sequence-level training has nothing to learn from: {train.same_as_greedy:.0%} of the samples of training "
            f"sentences are what greedy search writes, and samples of one source differ by {train.spread_source:.3f} in "
            "reward: the model knows its references by heart; have more training sentences, a smaller model.hidden, "
            "model.dropout, or fewer epochs of cross entropy",
        )
    ]


def test_a_model_that_writes_and_hesitates_is_likely_to_learn():
    lines, valid, _ = judged(either_way(400), epochs=8)
    assert valid.ranks["1"] > 0.6
    gain = valid.reward_best - valid.reward_greedy
    assert gain > 0.05
    assert lines == [
        (
            "ok",
            f"sequence-level training is likely to work: samples differ (spread {valid.spread_source:.3f} for one source), "
            f"the best of 8 beats greedy search by {gain:.3f}, and {valid.ranks['2-3']:.0%} of the right words rank 2nd or "
            "3rd: those are the ones it lifts",
        )
    ]


def test_a_constant_reward_teaches_nothing():
    lines, *_ = judged(either_way(40), epochs=2, reward=lambda rollout: torch.full((len(rollout.words),), 0.5))
    line = "sequence-level training will not work: every sample has reward 0.500, whatever it says; look at the reward"
    assert lines == [("problem", line)]


GOOD = Preflight(
    sentences=64,
    samples=8,
    reward_samples=0.4,
    reward_best=0.7,
    reward_greedy=0.5,
    reward_references=1.0,
    spread_batch=0.25,
    spread_source=0.2,
    entropy=0.5,
    ranks={"1": 0.6, "2-3": 0.25, "4-10": 0.1, "more": 0.05},
    same_as_greedy=0.1,
    length_ratio=1.0,
    cut=0.0,
)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"reward_best": 0.45},
            "the best of 8 samples has reward 0.450, greedy search 0.500: sampling finds nothing better, so there is little to "
            "learn; train with cross entropy for longer, or take a finer reward",
        ),
        (
            {"reward_references": 0.3},
            "references have reward 0.300, no more than greedy search: the reward does not prefer them; look at the reward",
        ),
        (
            {"cut": 0.8},
            "80% of the samples do not end before T: the model does not know when to stop; raise data.length, or give the "
            "reward a length penalty",
        ),
        (
            {"length_ratio": 0.3},
            "samples have 0.30 times the words of their references: the model is not trained enough; train with cross entropy for "
            "longer",
        ),
    ],
)
def test_doubts_are_warnings(changes, line):
    found = dataclasses.replace(GOOD, **changes)
    assert [(each.level, str(each)) for each in verdict(found, found)] == [
        ("warning", line),
        ("note", "sequence-level training may work, in spite of these"),
    ]


def test_a_model_better_on_its_training_sentences_is_a_warning():
    train = dataclasses.replace(GOOD, reward_greedy=0.9, reward_best=0.95)
    valid = dataclasses.replace(GOOD, reward_greedy=0.44)
    assert [(each.level, str(each)) for each in verdict(valid, train)][:1] == [
        (
            "warning",
            "greedy search has reward 0.900 on training sentences and 0.440 on validation sentences: the model has learnt the "
            "former by heart, and its reward there will not carry over; have more training sentences, or model.dropout",
        )
    ]
    assert [each.level for each in verdict(GOOD, train)] == ["ok"]


def test_a_model_too_sure_of_wrong_sentences_is_told_to_start_elsewhere():
    sure = dataclasses.replace(GOOD, same_as_greedy=0.95)
    assert [str(each) for each in verdict(sure, sure)] == [
        "sequence-level training has nothing to learn from: 95% of the samples of training sentences are what greedy search "
        "writes, and samples of one source differ by 0.200 in reward; start from a model that is less sure of itself, such "
        "as an earlier one"
    ]


def test_the_numbers_are_said_in_words():
    assert [str(each) for each in described(GOOD)] == [
        "reward of samples 0.400, of the best of 8 0.700, of greedy search 0.500, of references 1.000",
        "spread of the reward 0.250, between samples of one source 0.200; entropy 0.50 nats; 10% of samples are what "
        "greedy search writes",
        "rank of the right word 1: 60%, 2-3: 25%, 4-10: 10%, more: 5%; samples have 1.00 times the words of their "
        "references, 0% do not end before T",
    ]


def test_any_reward_is_paid(tiny):
    task, model = tiny
    assert preflight(model, task.valid, 3, rouge2_recall).reward_references <= 1


def test_samples_that_the_memory_does_not_hold_are_said_in_one_line(tiny):
    task, model = tiny
    with pytest.raises(OutOfMemory, match=r"^out of memory "):
        preflight(model, task.valid, task.length, lambda rollout: torch.empty(10**14))
