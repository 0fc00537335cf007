"""The KL term: its gradient by enumeration, its estimate against the definition, and the copy it is held to."""

import itertools
import re

import pytest
import torch
from torch import nn

import tiny
from seqmixer.algorithms import LinearBaseline, Mixer, Reinforce
from seqmixer.algorithms.reference import divergence, drift_to_go, fixed_log_prob, frozen
from seqmixer.config import TrainingConfig
from seqmixer.decoding import shift
from seqmixer.errors import ConfigError
from seqmixer.kernels import plain
from seqmixer.losses import log_prob
from seqmixer.models import AttentiveEncoder, ElmanCell, LSTMCell, Recurrent
from seqmixer.models.huggingface import EncoderDecoder
from seqmixer.models.huggingface.loading import with_lora
from seqmixer.training.step import Step
from seqmixer.types import BOS, EOS, PAD, Batch

V, H, T, BETA = 6, 3, 3, 0.3
SOURCE = torch.tensor([[8, 3, PAD]])
TARGET = torch.tensor([[5, 4, EOS]])
ONE = Batch(SOURCE, TARGET, TARGET.unsqueeze(1))


def translator(cell=LSTMCell, dropout=0.0):
    return random(Recurrent(cell, AttentiveEncoder(9, H, positions=6, window=3), V, H, dropout=dropout))


def random(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def writing(words):
    return lambda model, source, given, keep, choose: words


def sentences(given=()):
    """Every finished sentence that begins so: words up to EOS and then PAD, or T words without EOS."""
    words, rest = [v for v in range(V) if v not in (PAD, BOS, EOS)], T - len(given)
    ended = [
        [*given, *start, EOS] + [PAD] * (rest - n - 1)
        for n in range(rest)
        for start in itertools.product(words, repeat=n)
    ]
    return torch.tensor(ended + [[*given, *cut] for cut in itertools.product(words, repeat=rest)])


def log_probabilities(model, every, start=0):
    """log p(w) of each sentence, from the word `start` on."""
    o = model.scores(model.unroll(shift(every), model.encode(SOURCE.expand(len(every), -1))))
    return (log_prob(o, every) * (every != PAD))[:, start:].sum(-1)


def expected_gradient(algorithm, model, every, p):
    """sum_w p(w) * gradient(w), each sentence written by itself."""
    parameters = list(model.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for i in range(len(every)):
        loss = algorithm(every[i : i + 1], i)(model, ONE, 0)
        for sum_, g in zip(total, torch.autograd.grad(loss.value, parameters), strict=True):
            sum_ += p[i] * g
    return total


def held_to(reference, algorithm):
    algorithm.set_reference(reference)
    return algorithm


@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell])
def test_the_expected_gradient_of_reinforce_is_that_of_reward_minus_beta_kl(cell):
    model, reference, baseline = translator(cell), translator(cell), random(LinearBaseline(H))
    every = sentences()
    r = torch.rand(len(every), dtype=torch.double)
    log_p, log_ref = log_probabilities(model, every), log_probabilities(reference, every).detach()
    objective = (log_p.exp() * r).sum() - BETA * (log_p.exp() * (log_p - log_ref)).sum()

    def algorithm(words, i):
        return held_to(reference, Reinforce(lambda rollout: r[i : i + 1], baseline, writing(words), kl=BETA))

    got = expected_gradient(algorithm, model, every, log_p.detach().exp())

    assert log_p.exp().sum().item() == pytest.approx(1)
    for a, b in zip(got, torch.autograd.grad(-objective, list(model.parameters())), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("s", "overlap"), [(1, False), (2, True)])
def test_the_expected_gradient_of_mixer_holds_what_the_model_writes_after_the_given_words(s, overlap):
    model, reference, baseline = translator(), translator(), random(LinearBaseline(H))
    start = s - 1 if overlap else s
    every = sentences(TARGET[0, :start].tolist())
    r = torch.rand(len(every), dtype=torch.double)
    log_p, log_ref = log_probabilities(model, every, start), log_probabilities(reference, every, start).detach()
    xent = -log_prob(model.scores(model.unroll(shift(TARGET), model.encode(SOURCE))), TARGET)[0, :s].sum()
    objective = (log_p.exp() * r).sum() - BETA * (log_p.exp() * (log_p - log_ref)).sum()

    def algorithm(words, i):
        options = {"overlap": overlap, "generate": writing(words), "kl": BETA}
        return held_to(reference, Mixer(lambda rollout: r[i : i + 1], baseline, T, [s], **options))

    got = expected_gradient(algorithm, model, every, log_p.detach().exp())

    exact = torch.autograd.grad(0.5 * xent - 0.5 * objective, list(model.parameters()))
    for a, b in zip(got, exact, strict=True):
        torch.testing.assert_close(a, b)


def test_the_estimate_is_the_kl_on_average_and_never_negative():
    model, reference, every = translator(), translator(), sentences()
    source = SOURCE.expand(len(every), -1)
    words = model.log_prob(model.unroll(shift(every), model.encode(source)), every).detach()  # (n, T)
    before = fixed_log_prob(reference, source, every)
    log_p, log_ref = log_probabilities(model, every).detach(), log_probabilities(reference, every).detach()

    each = divergence(words, before, every != PAD)  # (n,)

    assert (each >= 0).all()
    torch.testing.assert_close((log_p.exp() * each).sum(), (log_p.exp() * (log_p - log_ref)).sum())


