import itertools

import pytest
import torch
from torch import nn

from seqmixer.decoding import free, generate, greedy, sample, sampler, score, shift
from seqmixer.models import AttentiveEncoder, ElmanCell, ImageEncoder, LSTMCell, NoEncoder, Recurrent
from seqmixer.types import BOS, EOS, PAD, UNK

V, H, T = 6, 4, 4
TEXT = torch.tensor([[4, 5, 6, 7, 3], [8, 3, PAD, PAD, PAD]])  # (B, N) of different lengths


def translator(cell=LSTMCell, dropout=0.0):
    return random(Recurrent(cell, AttentiveEncoder(9, H, positions=6), V, H, dropout=dropout))


def random(model):
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.double()


def sentences(length):
    """Every finished sentence: words up to EOS and then PAD, or `length` words without EOS."""
    words = [v for v in range(V) if v not in (PAD, BOS, EOS)]
    ended = [
        [*start, EOS] + [PAD] * (length - n - 1) for n in range(length) for start in itertools.product(words, repeat=n)
    ]
    return torch.tensor(ended + [list(cut) for cut in itertools.product(words, repeat=length)])


def log_probability(model, source, words):
    """Of one sentence, step by step up to EOS; source (1, N)."""
    context = model.encode(source)
    state, fed, total = model.start(context), BOS, 0.0
    for word in words:
        h, state = model.step(model.embed(torch.tensor([fed])), state, context)
        total += model.scores(h).log_softmax(-1)[0, word].item()
        fed = word
        if word == EOS:
            break
    return total


def argmax_loop(model, source, length):
    """Eq. 7 for one sentence, source (1, N)."""
    context = model.encode(source)
    state, word, words = model.start(context), BOS, []
    while len(words) < length and word != EOS:
        h, state = model.step(model.embed(torch.tensor([word])), state, context)
        word = int(model.scores(h)[0].argmax())
        words.append(word)
    return words + [PAD] * (length - len(words))


def test_shift_puts_bos_first_and_drops_the_last():
    words = torch.tensor([[5, 4, EOS], [4, EOS, PAD]])

    assert shift(words).tolist() == [[BOS, 5, 4], [BOS, 4, EOS]]


@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell])
def test_greedy_is_the_argmax_loop(cell):
    lengths = set()
    for seed in range(20):
        torch.manual_seed(seed)
        model = translator(cell)
        words = generate(model, TEXT, *free(TEXT, 8), greedy)
        for b in range(2):
            assert words[b].tolist() == argmax_loop(model, TEXT[b : b + 1], 8)
            lengths.add(int((words[b] != PAD).sum()))
    assert min(lengths) < max(lengths) == 8  # sentences that end early and sentences that are cut were among them


def test_after_eos_and_only_after_eos_comes_pad():
    model = translator()
    source = TEXT[:1].expand(500, -1)

    words = generate(model, source, *free(source, 6), sample)

    for sentence in words.tolist():
        end = sentence.index(EOS) + 1 if EOS in sentence else 6
        assert set(sentence[end:]) <= {PAD}
        assert not {PAD, BOS} & set(sentence[:end])
    assert (words == EOS).any()


def test_given_words_stand_where_keep_is_true_and_the_model_goes_on_from_them():
    model = translator()
    given = torch.tensor([[3, 4, 5, 4], [5, 3, 4, 3]])
    keep = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0]], dtype=torch.bool)

    words = generate(model, TEXT, given, keep, without_end)

    assert torch.equal(words[keep], given[keep])
    o = model.scores(model.unroll(shift(words), model.encode(TEXT)))  # what the model says after just these words
    assert torch.equal(words[~keep], without_end(o.flatten(0, 1)).view(2, T)[~keep])


def without_end(logits):
    """Greedy, but going on for ever."""
    return logits.index_fill(-1, torch.tensor([EOS]), -torch.inf).argmax(-1)


def test_keeping_all_gives_the_given_words_back():
    given = torch.tensor([[3, EOS, PAD, PAD], [5, 3, 4, EOS]])

    assert torch.equal(generate(translator(), TEXT, given, torch.ones_like(given, dtype=torch.bool), greedy), given)


