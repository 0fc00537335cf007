import gzip
import math
import random
import re
from collections import Counter, defaultdict

import pytest
import sacrebleu
from pycocoevalcap.cider.cider_scorer import CiderScorer
from rouge_score.rouge_scorer import RougeScorer

from seqmixer.errors import DataError, SeqmixerError
from seqmixer.evaluation.scoring import kept, paper, standard

WORDS = ["the", "cat", "sat", "on", "a", "mat", ".", "<unk>", "Dog", "&apos;s"]


def corpus(n, references=1, seed=0, longest=40):
    """Hypotheses that share much with their references; some are empty, some long."""
    rng = random.Random(seed)
    sentences = [rng.choices(WORDS, k=rng.randint(0 if i % 9 else 1, longest)) for i in range(n)]
    changed = [
        [[w if rng.random() < 0.8 else rng.choice(WORDS) for w in s] for _ in range(references)] for s in sentences
    ]
    return [" ".join(s) for s in sentences], [[" ".join(r) or "the" for r in several] for several in changed]


def scored(hypotheses, references, metric, tokenize="none"):
    (score,) = standard(hypotheses, references, [metric], tokenize)
    return score


@pytest.mark.parametrize("tokenize", ["none", "13a"])
@pytest.mark.parametrize("references", [1, 3])
def test_bleu_is_sacrebleus(tokenize, references):
    hypotheses, wanted = corpus(60, references)
    raw = ["It's the cat's mat, isn't it?", *hypotheses], [["It is the cat's mat, isn't it?"] * references, *wanted]
    theirs = sacrebleu.corpus_bleu(raw[0], list(zip(*raw[1], strict=True)), tokenize=tokenize, force=True)
    score = scored(*raw, "bleu", tokenize)
    assert score.value == pytest.approx(theirs.score, abs=1e-9)
    version = sacrebleu.__version__
    assert (
        score.signature
        == f"standard|bleu|n:61|nrefs:{references}|case:mixed|eff:no|tok:{tokenize}|smooth:exp|version:{version}"
    )


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter", "rouge2", "rouge_l", "cider"])
def test_sentences_may_have_different_numbers_of_references(metric):
    """As MSCOCO's have. The same reference twice pays no more than once."""
    hypotheses, references = corpus(80, 3, longest=12)
    fewer = [several if i % 2 else several[:1] for i, several in enumerate(references)]
    again = [several if i % 2 else several[:1] * 3 for i, several in enumerate(references)]
    score = scored(hypotheses, fewer, metric)
    assert score.value == pytest.approx(scored(hypotheses, again, metric).value)
    assert "|nrefs:var|" in score.signature


def test_chrf_and_ter_are_sacrebleus():
    hypotheses, references = corpus(20, 2, longest=12)
    streams, version = list(zip(*references, strict=True)), sacrebleu.__version__
    chrf, plus, ter = standard(hypotheses, references, ["chrf", "chrf++", "ter"])
    assert plus.value == pytest.approx(sacrebleu.corpus_chrf(hypotheses, streams, word_order=2).score, abs=1e-9)
    assert "|nc:6|nw:2|" in plus.signature
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(hypotheses, streams).score, abs=1e-9)
    assert chrf.signature == f"standard|chrf|n:20|nrefs:2|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    assert ter.value == pytest.approx(sacrebleu.corpus_ter(hypotheses, streams).score, abs=1e-9)
    assert ter.signature == f"standard|ter|n:20|nrefs:2|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{version}"


class Spaces:
    """A tokenizer for rouge_score, whose own one drops what is no letter."""

    def tokenize(self, text):
        return text.split()


@pytest.mark.parametrize(
    ("name", "theirs", "part"),
    [
        ("rouge1", "rouge1", "recall"),
        ("rouge2", "rouge2", "recall"),
        ("rouge1_f", "rouge1", "fmeasure"),
        ("rouge2_f", "rouge2", "fmeasure"),
        ("rouge_l", "rougeL", "fmeasure"),
    ],
)
@pytest.mark.parametrize("references", [1, 3])
def test_rouge_is_rouge_scores(name, theirs, part, references):
    """Also of the word <unk>, a word like any other here. Of several references the best one counts."""
    hypotheses, wanted = corpus(150, references)
    scorer = RougeScorer([theirs], tokenizer=Spaces())
    best = [
        max(getattr(scorer.score(r, h)[theirs], part) for r in several)
        for h, several in zip(hypotheses, wanted, strict=True)
    ]
    score = scored(hypotheses, wanted, name)
    assert score.value == pytest.approx(100 * sum(best) / len(best), abs=1e-4)
    assert score.signature.startswith("standard|rouge|")
    assert f"|unk:a-word|refs:best|nrefs:{references}|tok:none|n:150|seqmixer:" in score.signature


def test_rouge_of_raw_text_is_rouge_of_its_13a_words():
    raw, tokenised = 'The cat, "Tom", sat.', 'The cat , " Tom " , sat .'
    reference = ["The cat sat , Tom ."]
    assert scored([raw], [reference], "rouge1", "13a").value == scored([tokenised], [reference], "rouge1").value
    assert scored([raw], [reference], "rouge1", "13a").value != scored([raw], [reference], "rouge1").value


