import math

import pytest
import torch
from torch import nn

from seqmixer.decoding import beam_search, free, generate, greedy, score
from seqmixer.decoding.beam import perturbed
from seqmixer.models import AttentiveEncoder, ElmanCell, GRUCell, ImageEncoder, LSTMCell, NoEncoder, Recurrent
from seqmixer.types import BOS, EOS, PAD

V, H, T = 6, 4, 3
TEXT = torch.tensor([[4, 5, 6, 7, 3], [8, 3, PAD, PAD, PAD]])  # (B, N) of different lengths
FULL = 1 + 3 + 9 + 27  # sentences of three words that can be written: ended at 1, 2 or 3, or cut


def translator(cell=LSTMCell, released=False):
    model = Recurrent(cell, AttentiveEncoder(9, H, positions=6), V, H, released=released)
    return random(model)


def random(model):
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.double()


def next_words(model, source, prefixes):
    """log p of each next word after each prefix, read anew from BOS on; source (1, N)."""
    inputs = torch.tensor([[BOS, *words] for words, _ in prefixes])
    h = model.unroll(inputs, model.encode(source.expand(len(prefixes), -1)))[:, -1]
    return model.scores(h).log_softmax(-1).tolist()


def every_sentence(model, source, length):
    """(words, log p) of every finished sentence, source (1, N)."""
    result, growing = [], [((), 0.0)]
    for _ in range(length):
        longer = []
        for (words, log_p), after in zip(growing, next_words(model, source, growing), strict=True):
            result.append(((*words, EOS), log_p + after[EOS]))
            longer += [((*words, v), log_p + after[v]) for v in range(V) if v not in (PAD, BOS, EOS)]
        growing = longer
    return result + growing


def ranked(sentences, length_penalty):
    return sorted(sentences, key=lambda one: -one[1] / len(one[0]) ** length_penalty)


def plain_beam(model, source, length, k, length_penalty):
    """Algorithm 2 in lists: expand the k best prefixes; those of the k best that end are finished, the others go on."""
    done, growing = [], [((), 0.0)]
    for _ in range(length):
        candidates = [
            ((*words, v), log_p + step)
            for (words, log_p), after in zip(growing, next_words(model, source, growing), strict=True)
            for v, step in enumerate(after)
            if v not in (PAD, BOS)
        ]
        candidates.sort(key=lambda one: -one[1])
        done += [one for one in candidates[:k] if one[0][-1] == EOS]
        growing = [one for one in candidates if one[0][-1] != EOS][:k]
    return ranked(done + growing, length_penalty)[:k]


def padded(words, length=T):
    return [*words] + [PAD] * (length - len(words))


def test_probabilities_of_short_logits_are_summed_in_single_precision():
    """As of a model that computes in bfloat16: a sum of rounded log-probabilities would rank other sentences first."""

    class Short(Recurrent):
        def logits(self, h):
            return super().logits(h).bfloat16()

    model = random(Short(LSTMCell, AttentiveEncoder(9, H, positions=6), V, H))

    found = beam_search(model, TEXT, T, 4)

    assert found.log_prob.dtype is torch.float32
    for b in range(2):
        for words, log_p in zip(found.words[b].tolist(), found.log_prob[b].tolist(), strict=True):
            context = model.encode(TEXT[b : b + 1])
            state, fed, total = model.start(context), BOS, 0.0
            for word in (word for word in words if word != PAD):
                h, state = model.step(model.embed(torch.tensor([fed])), state, context)
                total += model.scores(h).double().log_softmax(-1)[0, word].item()
                fed = word
            assert log_p == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("length_penalty", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("cell", "released"), [(ElmanCell, False), (LSTMCell, True), (GRUCell, False)], ids=["elman", "lstm", "gru"]
)
def test_the_full_width_finds_every_sentence_in_order(cell, released, length_penalty):
    model = translator(cell, released)

    found = beam_search(model, TEXT, T, FULL, length_penalty)

    for b in range(2):
        expected = ranked(every_sentence(model, TEXT[b : b + 1], T), length_penalty)
        assert len(expected) == FULL
        assert found.words[b].tolist() == [padded(words) for words, _ in expected]
        torch.testing.assert_close(found.log_prob[b], torch.tensor([log_p for _, log_p in expected]))