def test_the_estimate_of_a_small_drift_is_half_its_square():
    """e^d - 1 - d = d^2 / 2 + ...; in single precision e^d - 1 would be nothing but rounding."""
    d = torch.full((2, 4), 1e-4)

    got = divergence(-d, torch.zeros(2, 4), torch.ones(2, 4, dtype=torch.bool))

    assert got.tolist() == pytest.approx([4 * 0.5e-8] * 2, rel=1e-2)


def test_what_a_step_pays_is_the_drift_from_there_to_the_end():
    log_p, log_ref = -torch.rand(2, 4), -torch.rand(2, 4)
    free = torch.tensor([[False, True, True, False], [True, True, True, True]])

    got = drift_to_go(log_p, log_ref, free)

    for b, t in itertools.product(range(2), range(4)):
        expected = sum((log_p[b, u] - log_ref[b, u]).item() for u in range(t, 4) if free[b, u])
        assert got[b, t].item() == pytest.approx(expected, abs=1e-6)


def test_the_reference_is_the_model_as_it_was_without_dropout_and_without_gradient():
    model = translator(dropout=0.5).train()
    algorithm = held_to(model, Reinforce(lambda rollout: torch.ones(1).double(), LinearBaseline(H).double(), kl=BETA))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    algorithm.set_reference(model)  # once is enough: the first is kept
    algorithm.train()

    first, again = (fixed_log_prob(algorithm.reference, SOURCE, TARGET) for _ in range(2))

    assert torch.equal(first, again)
    assert not first.requires_grad
    assert not any(parameter.requires_grad for parameter in algorithm.reference.parameters())
    for name, weight in algorithm.reference.state_dict().items():
        assert torch.equal(weight, before[name])


def test_the_log_has_the_kl_of_the_batch_and_without_the_term_nothing_is_kept():
    model, reference, words = translator(), translator(), torch.tensor([[4, EOS, PAD]])
    reward, baseline = (lambda rollout: torch.ones(1).double()), LinearBaseline(H).double()
    held = held_to(reference, Reinforce(reward, baseline, writing(words), kl=BETA))
    free = held_to(reference, Reinforce(reward, baseline, writing(words)))

    with_term, without = (algorithm(model, ONE, 0) for algorithm in (held, free))

    log_p = model.log_prob(model.unroll(shift(words), model.encode(SOURCE)), words)
    log_ref = fixed_log_prob(reference, SOURCE, words)
    d = (log_ref - log_p)[0, :2]
    torch.testing.assert_close(with_term.metrics["kl"], torch.tensor([(d.exp() - 1 - d).sum().item(), 1]))
    assert "kl" not in without.metrics
    assert free.reference is None


def test_without_a_model_to_be_held_to_the_call_that_is_missing_is_named():
    algorithm = Reinforce(lambda rollout: torch.ones(1).double(), LinearBaseline(H).double(), kl=0.25)

    message = "REINFORCE has no reference model yet; call set_reference(model) first"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        algorithm(translator(), ONE, 0)


def test_the_reference_is_not_among_what_is_trained():
    model, baseline = translator().float(), LinearBaseline(H)
    step = Step(model, held_to(model, Reinforce(lambda rollout: torch.ones(1), baseline, kl=BETA)), TrainingConfig())
    trained = [p for group in step.own_optimizer.param_groups for p in group["params"]]
    assert {id(parameter) for parameter in trained} == {id(parameter) for parameter in baseline.parameters()}


@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "LoRA"])
def test_a_model_of_hugging_face_is_copied_with_its_tied_weights_and_saved_with_the_algorithm(lora):
    network = tiny.network("t5", 24)
    model = EncoderDecoder(with_lora(network, 2) if lora else network, (0, 3, 1, 2, *range(3, 21)))
    source, target = torch.tensor([[5, 6, EOS], [7, EOS, PAD]]), torch.tensor([[5, 9, EOS], [EOS, PAD, PAD]])
    batch = Batch(source, target, target.unsqueeze(1))

    def algorithm():
        return Reinforce(lambda rollout: torch.ones(2), LinearBaseline(8), writing(target), kl=BETA)

    held = held_to(model, algorithm())
    assert held(model, batch, 0).metrics["kl"][0].item() == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn_like(parameter)
    moved = held(model, batch, 0).metrics["kl"].tolist()
    assert moved[0] > 1e-3
    other = held_to(model, algorithm())  # of the model as it is now, until it is loaded
    other.load_state_dict({name: weight.clone() for name, weight in held.state_dict().items()})
    assert other(model, batch, 0).metrics["kl"].tolist() == moved


def test_the_pass_of_the_reference_asks_the_device_nothing():
    """A tensor on the device `meta` has no value that could be asked for."""
    log_p, words = torch.empty(4, T, device="meta"), torch.empty(4, T, dtype=torch.long, device="meta")
    reference = frozen(translator()).to("meta")

    with plain():
        log_ref = fixed_log_prob(reference, torch.empty(4, 3, dtype=torch.long, device="meta"), words)

    assert drift_to_go(log_p, log_ref, words != PAD).shape == (4, T)
    assert divergence(log_p, log_ref, words != PAD).shape == (4,)
