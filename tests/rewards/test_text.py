import re

import pytest
import torch

from seqmixer.errors import RewardError
from seqmixer.rewards import on_text, on_words
from seqmixer.types import EOS, PAD, Rollout

NAMES = ["<pad>", "<s>", "</s>", "<unk>", "the", "cat", "sat"]


def decode(ids):
    return " ".join(NAMES[i] for i in ids)


def rollout():
    words = torch.tensor([[4, 5, 6], [5, EOS, PAD], [EOS, PAD, PAD]])  # the first is cropped, the last empty
    references = torch.tensor([[[4, 5, EOS], [PAD] * 3], [[5, EOS, PAD], [4, 5, 6]], [[5, EOS, PAD], [EOS, PAD, PAD]]])
    meta = [
        {"source": "die Katze", "references": ["the cat"]},
        {"source": "Katze", "references": ["cat", "the cat sat"]},
        {"source": "", "references": ["cat", ""]},
    ]
    return Rollout(words, references, meta=meta)


def message(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def best_overlap(hypothesis, references):
    return max(len(set(hypothesis) & set(r)) / (1 + len(hypothesis) + len(r)) for r in references)


def test_text_and_words_give_the_same_reward():
    def of_text(hypothesis, references):
        return best_overlap(hypothesis.split(), [r.split() for r in references])

    text, words = on_text(of_text, decode)(rollout()), on_words(best_overlap)(rollout())
    assert words.tolist() == text.tolist()
    torch.testing.assert_close(words, torch.tensor([2 / 6, 1 / 3, 0.0]))
    assert words.dtype == torch.float32


def test_a_function_of_words_sees_them_without_eos_and_without_missing_references():
    seen = []
    on_words(lambda hypothesis, references: seen.append((hypothesis, references)) or 0.0)(rollout())
    assert seen == [([4, 5, 6], [[4, 5]]), ([5], [[5], [4, 5, 6]]), ([], [[5], []])]


def test_with_eos_a_function_sees_where_a_sentence_ended():
    seen = []

    def see(hypothesis, references):
        seen.append((hypothesis, references))
        return 0.0

    on_words(see, eos=True)(rollout())
    assert seen == [([4, 5, 6], [[4, 5, 2]]), ([5, 2], [[5, 2], [4, 5, 6]]), ([2], [[5, 2], [2]])]
    seen.clear()
    on_text(see, decode, eos=True)(rollout())
    ends = ["the cat </s>"], ["cat </s>", "the cat sat </s>"], ["cat </s>", " </s>"]
    assert seen == list(zip(["the cat sat", "cat </s>", " </s>"], ends, strict=True))


def test_a_function_of_text_sees_the_references_as_they_were_written():
    seen = []
    on_text(lambda hypothesis, references: seen.append((hypothesis, references)) or 0.0, decode)(rollout())
    assert seen == [("the cat sat", ["the cat"]), ("cat", ["cat", "the cat sat"]), ("", ["cat", ""])]


def test_a_third_parameter_is_the_source():
    reward = on_text(lambda hypothesis, references, source: len(source), decode)
    assert reward(rollout()).tolist() == [9, 5, 0]


def test_parameters_with_a_default_keep_it():
    def scaled(hypothesis, references, scale=2.0, *, offset=1.0):
        return scale * len(references) + offset

    assert on_text(scaled, decode)(rollout()).tolist() == [3, 5, 5]


def test_further_columns_come_with_the_text():
    given = rollout()
    meta = [{**row, "year": 1990 + i, "id": i} for i, row in enumerate(given.meta)]
    asked = Rollout(given.words, given.references, meta=meta)
    seen = []

    def of_year(hypothesis, references, *, year):
        return year

    def of_all(hypothesis, references, **columns):
        seen.append(columns)
        return 0.0

    assert on_text(of_year, decode)(asked).tolist() == [1990, 1991, 1992]
    on_text(of_all, decode)(asked)
    assert seen[1] == {"source": "Katze", "year": 1991, "id": 1}


def test_a_function_cannot_change_the_data():
    given = rollout()
    on_text(lambda hypothesis, references: float(bool(references.clear())), decode)(given)
    assert given.meta == rollout().meta


def test_an_exception_names_the_function_and_the_sentence():
    def ratio(hypothesis, references):
        return 1 / len(hypothesis)

    why = f"division by zero ({__file__}:{ratio.__code__.co_firstlineno + 1})"
    with message(RewardError, f"reward 'ratio' raised ZeroDivisionError for sequence 2, '': {why}") as text:
        on_text(ratio, decode)(rollout())
    assert isinstance(text.value.__cause__, ZeroDivisionError)
    with message(RewardError, f"reward 'ratio' raised ZeroDivisionError for sequence 2, []: {why}"):
        on_words(ratio)(rollout())


class Scorer:
    def __init__(self, value):
        self.value = value

    def __call__(self, hypothesis, references):
        return self.value


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "None"), ("good", "'good'"), (float("nan"), "nan"), (float("-inf"), "-inf"), (1e300, "inf")],
)
def test_what_is_no_finite_number_is_refused_with_its_sentence(value, shown):
    rest = "; a reward is one finite number"
    with message(RewardError, f"reward 'Scorer' returned {shown} for sequence 0, 'the cat sat'{rest}"):
        on_text(Scorer(value), decode)(rollout())
    with message(RewardError, f"reward 'Scorer' returned {shown} for sequence 0, [4, 5, 6]{rest}"):
        on_words(Scorer(value))(rollout())


def test_text_that_did_not_come_is_asked_for():
    words = rollout().words
    reward = on_text(Scorer(0.0), decode)
    asked = "3 sequences came with the text of 0; give `meta` to the rollout, one row per sequence"
    with message(RewardError, f"reward 'Scorer' reads text, but {asked}"):
        reward(Rollout(words, words.unsqueeze(1)))
    image = Rollout(words[:2], words[:2].unsqueeze(1), meta=[{"source": "", "references": []}, {"image": 7, "id": 3}])
    with message(
        RewardError, "reward 'Scorer' reads the column 'references', missing for sequence 1; it has: id, image"
    ):
        reward(image)
    bare = Rollout(words[:1], words[:1].unsqueeze(1), meta=[{"references": ["the"]}])
    with message(
        RewardError, "reward '<lambda>' reads the column 'source', missing for sequence 0; it has: references"
    ):
        on_text(lambda h, r, source: 0.0, decode)(bare)
    with message(
        RewardError, "reward '<lambda>' reads the column 'source', missing for sequence 0; it has: references"
    ):
        on_words(lambda h, r, source: 0.0)(rollout())
    with message(RewardError, "reward 'Scorer' reads the column 'references', missing for sequence 0; it has: none"):
        reward(Rollout(words[:1], words[:1].unsqueeze(1), meta=[{}]))