def test_a_given_sentence_that_ended_is_not_gone_on_with():
    given = torch.tensor([[3, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]])
    keep = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)

    assert torch.equal(generate(translator(), TEXT, given, keep, sample), given)


def test_free_gives_nothing():
    given, keep = free(TEXT, 3)

    assert given.shape == keep.shape == (2, 3)
    assert given.dtype == torch.long
    assert not keep.any()


def test_choose_sees_the_logits_of_the_step():
    model, seen = translator(), []

    def choose(logits):
        seen.append(logits)
        return without_end(logits)

    words = generate(model, TEXT, *free(TEXT, T), choose)

    expected = model.scores(model.unroll(shift(words), model.encode(TEXT)))
    torch.testing.assert_close(torch.stack(seen, 1), expected)


def test_generating_leaves_no_gradient_and_the_training_mode_as_it_was():
    model, during = translator(dropout=0.5), set()

    def choose(logits):
        during.add(model.training)
        return greedy(logits)

    for mode in (True, False):
        words = generate(model.train(mode), TEXT, *free(TEXT, T), choose)
        score(model, TEXT, words)
        assert during == {False}
        assert all(module.training is mode for module in model.modules())
    assert not words.requires_grad
    assert not score(model, TEXT, words).requires_grad


def test_the_training_mode_is_restored_after_an_error():
    model = translator()

    def fail(logits):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        generate(model, TEXT, *free(TEXT, T), fail)
    assert model.training


def test_words_are_written_without_dropout_though_the_model_trains():
    model = translator(dropout=0.5).train()
    source = torch.randint(3, 9, (50, 5))

    first, second = (generate(model, source, *free(source, 8), greedy) for _ in range(2))

    assert torch.equal(first, second)
    assert torch.equal(first, generate(model.eval(), source, *free(source, 8), greedy))


def test_words_are_scored_without_dropout_though_the_model_trains():
    model = translator(dropout=0.5)
    words = torch.tensor([[3, 4, EOS, PAD], [5, 5, 4, 3]])

    torch.testing.assert_close(score(model.train(), TEXT, words), score(model.eval(), TEXT, words))


def test_without_dropout_what_was_sampled_is_what_is_scored():
    """The log-probabilities at the time of sampling are those of the scoring pass, in train mode as in eval mode."""
    model, at_sampling = translator(), []

    def choose(logits):
        words = sample(logits)
        at_sampling.append(logits.log_softmax(-1).gather(-1, words.unsqueeze(-1)).squeeze(-1))
        return words

    words = generate(model.train(), TEXT, *free(TEXT, T), choose)

    expected = (torch.stack(at_sampling, 1) * (words != PAD)).sum(-1)
    torch.testing.assert_close(score(model, TEXT, words), expected)


def test_score_is_the_product_of_the_steps_up_to_eos():
    model, every = translator(), sentences(3)

    got = score(model, TEXT[:1].expand(len(every), -1), every)

    for words, log_p in zip(every.tolist(), got.tolist(), strict=True):
        assert log_p == pytest.approx(log_probability(model, TEXT[:1], words))


def test_the_probabilities_of_all_sentences_sum_to_one():
    model, every = translator(), sentences(4)

    total = score(model, TEXT[1:].expand(len(every), -1), every).exp().sum()

    assert total.item() == pytest.approx(1)


def test_sampled_sentences_are_as_frequent_as_they_are_probable():
    model, every, n = translator(ElmanCell), sentences(3), 40_000
    source = TEXT[:1].expand(n, -1)

    words = generate(model, source, *free(source, 3), sample)

    p = score(model, TEXT[:1].expand(len(every), -1), every).exp()
    counts = torch.tensor([(words == sentence).all(-1).sum() for sentence in every])
    assert counts.sum() == n
    assert ((counts / n - p).abs() < 5 * (p * (1 - p) / n).sqrt() + 1 / n).all()


