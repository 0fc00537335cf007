"""The built-in tasks: known references, known best score, and room between greedy search and the best."""

import math
import random
import re
import time
from collections import Counter
from functools import cache
from itertools import chain, product

import pytest
import sacrebleu
import torch

from seqmixer.data import toy
from seqmixer.data.task import Split, Task
from seqmixer.data.toy.captioning import CELL, COLOURS, Figure, features, render
from seqmixer.data.toy.captioning import captions as captions_of
from seqmixer.data.toy.summarization import FULL, Item, headlines
from seqmixer.data.toy.translation import PLURALS, Clause, Noun, active, passive, source, translations
from seqmixer.data.toy.translation import invent as invent_clause
from seqmixer.data.toy.variants import distinct
from seqmixer.errors import DataError

TASKS = {"translation": toy.translation, "summarization": toy.summarization, "captioning": toy.captioning}
every_task = pytest.mark.parametrize("name", TASKS)


@cache
def made(name: str) -> Task:
    return TASKS[name](seed=1)


def splits(task: Task) -> tuple[Split, Split, Split]:
    return task.train, task.valid, task.test


def grams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = text.split()
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))


def rouge2(hypothesis: str, reference: str) -> float:
    wanted = grams(reference, 2)
    return (grams(hypothesis, 2) & wanted).total() / max(wanted.total(), 1)


def bleu(hypothesis: str, reference: str) -> float:
    """Sentence BLEU-4, one added to the counts above order 1."""
    logs = []
    for n in range(1, 5):
        h = grams(hypothesis, n)
        matches, added = (h & grams(reference, n)).total(), int(n > 1)
        if matches + added == 0:
            return 0.0
        logs.append(math.log((matches + added) / (h.total() + added)))
    return math.exp(sum(logs) / 4 + min(0.0, 1 - len(reference.split()) / len(hypothesis.split())))


def each(score):
    """A score of one pair as a score of many."""
    return lambda hypotheses, references: [score(h, r) for h, r in zip(hypotheses, references, strict=True)]


SCORES = {"translation": bleu, "summarization": rouge2, "captioning": bleu}


def corpus(name: str, outputs: list[str], split: Split) -> float:
    """The score that the task is reported in, 0..100."""
    references = [meta["references"] for meta in split.meta]
    if name == "summarization":
        return 100 * sum(rouge2(h, r[0]) for h, r in zip(outputs, references, strict=True)) / len(outputs)
    columns = [list(column) for column in zip(*references, strict=True)]
    return sacrebleu.corpus_bleu(outputs, columns, tokenize="none", force=True).score


@every_task
def test_same_seed_gives_the_same_data_and_leaves_the_global_generators_alone(name):
    random.seed(3)
    before = random.getstate(), torch.get_rng_state()
    one, two, other = (TASKS[name](seed, train=300, valid=20, test=30) for seed in (4, 4, 5))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])

    assert one.target_vocab == two.target_vocab
    assert one.source_vocab == two.source_vocab
    for a, b, c in zip(splits(one), splits(two), splits(other), strict=True):
        assert a.meta == b.meta
        assert a.references == b.references
        torch.testing.assert_close(a.sources, b.sources, rtol=0, atol=0)
        assert [meta["source"] for meta in a.meta] != [meta["source"] for meta in c.meta]


@every_task
def test_default_task_is_generated_in_under_three_seconds(name):
    start = time.process_time()
    TASKS[name]()
    assert time.process_time() - start < 3


@every_task
def test_task_has_the_sizes_asked_for_and_crops_nothing(name):
    task = TASKS[name](seed=2, train=300, valid=20, test=30)
    assert task.name == f"toy-{name}"
    assert [len(split) for split in splits(task)] == [300, 20, 30]
    assert [len(split.meta) for split in splits(task)] == [300, 20, 30]
    for split in splits(task):
        assert all(len(words) <= task.length for group in split.references for words in group)
    longest = max(len(text.split()) for split in splits(task) for meta in split.meta for text in meta["variants"])
    assert task.length == longest + 1  # EOS


@every_task
def test_every_word_of_the_test_split_is_known(name):
    task = made(name)
    for meta, group in zip(task.test.meta, task.test.references, strict=True):
        assert [task.target_vocab.decode(words) for words in group] == list(meta["references"])


@every_task
def test_no_source_is_in_two_splits_or_twice_in_one(name):
    sources = [meta["source"] for split in splits(made(name)) for meta in split.meta]
    assert len(sources) == len(set(sources))


@every_task
def test_references_are_among_the_variants_and_probabilities_sum_to_one(name):
    count = 5 if name == "captioning" else 1
    for split in splits(made(name)):
        for meta in split.meta:
            assert len(meta["references"]) == count
            assert set(meta["references"]) <= set(meta["variants"])
            assert sum(meta["variants"].values()) == pytest.approx(1)
            assert min(meta["variants"].values()) > 0


