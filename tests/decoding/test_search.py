"""Searches without UNK, and minimum Bayes risk, against plain Python and sacreBLEU."""

import pytest
import sacrebleu
import torch
from torch import nn

from seqmixer.decoding import Search, sample, sampler, score
from seqmixer.decoding.search import seeded
from seqmixer.errors import ConfigError
from seqmixer.models import AttentiveEncoder, GRUCell, Recurrent
from seqmixer.rewards import BLEU_MEAN, EDIT, consensus
from seqmixer.rewards.agreement import PLACES
from seqmixer.types import BOS, EOS, PAD, UNK, Rollout

V, H, T = 7, 4, 3
TEXT = torch.tensor([[4, 5, 6, 7, 3], [8, 3, PAD, PAD, PAD], [5, 4, 3, PAD, PAD]])
KNOWN = [v for v in range(V) if v not in (PAD, BOS, EOS, UNK)]


@pytest.fixture
def model():
    """A model that prefers UNK everywhere."""
    model = Recurrent(GRUCell, AttentiveEncoder(9, H, positions=6), V, H)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    with torch.no_grad():
        model.M_o.bias[UNK] += 3
    return model.double().eval()


def every_known_sentence():
    """Every finished sentence without UNK: ended, or cut at T."""
    finished, growing = [], [()]
    for _ in range(T):
        finished += [(*words, EOS) for words in growing]
        growing = [(*words, v) for words in growing for v in KNOWN]
    return torch.tensor([[*words, *[PAD] * (T - len(words))] for words in finished + growing])


def after(model, source, words):
    """Scores of the word after some; source (1, N)."""
    h = model.unroll(torch.tensor([[BOS, *words]]), model.encode(source))
    return model.scores(h)[0, -1]


def test_greedy_search_without_unk_takes_the_best_of_the_other_words(model):
    found = Search(unk=False).best(model, TEXT, T)

    for row, source in zip(found.tolist(), TEXT, strict=True):
        words = []
        while len(words) < T and EOS not in words:
            scores = after(model, source.unsqueeze(0), words).tolist()
            words.append(max([EOS, *KNOWN], key=scores.__getitem__))
        assert row == [*words, *[PAD] * (T - len(words))]
    assert (Search().best(model, TEXT, T) == UNK).any()


def test_a_beam_without_unk_ranks_the_sentences_without_it_by_their_probability(model):
    every = every_known_sentence()
    found = Search(beam=len(every), unk=False).hypotheses(model, TEXT, T)

    for b in range(len(TEXT)):
        log_p, order = score(model, TEXT[b : b + 1].expand(len(every), -1), every).sort(descending=True)
        torch.testing.assert_close(found.log_prob[b].double(), log_p, atol=1e-5, rtol=0)
        assert torch.equal(found.words[b], every[order])


def test_samples_without_unk_have_the_probabilities_of_the_other_words(model):
    n = 4000
    words = Search(choose=sample, unk=False).best(model, TEXT[:1].expand(n, -1), 1)

    scores = after(model, TEXT[:1], [])
    scores[[PAD, BOS, UNK]] = -torch.inf
    frequency = words[:, 0].bincount(minlength=V) / n
    torch.testing.assert_close(frequency.double(), scores.softmax(-1), atol=0.03, rtol=0)
    assert frequency[UNK] == 0


def as_text(words, unk="unk"):
    return " ".join(unk if word == UNK else f"w{word}" for word in words.tolist() if word not in (PAD, EOS))


def similarity(one, other):
    """UNK matches nothing."""
    texts = as_text(one, "unk"), as_text(other, "another-unk")
    return sacrebleu.sentence_bleu(texts[0], [texts[1]], tokenize="none", use_effective_order=True).score


@pytest.mark.parametrize("choose", [sample, sampler(1.5, 4)])
def test_mbr_finds_the_sample_with_the_highest_mean_sacrebleu_to_the_others(model, choose):
    n, length = 6, 8
    with torch.no_grad():
        model.M_o.bias[UNK] -= 6
    search = Search(mbr=n, utility=BLEU_MEAN, choose=choose, seed=3)
    found = search.best(model, TEXT, length)

    with seeded(3, TEXT.device):
        drawn = search.chosen(model, TEXT, length, n).view(len(TEXT), n, length)
    assert len({as_text(words) for words in drawn.flatten(0, 1)}) > n
    best = []
    for row, samples in zip(found, drawn, strict=True):
        utility = [sum(similarity(samples[i], samples[j]) for j in range(n) if j != i) for i in range(n)]
        best.append(int(torch.tensor(utility).argmax()))
        assert torch.equal(row, samples[best[-1]])
    assert set(best) != {0}


def test_mbr_draws_the_same_each_time_and_leaves_the_random_numbers_of_others_alone(model):
    first, second = (Search(mbr=4, utility=EDIT, seed=seed).best(model, TEXT, 9) for seed in (1, 2))
    before = torch.get_rng_state()

    assert torch.equal(Search(mbr=4, utility=EDIT, seed=1).best(model, TEXT, 9), first)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_mbr_without_greedy_choice_writes_no_unk_where_it_may_not(model):
    assert not (Search(mbr=5, utility=EDIT, unk=False).best(model, TEXT, T) == UNK).any()


def test_agreement_is_the_same_however_many_pairs_are_compared_at_a_time(monkeypatch):
    words = torch.randint(3, 6, (12, 5))
    rollout = Rollout(words, words.unsqueeze(1), source=torch.arange(12).unsqueeze(-1), k=4)
    sizes, sources = [], []

    def reward(rollout):
        sizes.append(len(rollout.words))
        sources.extend(rollout.source[:, 0].tolist())
        return EDIT.reward(rollout)

    at_once = consensus(reward)(rollout)
    assert PLACES > 36 * 25
    monkeypatch.setattr("seqmixer.rewards.agreement.PLACES", 7 * 25)

    torch.testing.assert_close(consensus(reward)(rollout), at_once)
    assert sizes == [36, 7, 7, 7, 7, 7, 1]
    assert sources == [row for row in range(12) for _ in range(3)] * 2


def test_the_signature_says_how_sentences_were_found():
    assert Search().signature == "beam:1"
    assert Search(beam=5, length_penalty=1, unk=False).signature == "beam:5|lp:1|no-unk"
    assert Search(mbr=32, utility=EDIT).signature == "mbr:32|utility:edit|seed:1"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"mbr": 1, "utility": EDIT}, "asked for MBR among 1 samples; each is compared with others: ask for 2 or more"),
        ({"mbr": 4, "utility": EDIT, "beam": 2}, "asked for MBR and for a beam of 2; choose one of the two"),
        ({"mbr": 4}, "MBR needs a utility"),
    ],
)
def test_searches_that_make_no_sense_are_refused(asked, message):
    with pytest.raises(ConfigError, match=message):
        Search(**asked)