def close_to(words, p):
    """Whether the frequencies of `words` are within five deviations of `p`."""
    n = len(words)
    frequency = torch.bincount(words, minlength=len(p)) / n
    return bool(((frequency - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all())


LOGITS = torch.tensor([1.0, -2.0, 0.5, 3.0, 2.5, -1e4])
MANY = LOGITS.expand(50_000, -1)


def test_sample_frequencies_are_the_softmax():
    assert close_to(sample(MANY), LOGITS.softmax(-1))


@pytest.mark.parametrize("temperature", [0.25, 0.5, 1.0, 4.0])
def test_a_sampler_draws_from_the_logits_divided_by_its_temperature(temperature):
    assert close_to(sampler(temperature, None)(MANY), (LOGITS / temperature).softmax(-1))


def test_a_low_temperature_is_greedy():
    assert (sampler(1e-3, None)(MANY) == greedy(LOGITS)).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("k", [1, 2, 3, 6, 100])
def test_a_sampler_with_top_k_draws_only_from_the_k_best_in_proportion(k, temperature):
    best = LOGITS.argsort(descending=True)[:k]
    p = torch.zeros(6)
    p[best] = (LOGITS[best] / temperature).softmax(-1)

    words = sampler(temperature, k)(MANY)

    assert set(words.unique().tolist()) <= set(best.tolist())
    assert close_to(words, p)


def test_each_row_is_drawn_for_itself():
    logits = torch.tensor([[0.0, -50.0, -50.0], [-50.0, 0.0, -50.0], [-50.0, -50.0, 0.0]])

    assert sample(logits).tolist() == [0, 1, 2]
    assert sampler(1.0, 1)(logits).tolist() == [0, 1, 2]


def test_sampling_follows_the_seed_and_the_rows_of_a_batch_differ():
    model = translator()
    source = TEXT[:1].expand(50, -1)

    def drawn(seed):
        torch.manual_seed(seed)
        return generate(model, source, *free(source, T), sample)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert len(drawn(1).unique(dim=0)) > 1


@pytest.mark.parametrize("cell", [ElmanCell, LSTMCell])
def test_a_batch_of_two_lengths_is_each_sentence_alone(cell):
    model = translator(cell)
    short = TEXT[1:, :2]  # without its padding

    words = generate(model, TEXT, *free(TEXT, 8), greedy)

    assert torch.equal(words[:1], generate(model, TEXT[:1], *free(TEXT[:1], 8), greedy))
    assert torch.equal(words[1:], generate(model, short, *free(short, 8), greedy))
    torch.testing.assert_close(score(model, TEXT, words)[1:], score(model, short, words[1:]))
    features = model.unroll(shift(words), model.encode(TEXT))
    torch.testing.assert_close(features[1:], model.unroll(shift(words[1:]), model.encode(short)))


@pytest.mark.parametrize(
    ("encoder", "source"),
    [(ImageEncoder(5, H), torch.randn(3, 5, dtype=torch.double)), (NoEncoder(), torch.zeros(3, 0, dtype=torch.long))],
    ids=["image", "nothing"],
)
def test_images_and_nothing_are_sources_too(encoder, source):
    model = random(Recurrent(LSTMCell, encoder, V, H))

    words = generate(model, source, *free(source, 5), greedy)

    for b in range(3):
        assert words[b].tolist() == argmax_loop(model, source[b : b + 1], 5)


def test_unknown_words_may_be_written():
    """UNK is a word of the vocabulary like another; what it is worth is for the reward to say."""
    model = translator()
    nn.init.zeros_(model.M_o.weight)
    model.M_o.bias.data = nn.functional.one_hot(torch.tensor(UNK), V).double()

    assert (generate(model, TEXT, *free(TEXT, T), greedy) == UNK).all()


def test_several_sentences_for_a_source_are_those_of_the_source_given_as_often():
    model, given = translator(), torch.full((6, T), PAD)
    given[:, 0] = torch.tensor([3, 4, 5, 3, 4, 5])  # sentences begin in three ways
    keep = torch.arange(T).expand(6, T) == 0

    words = generate(model, TEXT, given, keep, greedy)

    for i, sentence in enumerate(words):
        (alone,) = generate(model, TEXT[i // 3 : i // 3 + 1], given[i : i + 1], keep[i : i + 1], greedy)
        assert torch.equal(sentence, alone)
    assert not torch.equal(words[:3], words[3:])  # the two sources differ