def grams(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def released(hypotheses, references, sources, length, least):
    """A transcription of the released loader and evaluator, in plain Python. -> BLEU, sentences, words"""
    bins = defaultdict(list)
    for h, (r,), s in zip(hypotheses, references, sources, strict=True):
        bins[len([*s.split(), "</s>"])].append((h.split(), r.split()))
    matches, totals, h_words, r_words, n_sentences = [0] * 4, [0] * 4, 0, 0, 0
    for pairs in bins.values():
        if sum(len([*r, "</s>"]) for _, r in pairs) < least:
            continue
        for h, r in pairs:
            h, r = h[:length], r[:length]
            h_words, r_words, n_sentences = h_words + len(h), r_words + len(r), n_sentences + 1
            for n in range(4):
                wanted = {gram: k for gram, k in grams(r, n + 1).items() if "<unk>" not in gram}
                matches[n] += sum(min(k, wanted.get(gram, 0)) for gram, k in grams(h, n + 1).items())
                totals[n] += max(len(h) - n, 0)
    precision = math.exp(sum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / 4)
    return 100 * precision * min(1, math.exp(1 - r_words / h_words)), n_sentences, r_words


@pytest.mark.parametrize(("seed", "length", "least"), [(1, 25, 800), (2, 25, 300), (3, 10, 500)])
def test_the_paper_protocol_is_the_released_evaluator(seed, length, least):
    hypotheses, references = corpus(700, seed=seed)
    rng = random.Random(seed)
    sources = [" ".join(["ja"] * min(int(rng.expovariate(0.1)), 60)) for _ in hypotheses]
    value, n, words = released(hypotheses, references, sources, length, least)
    (score,) = paper(hypotheses, references, sources, length=length, least=least)
    assert score.value == pytest.approx(value, abs=1e-3)
    assert 0 < n < 700
    rules = f"bleu|order:4|smooth:none|unk:never-matches|refs:closest|cut:{length}|bins:{least}|n:{n}/700|words:{words}"
    assert re.fullmatch(rf"paper\|{re.escape(rules)}\|vocab:open\|seqmixer:[\d.]+", score.signature)


def test_the_two_protocols_differ_in_unknown_words_and_in_length():
    hypotheses, references = ["a b c d <unk> f g h i j"], [["a b c d <unk> f g h i j"]]
    whole, cut = scored(hypotheses, references, "bleu"), paper(hypotheses, references, ["x"], ["bleu", "rouge2"], 8, 1)
    assert whole.value == pytest.approx(100)
    expected = 100 * (7 / 8 * 5 / 7 * 3 / 6 * 1 / 5) ** 0.25
    assert [score.value for score in cut] == pytest.approx([expected, 100])  # recall leaves unknown words out


def test_a_bin_is_kept_from_800_words_on_with_one_end_of_sentence_each():
    for words, there in ((1, [0, 1]), (0, [1])):  # 800 and 799 words of length 2
        references = [[" ".join(["w"] * (798 + words)), "never counted"], [" ".join(["w"] * 799)]]
        assert kept(["a b", "a"], references) == there


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: standard(["a"], [["a"]], ["bleau"]),
         "unknown metric of the standard protocol 'bleau'. Did you mean 'bleu'? "
         "Known: bleu, chrf, chrf++, cider, rouge1, rouge1_f, rouge2, rouge2_f, rouge_l, ter."),
        (lambda: standard(["a"], [["a"]], ["bleu"], tokenize="13"),
         "unknown tokenize '13'. Did you mean '13a'? Known: 13a, none."),
        (lambda: paper(["a"], [["a"]], ["a"], ["chrf"]),
         "unknown metric of the paper protocol 'chrf'. Known: bleu, rouge2."),
    ],
)  # fmt: skip
def test_what_a_protocol_does_not_have_is_refused(call, text):
    with pytest.raises(SeqmixerError, match=f"^{re.escape(text)}$"):
        call()


def test_a_small_corpus_has_no_score_in_the_paper_protocol():
    none = "no length of source has 800 target words or more"
    text = f"the paper protocol scores no sentence here: {none}; use the standard protocol"
    with pytest.raises(DataError, match=f"^{re.escape(text)}$"):
        paper(["a"] * 300, [["a"]] * 300, ["a"] * 300)


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("split", "whole", "counts"),
    [("valid", (6969, 129_091), "n:6778/6969|words:112423"), ("test", (6750, 131_141), "n:6380/6750|words:105584")],
)
def test_the_paper_protocol_keeps_what_the_released_loader_kept_of_iwslt14(real_data, split, whole, counts):
    folder = real_data("iwslt14-de-en")
    german, english = (
        gzip.decompress((folder / f"{split}.{language}.gz").read_bytes()).decode().removesuffix("\n").split("\n")
        for language in ("de", "en")
    )
    assert (len(english), sum(len(line.split()) for line in english)) == whole  # the files are the right ones
    (score,) = paper(english, [[line] for line in english], german)
    assert f"|cut:25|bins:800|{counts}|" in score.signature
    assert score.value == pytest.approx(100)


def test_cider_is_pycocoevalcaps_on_the_same_text():
    rng = random.Random(0)
    words = [f"w{i}" for i in range(30)]
    references = [[" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(3)] for _ in range(40)]
    hypotheses = [" ".join(rng.choices(several[0].split() + words[:4], k=8)) for several in references]
    theirs = CiderScorer()
    for hypothesis, several in zip(hypotheses, references, strict=True):
        theirs.cook_append(hypothesis, several)
    (ours,) = standard(hypotheses, references, ["cider"])
    assert ours.value == pytest.approx(100 * theirs.compute_score()[0], rel=1e-4)
    assert ours.signature.startswith("standard|cider-d|order:4|sigma:6|df:40:")