@every_task
def test_references_are_drawn_with_the_probabilities_of_the_variants(name):
    """By rank of the variant: how often it was drawn against how often it should have been, within 4.5 deviations."""
    expected, variance, drawn = Counter(), Counter(), Counter()
    for meta in made(name).train.meta:
        for i, (text, probability) in enumerate(meta["variants"].items()):
            expected[i] += probability * len(meta["references"])
            variance[i] += probability * (1 - probability) * len(meta["references"])
            drawn[i] += meta["references"].count(text)
    for i in expected:
        assert abs(drawn[i] - expected[i]) < 4.5 * variance[i] ** 0.5


@every_task
def test_best_outputs_are_the_best_variants_by_brute_force(name):
    split, score = made(name).test, SCORES[name]
    outputs = toy.best_outputs(split, each(score))
    for meta, output in list(zip(split.meta, outputs, strict=True))[::25]:
        expected = {
            hypothesis: sum(p * score(hypothesis, reference) for reference, p in meta["variants"].items())
            for hypothesis in meta["variants"]
        }
        assert expected[output] == pytest.approx(max(expected.values()))


def most_likely_words(variants):
    """What greedy search on a perfect model of words writes: the most likely next word, until the sentence ends."""
    written = []
    while written[-1:] != ["</s>"]:
        following = Counter()
        for text, probability in variants.items():
            words = [*text.split(), "</s>"]
            if words[: len(written)] == written:
                following[words[len(written)]] += probability
        written.append(max(following, key=following.__getitem__))
    return " ".join(written[:-1])


@every_task
def test_best_outputs_leave_room_above_greedy_search(name):
    split = made(name).test
    best = toy.best_outputs(split, each(SCORES[name]))
    greedy = [most_likely_words(meta["variants"]) for meta in split.meta]
    assert corpus(name, best, split) > corpus(name, greedy, split) + 5


@pytest.mark.parametrize("name", ["translation", "summarization"])
def test_greedy_output_is_also_the_most_likely_sentence(name):
    """So that no beam search on a perfect model of words would close the gap."""
    split = made(name).test
    for variants in (meta["variants"] for meta in split.meta):
        assert variants[most_likely_words(variants)] == pytest.approx(max(variants.values()))


def test_best_outputs_shares_work_only_between_sources_whose_words_repeat_alike():
    variants = [{"a x": 0.3, "b y": 0.4, "a z": 0.3}, {"a x": 0.3, "b y": 0.4, "c z": 0.3}]
    variants.append({"k l": 0.3, "m n": 0.4, "k o": 0.3})  # the first in other words
    split = Split([[]] * 3, [[[]]] * 3, [{"variants": each} for each in variants])
    calls = []

    def shared(hypothesis: str, reference: str) -> float:
        calls.append(hypothesis)
        return len(set(hypothesis.split()) & set(reference.split())) / 2

    assert toy.best_outputs(split, each(shared)) == ["a x", "b y", "k l"]
    assert len(calls) == 2 * 3 * 3


def test_expected_score_weighs_references_by_probability():
    assert toy.variants.expected_score(
        "a", {"a": 0.75, "b": 0.25}, each(lambda h, r: 1.0 if h == r else 0.2)
    ) == pytest.approx(0.8)


def test_asking_for_more_sources_than_the_grammar_has_says_how_many_there_are():
    with pytest.raises(DataError) as caught:
        distinct(random.Random(0), lambda rng: rng.randrange(6), 10)
    assert str(caught.value) == (
        "toy task: asked for 10 different sources, but the grammar gave only 6 in 500 attempts; "
        "ask for fewer training, validation or test examples"
    )


def test_translation_puts_the_verb_last_in_the_source_and_second_in_the_spoken_target():
    clause = Clause(Noun("gard", True, "gam"), Noun("bat", False, "rod"), "kop", "past", "igar", "torga")
    assert source(clause) == "igar gamar garder torga rodan baten kopta"
    variants = translations(clause)
    assert variants["yesterday the old farmers bought the red boat at the market"] == pytest.approx(0.65 / 4 * 0.7)
    assert variants["a day earlier the old farmers bought the red boat"] == pytest.approx(0.65 / 4 * 0.3)
    assert variants["the red boat was bought by the old farmers at the market yesterday"] == pytest.approx(0.35 * 0.48)
    assert variants["the red boat was bought at the market by the old growers yesterday"] == pytest.approx(0.35 * 0.04)
    assert len(variants) == 4 * 2 + 3 * 2


@pytest.mark.parametrize(
    ("plural", "tense", "spoken", "written"),
    [
        (False, "present", "sees", "is seen"),
        (True, "present", "see", "are seen"),
        (False, "past", "saw", "was seen"),
        (True, "past", "saw", "were seen"),
        (False, "future", "will see", "will be seen"),
        (True, "future", "will see", "will be seen"),
    ],
)
def test_verbs_agree_with_the_subject_when_active_and_with_the_object_when_passive(plural, tense, spoken, written):
    for other in (False, True):
        assert active(Clause(Noun("kong", plural, None), Noun("kat", other, None), "ser", tense, None, None)) == spoken
        assert (
            passive(Clause(Noun("kong", other, None), Noun("kat", plural, None), "ser", tense, None, None)) == written
        )