def test_the_full_width_finds_the_best_of_all_sequences_on_many_models():
    greedy_was_best = 0
    for seed in range(15):
        torch.manual_seed(seed)
        model = translator(ElmanCell)
        best, log_p = ranked(every_sentence(model, TEXT[:1], T), 0)[0]
        found = beam_search(model, TEXT[:1], T, FULL)

        assert found.words[0, 0].tolist() == padded(best)
        assert found.log_prob[0, 0].item() == pytest.approx(log_p, abs=1e-5)
        first = score(model, TEXT[:1], generate(model, TEXT[:1], *free(TEXT[:1], T), greedy))
        assert found.log_prob[0, 0].item() >= first.item() - 1e-5
        greedy_was_best += int(abs(first.item() - log_p) < 1e-6)
    assert 0 < greedy_was_best < 15  # so search errors were among what was tried


@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell, GRUCell])
def test_a_beam_of_one_is_greedy(cell):
    source = torch.randint(3, 9, (20, 5))
    for seed in range(10):
        torch.manual_seed(seed)
        model = translator(cell)
        words = generate(model, source, *free(source, 8), greedy)

        found = beam_search(model, source, 8, beam=1)

        assert torch.equal(found.words[:, 0], words)
        torch.testing.assert_close(found.log_prob[:, 0].double(), score(model, source, words), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell])
def test_a_narrow_beam_is_algorithm_2_in_plain_python(cell, k, length_penalty):
    for seed in range(5):
        torch.manual_seed(seed)
        model = translator(cell)
        found = beam_search(model, TEXT, 6, k, length_penalty)
        for b in range(2):
            expected = plain_beam(model, TEXT[b : b + 1], 6, k, length_penalty)
            assert found.words[b].tolist() == [padded(words, 6) for words, _ in expected]
            torch.testing.assert_close(found.log_prob[b], torch.tensor([log_p for _, log_p in expected]))


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("beam", [1, 2, 4, 10])
def test_the_log_probability_of_a_hypothesis_is_its_score_and_the_best_comes_first(beam, length_penalty):
    for seed in range(5):
        torch.manual_seed(seed)
        model = translator()
        found = beam_search(model, TEXT, 6, beam, length_penalty)

        assert found.words.shape == (2, beam, 6)
        for k in range(beam):
            expected = score(model, TEXT, found.words[:, k])
            torch.testing.assert_close(found.log_prob[:, k].double(), expected, atol=1e-4, rtol=1e-5)
        rank = found.log_prob / (found.words != PAD).sum(-1) ** length_penalty
        assert (rank.diff(dim=1) <= 0).all()
        for b in range(2):
            assert len(found.words[b].unique(dim=0)) == beam


def test_a_length_penalty_prefers_longer_sentences():
    lengths = []
    for length_penalty in (0.0, 1.0):
        torch.manual_seed(0)
        models = [translator() for _ in range(10)]
        found = [beam_search(model, TEXT, 6, 5, length_penalty).words[:, 0] for model in models]
        lengths.append(sum(int((words != PAD).sum()) for words in found))

    assert lengths[0] < lengths[1]


def test_places_without_a_sentence_have_no_probability():
    """There are four sentences of one word (EOS, UNK, 4 and 5), so a beam of 6 has two places over."""
    found = beam_search(translator(), TEXT, 1, beam=6)

    assert found.log_prob[:, :4].isfinite().all()
    assert found.log_prob[:, 4:].tolist() == [[-torch.inf] * 2] * 2


@pytest.mark.parametrize("beam", [1, 3, FULL])
def test_a_batch_of_two_lengths_is_each_sentence_alone(beam):
    model = translator()

    together = beam_search(model, TEXT, T, beam)
    long, short = beam_search(model, TEXT[:1], T, beam), beam_search(model, TEXT[1:, :2], T, beam)

    assert torch.equal(together.words, torch.cat([long.words, short.words]))
    torch.testing.assert_close(together.log_prob, torch.cat([long.log_prob, short.log_prob]))


@pytest.mark.parametrize(
    ("encoder", "source"),
    [(ImageEncoder(5, H), torch.randn(2, 5, dtype=torch.double)), (NoEncoder(), torch.zeros(2, 0, dtype=torch.long))],
    ids=["image", "nothing"],
)
def test_images_and_nothing_are_sources_too(encoder, source):
    model = random(Recurrent(LSTMCell, encoder, V, H, layers=2))

    found = beam_search(model, source, T, FULL)

    for b in range(2):
        expected = ranked(every_sentence(model, source[b : b + 1], T), 0)
        assert found.words[b].tolist() == [padded(words) for words, _ in expected]


def test_searching_leaves_no_gradient_and_the_training_mode_as_it_was():
    model = Recurrent(LSTMCell, AttentiveEncoder(9, H, positions=6), V, H, dropout=0.5)

    for mode in (True, False):
        first, second = (beam_search(model.train(mode), TEXT, T, 3) for _ in range(2))
        assert torch.equal(first.words, second.words)
        assert all(module.training is mode for module in model.modules())
    assert not first.log_prob.requires_grad


