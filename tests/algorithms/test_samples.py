"""Several sentences for each source, and the baseline that compares them."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from seqmixer.algorithms import Candidates, LeaveOneOut, LinearBaseline, Mixer, Parts, Reinforce, symptoms
from seqmixer.build import build_algorithm
from seqmixer.config import Config
from seqmixer.decoding import shift
from seqmixer.errors import ConfigError
from seqmixer.losses import log_prob
from seqmixer.models import AttentiveEncoder, LSTMCell, Recurrent
from seqmixer.rewards import sentence_bleu
from seqmixer.types import BOS, EOS, PAD, Batch

V, H, T = 6, 3, 2
TARGET = torch.tensor([[3, EOS], [5, 4]])
SOURCE = torch.tensor([[4, 5, 6], [8, 3, PAD]])
BATCH = Batch(SOURCE, TARGET, TARGET.unsqueeze(1), meta=[{"source": "a"}, {"source": "b"}])
THRICE = torch.tensor([0, 0, 0, 1, 1, 1])


def random(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def translator():
    return random(Recurrent(LSTMCell, AttentiveEncoder(9, H, positions=6, window=3), V, H))


def apart_from_pairs(metrics):
    """Pairs are of sentences for different sources, which a batch with every sentence written out does not know."""
    return {name: value for name, value in metrics.items() if name != "distinct"}


def writing(words):
    """A `generate` that writes these words."""
    return lambda model, source, given, keep, choose: words


def gradients(loss, *modules):
    return torch.autograd.grad(loss, [p for module in modules for p in module.parameters()])


def test_a_reward_is_told_how_many_sentences_in_a_row_are_for_one_source():
    seen = []

    def reward(rollout):
        seen.append((rollout.k, rollout.source[:: rollout.k].tolist()))
        return torch.zeros(len(rollout.words), dtype=torch.double)

    Reinforce(reward, LeaveOneOut(), samples=3)(translator(), BATCH, 0)

    assert seen == [(3, SOURCE.tolist())]


def test_what_is_expected_of_a_sentence_is_the_mean_of_the_others_for_its_source():
    r = torch.rand(3, 4, dtype=torch.double)

    words = torch.ones(12, T, dtype=torch.long)
    candidates = Candidates(words, words > 0, 4, lambda: r.flatten())

    r_bar = LeaveOneOut()(torch.zeros(12, T, H), candidates)

    assert r_bar.shape == (12, T)
    for source, sentence in itertools.product(range(3), range(4)):
        expected = np.delete(r[source].numpy(), sentence).mean()
        assert r_bar[4 * source + sentence].tolist() == pytest.approx([expected] * T)


def test_the_estimator_is_unbiased_over_every_pair_of_sentences():
    """Summed over all pairs, p(v) p(w) * gradient(v, w) is the gradient of -E[r] (Eq. 9)."""
    model, one = translator(), Batch(SOURCE[1:], TARGET[1:], TARGET[1:].unsqueeze(1))
    words = [v for v in range(V) if v not in (PAD, BOS, EOS)]
    every = torch.tensor([[EOS, PAD], *([word, EOS] for word in words), *itertools.product(words, repeat=2)])
    r = torch.rand(len(every), dtype=torch.double)
    o = model.scores(model.unroll(shift(every), model.encode(one.source.expand(len(every), -1))))
    p = (log_prob(o, every) * (every != PAD)).sum(-1).exp()

    estimated = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for pair in map(list, itertools.product(range(len(every)), repeat=2)):
        algorithm = Reinforce(lambda rollout, pair=pair: r[pair], LeaveOneOut(), writing(every[pair]), samples=2)
        for total, gradient in zip(estimated, gradients(algorithm(model, one, 0).value, model), strict=True):
            total += p[pair].prod().detach() * gradient

    assert p.sum().item() == pytest.approx(1)
    for a, b in zip(estimated, gradients(-(p * r).sum(), model), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("s", [0, 1])
def test_each_sentence_so_many_times_is_a_batch_that_has_it_so_many_times(s, overlap):
    model, baseline = translator(), random(LinearBaseline(H))
    words = torch.tensor([[3, EOS], [3, 5], [3, 3], [5, EOS], [5, 5], [5, 3]])
    r = torch.rand(6, dtype=torch.double)
    larger = Batch(SOURCE[THRICE], TARGET[THRICE], TARGET[THRICE].unsqueeze(1))

    def loss(batch, samples):
        mixer = Mixer(lambda _: r, baseline, T, [s], overlap=overlap, generate=writing(words), samples=samples)
        return mixer(model, batch, 0)

    some, others = loss(BATCH, 3), loss(larger, 1)
    torch.testing.assert_close(some.value, others.value)
    torch.testing.assert_close(apart_from_pairs(some.metrics), apart_from_pairs(others.metrics))
    for a, b in zip(gradients(some.value, model, baseline), gradients(others.value, model, baseline), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", ["reinforce", "mixer"])
def test_every_sentence_is_drawn_for_itself_and_paid_by_the_references_of_its_source(kind):
    seen = []

    def reward(rollout):
        seen.append(rollout)
        return sentence_bleu(rollout)

    config = Config.parse({"algorithm": {"name": kind, "samples": 3, "baseline": "leave-one-out", "xent_epochs": 0}})
    torch.manual_seed(1)
    build_algorithm(config.algorithm, Parts(reward, H, T, V, 10))(translator().float(), BATCH, 9)

    (rollout,) = seen
    assert torch.equal(rollout.references, BATCH.references[THRICE])
    assert torch.equal(rollout.source, SOURCE[THRICE])
    assert [meta["source"] for meta in rollout.meta] == ["a", "a", "a", "b", "b", "b"]
    assert len({tuple(words) for words in rollout.words.tolist()}) > 2


def test_a_source_is_read_once_for_all_its_sentences():
    """By the model that writes them, by the model that is trained, and by the one it is held to."""
    model, read = translator(), []
    encode = Recurrent.encode

    def spy(network, source):
        read.append(source)
        return encode(network, source)

    algorithm = Reinforce(lambda _: torch.rand(6).double(), LeaveOneOut(), kl=0.1, samples=3)
    algorithm.set_reference(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recurrent, "encode", spy)
        algorithm(model, BATCH, 0)

    assert len(read) == 3
    assert all(torch.equal(source, SOURCE) for source in read)


@pytest.mark.parametrize("s", [0, 1])
def test_the_model_that_is_held_to_reads_the_source_of_each_sentence(s):
    """The KL term of a batch is that of the same batch with every sentence written out."""
    model, held = translator(), translator()
    words, r = torch.tensor([[3, EOS], [3, 5], [3, 3], [5, EOS], [5, 5], [5, 3]]), torch.rand(6, dtype=torch.double)
    larger = Batch(SOURCE[THRICE], TARGET[THRICE], TARGET[THRICE].unsqueeze(1))

    def loss(batch, samples):
        baseline = LinearBaseline(H).double()
        mixer = Mixer(lambda _: r, baseline, T, [s], generate=writing(words), kl=0.5, samples=samples)
        mixer.set_reference(held)
        return mixer(model, batch, 0)

    torch.testing.assert_close(loss(BATCH, 3).value, loss(larger, 1).value)
    some, others = loss(BATCH, 3).metrics, loss(larger, 1).metrics
    torch.testing.assert_close(apart_from_pairs(some), apart_from_pairs(others))


def test_the_baseline_of_one_sentence_has_nothing_to_compare_with():
    with pytest.raises(ConfigError, match=r"needs algorithm\.samples of 2 or more; got algorithm\.samples = 1"):
        Config.parse({"algorithm": {"baseline": "leave-one-out"}})
    with pytest.raises(ConfigError, match=r"2 samples of a source or more, got 1; set samples"):
        Reinforce(sentence_bleu, LeaveOneOut())(translator(), BATCH, 0)


def test_where_sentences_for_one_source_are_paid_alike_it_is_said_that_little_is_left_to_learn_from():
    """The rewards still differ, from source to source."""
    by_source = Reinforce(lambda rollout: rollout.source.sum(-1).double(), LeaveOneOut(), samples=3)
    metrics = by_source(translator(), BATCH, 0, torch.tensor(0.0)).metrics
    means = {name: float(total / count) for name, (total, count) in metrics.items()}
    assert (means["explained"], means["reward_spread"]) == (1, pytest.approx(2))  # 15 and 11
    assert any("are the sentences for one source all alike?" in said for said in symptoms(means))