def test_adjectives_agree_with_their_noun_in_number_and_case():
    rng = random.Random(0)
    for _ in range(200):
        clause = invent_clause(rng)
        words = source(clause).split()
        for noun, case in ((clause.subject, ""), (clause.object, "n")):
            ending = ("r" if noun.plural else "") + case
            at = words.index(f"{noun.stem}e{ending}")
            if noun.adjective:
                assert words[at - 1] == f"{noun.adjective}a{ending}"


def test_irregular_plurals_are_used():
    every = set(chain.from_iterable(text.split() for m in made("translation").train.meta for text in m["variants"]))
    assert set(PLURALS.values()) <= every
    assert not {f"{name}s" for name in PLURALS} & every


def test_headlines_are_short_or_full_and_keep_nothing_but_the_news():
    item = Item("peru", "army", "stop", "oil", "sales", "days", "riots", "said on friday", "new", "angry", True)
    variants = headlines(item)
    assert variants["peru stops oil sales"] == pytest.approx((1 - FULL) * 0.8)
    assert variants["troops of peru to stop oil sales amid days of riots"] == pytest.approx(FULL * 0.6 / 9)
    assert sum(p for text, p in variants.items() if not text.startswith("peru")) == pytest.approx(FULL)
    pattern = r"(peru stops|(army|troops|generals) of peru to stop) oil sales( (after|amid|following) days of riots)?"
    assert all(re.fullmatch(pattern, text) for text in variants)
    assert len(variants) == 4 * 4


@pytest.mark.parametrize("cells", [((0, 0), (0, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0)), ((1, 0), (1, 1))])
def test_render_puts_each_colour_in_its_cell_and_nothing_elsewhere(cells):
    scene = tuple(
        Figure(shape, colour, large, *cell)
        for shape, colour, large, cell in zip(
            ("circle", "triangle"), ("red", "yellow"), (True, False), cells, strict=True
        )
    )
    picture = render(scene)
    assert picture.shape == (3, 2 * CELL, 2 * CELL)
    for row, column in product(range(2), range(2)):
        cell = picture[:, row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]  # (3, CELL, CELL)
        figure = next((f for f in scene if (f.row, f.column) == (row, column)), None)
        expected = COLOURS[figure.colour] if figure else (0.0, 0.0, 0.0)
        assert tuple(cell[:, CELL // 2, CELL // 2].tolist()) == pytest.approx(expected)
        assert set(map(tuple, cell.flatten(1).T.tolist())) <= {(0.0, 0.0, 0.0), expected}


def test_shapes_and_sizes_differ_in_the_pixels_they_cover():
    def area(shape, large):
        return int((render((Figure(shape, "white", large, 0, 0), Figure("circle", "red", False, 1, 1)))[2] > 0).sum())

    sizes = [area(shape, large) for large in (False, True) for shape in ("triangle", "circle", "square")]
    assert sizes == sorted(set(sizes))


def test_captions_name_what_is_in_the_picture():
    scene = (Figure("circle", "red", True, 0, 1), Figure("square", "blue", False, 1, 0))
    variants = captions_of(scene)
    assert variants["image of a large red circle above a small blue square"] == pytest.approx(0.6 / 3 * 0.6)
    assert variants["drawing of a red circle above a blue square"] == pytest.approx(0.6 / 3 * 0.4)
    assert variants["there is a red circle over a blue box"] == pytest.approx(0.4 * 0.6 * 0.6 * 0.6 * 0.4)
    assert variants["there is a blue square beneath a red circle"] == pytest.approx(0.4 * 0.4 * 0.6 * 0.4 * 0.6)
    assert len(variants) == 3 * 2 + 2 * 8


def test_features_are_whitened_and_the_same_for_every_seed():
    task = made("captioning")
    x = task.train.sources  # (n, D)
    assert task.features == x.shape[1] == 64
    assert x.dtype == torch.float32
    assert x.mean(0).abs().max() < 0.2
    assert (x.std(0) - 1).abs().max() < 0.3
    scenes = [meta["scene"] for meta in task.train.meta[:3]]
    torch.testing.assert_close(features(torch.stack([render(scene) for scene in scenes])), x[:3], rtol=1e-3, atol=1e-3)


def test_features_tell_colours_and_shapes_apart():
    """Least squares on the features of the training pictures finds the figure of the top left cell in the test."""
    task = made("captioning")

    def numbers(split, attribute):
        first = [next((f for f in m["scene"] if (f.row, f.column) == (0, 0)), None) for m in split.meta]
        return [None if figure is None else getattr(figure, attribute) for figure in first]

    for attribute, bound in (("colour", 0.98), ("shape", 0.8)):
        answers = numbers(task.train, attribute)
        classes = sorted({answer for answer in answers if answer})
        target = torch.tensor([[float(answer == c) for c in classes] for answer in answers])  # (n, classes)
        weights = torch.linalg.lstsq(task.train.sources, target - target.mean(0)).solution
        guesses = (task.test.sources @ weights + target.mean(0)).argmax(1).tolist()
        pairs = [(classes[g], a) for g, a in zip(guesses, numbers(task.test, attribute), strict=True) if a]
        assert sum(g == a for g, a in pairs) / len(pairs) > bound