def kept(words, source, length):
    """`given` and `keep` of sentences that begin with these words."""
    given = torch.full((len(source), length), PAD)
    given[:, : len(words)] = torch.tensor(words)
    return {"given": given, "keep": torch.arange(length).expand(len(source), -1) < len(words)}


def beginning(model, source, start):
    """Every finished sentence (words, log p of what follows) that begins so, source (1, N)."""
    found = [(words, log_p) for words, log_p in every_sentence(model, source, T) if words[: len(start)] == start]
    log_start = torch.tensor([log_p for _, log_p in found]).logsumexp(0).item()
    return [(words, log_p - log_start) for words, log_p in found]


@pytest.mark.parametrize("start", [(3,), (5, 4), (4, 3, 5), (3, EOS)])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_beam_after_kept_words_finds_every_sentence_that_begins_with_them_in_order(start, length_penalty):
    model = translator()

    found = beam_search(model, TEXT, T, FULL, length_penalty, **kept(start, TEXT, T))

    for b in range(2):
        expected = ranked(beginning(model, TEXT[b : b + 1], start), length_penalty)
        n = len(expected)
        assert n == {(3,): 13, (5, 4): 4}.get(start, 1)
        assert found.words[b, :n].tolist() == [padded(words) for words, _ in expected]
        torch.testing.assert_close(found.log_prob[b, :n], torch.tensor([log_p for _, log_p in expected]))
        assert (found.log_prob[b, n:] == -torch.inf).all()


def test_a_narrow_beam_after_kept_words_is_that_of_what_follows():
    """A kept word goes on a prefix of the beam: greedy search after it is that of `generate`."""
    model = translator()
    start = kept((4,), TEXT, 8)
    words = generate(model, TEXT, *start.values(), greedy)

    assert torch.equal(beam_search(model, TEXT, 8, 1, **start).words[:, 0], words)
    nothing = beam_search(model, TEXT, 8, 3, **kept((), TEXT, 8))
    assert torch.equal(nothing.words, beam_search(model, TEXT, 8, 3).words)


def test_the_noise_of_what_follows_a_prefix_has_its_value_as_the_highest():
    value = torch.tensor([[0.3, -700.0], [2.0, -torch.inf]])  # (B, K)
    log_p = torch.randn(2, 2, 50).log_softmax(-1) + torch.tensor([[-1.0, -300.0], [0.0, -torch.inf]]).unsqueeze(-1)
    log_p[..., :2] = -torch.inf

    noisy = perturbed(value, log_p)

    assert torch.equal(noisy.amax(-1), value)
    assert (noisy[..., :2] == -torch.inf).all()
    assert noisy[0, :, 2:].isfinite().all()


@pytest.mark.parametrize("start", [(), (4,)])
def test_a_stochastic_beam_draws_without_replacement(start):
    """Of 13 sentences two, in order: p_i p_j / (1 - p_i), by enumeration; a chi-squared test."""
    n, length = 40_000, 2 + len(start)
    torch.manual_seed(3)
    model = translator().float()
    source = TEXT[:1]
    every = every_sentence(model, source, length) if not start else beginning(model, source, start)
    p = torch.tensor([log_p for _, log_p in every]).exp()
    number = {tuple(padded(words, length)): i for i, (words, _) in enumerate(every)}
    assert len(p) == 13
    expected = n * p.unsqueeze(1) * p / (1 - p.unsqueeze(1)) * (1 - torch.eye(13))

    rows = source.expand(n, -1)
    found = beam_search(model, rows, length, 2, stochastic=True, **kept(start, rows, length))

    drawn = torch.zeros(13, 13)
    for pair, times in zip(*(each.tolist() for each in found.words.unique(dim=0, return_counts=True)), strict=True):
        drawn[number[tuple(pair[0])], number[tuple(pair[1])]] += times
    rare = expected < 10
    cells = torch.cat([expected[~rare], expected[rare].sum()[None]])
    counts = torch.cat([drawn[~rare], drawn[rare].sum()[None]])
    freedom = len(cells) - 1
    assert freedom > 40
    chi_squared = ((counts - cells).square() / cells).sum().item()
    assert abs(chi_squared - freedom) < 4 * math.sqrt(2 * freedom)


def test_a_stochastic_beam_of_full_width_has_every_sentence_once():
    found = beam_search(translator(), TEXT, T, FULL, stochastic=True)

    for b in range(2):
        assert len({tuple(words) for words in found.words[b].tolist()}) == FULL
        assert (found.log_prob[b].diff() <= 0).all()
