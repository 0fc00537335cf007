import asyncio
import itertools
import json
import re
import sys
import time

import pytest

from seqmixer.errors import RewardError
from seqmixer.functions import read, scores

ROWS = [
    {"hypothesis": "the cat", "references": ["the cat", "a cat"], "source": "die Katze", "year": 1990},
    {"hypothesis": "dog", "references": ["the dog"], "source": "Hund", "year": 1991},
    {"hypothesis": "", "references": ["yes"], "source": "ja", "year": 1992},
]
EXPECTED = [2 + 9 + 1990, 1 + 4 + 1991, 1 + 2 + 1992]  # references, letters of the source, year
BATCH = "a batch of 3 sequences, the first 'the cat'"
TAKES = "(hypothesis, references, ...), (hypotheses, references, ...) for a batch, or (completions, ...) as in TRL"


def called(function, first=0):
    scorer = read(function)
    columns = scorer.columns(list(ROWS[0]))
    return list(scores(scorer, [{column: row[column] for column in columns} for row in ROWS], first))


def message(text):
    return pytest.raises(RewardError, match=f"^{re.escape(text)}$")


def of_one(hypothesis, references, source, year):
    return len(references) + len(source) + year


def of_one_with_columns(hypothesis, references, **columns):
    return of_one(hypothesis, references, **columns)


def of_one_by_position(h, r, /, *, year, source):
    return of_one(h, r, source, year)


def of_batch(hypotheses, references, sources, year):
    return list(map(of_one, hypotheses, references, sources, year))


def of_batch_with_columns(hypotheses, references, **columns):
    return of_batch(hypotheses, references, **columns)


def of_trl(completions, **columns):
    """As TRL's examples are written."""
    return [
        len(r) + len(p) + y for r, p, y in zip(columns["references"], columns["prompts"], columns["year"], strict=True)
    ]


def of_trl_by_name(prompts, completions, references, year=None):
    return of_trl(completions, prompts=prompts, references=references, year=year)


async def awaited_one(hypothesis, references, source, year):
    await asyncio.sleep(0)
    return of_one(hypothesis, references, source, year)


async def awaited_batch(hypotheses, references, sources, year):
    await asyncio.sleep(0)
    return of_batch(hypotheses, references, sources, year)


async def awaited_trl(completions, **columns):
    return of_trl(completions, **columns)


class Awaited:
    async def __call__(self, hypothesis, references, source, year):
        return of_one(hypothesis, references, source, year)


@pytest.mark.parametrize(
    "function",
    [
        of_one, of_one_with_columns, of_one_by_position, of_batch, of_batch_with_columns, of_trl, of_trl_by_name,
        awaited_one, awaited_batch, awaited_trl, Awaited(),
    ],
)  # fmt: skip
def test_every_kind_gives_the_same_scores(function):
    assert called(function) == EXPECTED


def test_a_function_is_given_what_its_kind_calls_the_columns():
    seen = []

    def kind(completions, **columns):
        seen.append({"completions": completions, **columns})
        return [0.0] * 3

    called(kind)
    assert seen == [
        {
            "completions": ["the cat", "dog", ""],
            "references": [["the cat", "a cat"], ["the dog"], ["yes"]],
            "prompts": ["die Katze", "Hund", "ja"],
            "year": [1990, 1991, 1992],
        }
    ]


def test_columns_that_nobody_asks_for_are_not_sent():
    assert read(lambda h, r: 0.0).columns(["year", "source"]) == ["hypothesis", "references"]
    assert read(lambda h, r, year=None: 0.0).columns(["year", "source"]) == ["hypothesis", "references", "year"]
    assert read(lambda h, r, year=None: 0.0).columns(["source"]) == ["hypothesis", "references"]
    assert read(lambda hypotheses, sources: 0.0).columns(["references"]) == ["hypothesis", "source"]


def test_sentences_of_a_coroutine_function_are_awaited_together():
    most, now = 0, 0

    async def waits(hypothesis, references):
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return 0.0

    called(waits)
    assert most == 3


def test_a_coroutine_function_works_inside_a_running_loop():
    async def notebook():
        return called(awaited_one)

    assert asyncio.run(notebook()) == EXPECTED


def test_scores_come_as_soon_as_they_are_there():
    def slow_at_last(hypothesis, references):
        return time.sleep(0 if hypothesis else 60) or 1.0

    rows = [{"hypothesis": row["hypothesis"], "references": row["references"]} for row in ROWS]
    values = scores(read(slow_at_last), rows)
    assert [next(values), next(values)] == [1.0, 1.0]


def one(hypothesis):
    return 0.0


def quality(hypothesis, source):
    return 0.0


def star(*columns):
    return 0.0


def third(hypothesis, references, source, /):
    return 0.0


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (one, "'one' takes (hypothesis)"),
        (quality, "'quality' takes (hypothesis, source)"),
        (star, "'star' takes (*columns)"),
        (third, "'third' takes (hypothesis, references, source)"),
    ],
)
def test_functions_with_other_parameters_are_refused(function, takes):
    with message(f"reward {takes}; a function used as a reward takes {TAKES}"):
        read(function)


def test_a_function_without_a_signature_is_refused():
    with message(f"reward 'dict' hides its parameters; wrap it in a function that takes {TAKES}"):
        read(dict)


def ratio(hypothesis, references):
    return 1 / len(hypothesis)


async def awaited_ratio(hypothesis, references):
    return 1 / len(hypothesis)


def ratios(hypotheses, references):
    return [1 / len(hypothesis) for hypothesis in hypotheses]


async def awaited_ratios(hypotheses, references):
    return ratios(hypotheses, references)


@pytest.mark.parametrize(
    ("function", "where"),
    [(ratio, "sequence 66, ''"), (awaited_ratio, "sequence 66, ''"), (ratios, BATCH), (awaited_ratios, BATCH)],
)
def test_an_exception_names_the_function_and_the_sentence_or_the_batch(function, where):
    own = ratios if function is awaited_ratios else function
    place = f"{__file__}:{own.__code__.co_firstlineno + 1}"
    text = f"reward '{function.__name__}' raised ZeroDivisionError for {where}: division by zero ({place})"
    with message(text) as raised:
        called(function, first=64)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_long_exception_is_one_line():
    def talks(hypothesis, references):
        raise ValueError("no\n  idea\n")

    place = f"{__file__}:{talks.__code__.co_firstlineno + 1}"
    with message(f"reward 'talks' raised ValueError for sequence 0, 'the cat': no idea ({place})"):
        called(talks)


def test_an_exception_in_a_library_is_placed_where_the_function_called_it():
    def reads(hypothesis, references):
        return json.loads(hypothesis)

    place = f"{__file__}:{reads.__code__.co_firstlineno + 1}"
    with pytest.raises(RewardError, match=rf"raised JSONDecodeError for sequence 0, .* \({re.escape(place)}\)$"):
        called(reads)


def test_a_function_that_wants_to_end_the_program_only_fails():
    def ends(hypothesis, references):
        sys.exit(3)

    with pytest.raises(RewardError, match=r"^reward 'ends' raised SystemExit for sequence 0, 'the cat': 3 \("):
        called(ends)


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ([0.5], "1 numbers"),
        ([0.5] * 4, "more than 3 numbers"),
        (itertools.count(), "more than 3 numbers"),
        (0.5, "a float"),
        (None, "a NoneType"),
    ],
)
def test_a_batch_has_one_number_per_sequence(value, got):
    def fixed(hypotheses, references):
        return value

    async def fixed_later(completions):
        return value

    for function in (fixed, fixed_later):
        text = (
            f"reward '{function.__name__}' returned {got} for {BATCH}; a batched reward gives one number per sequence"
        )
        with message(text):
            called(function)


@pytest.mark.parametrize("bad", [None, "good", [1.0, 2.0]])
def test_what_is_no_number_is_refused_with_its_sentence(bad):
    def mixed(hypotheses, references):
        return [0.0, bad, 0.0]

    with message(f"reward 'mixed' returned {bad!r} for sequence 33, 'dog'; a reward is one finite number"):
        called(mixed, first=32)


def test_a_number_too_large_for_any_float_is_refused():
    with pytest.raises(RewardError, match=r"for sequence 0, '.*'; a reward is one finite number"):
        called(lambda hypothesis, references: 10**400)


class Unlucky:
    """A number that cannot be read, of which nothing can be said."""

    def __init__(self, error):
        self.error = error

    def __float__(self):
        raise self.error

    def __repr__(self):
        raise KeyError


class Silent(BaseException):
    def __str__(self):
        raise KeyError


@pytest.mark.parametrize("error", [KeyError("a"), SystemExit(3), Silent(), RecursionError()])
def test_whatever_a_value_raises_is_one_line(error):
    with pytest.raises(RewardError, match=r"^reward '<lambda>' returned .* for sequence 0, 'the cat'; a reward is .*$"):
        called(lambda hypothesis, references: Unlucky(error))


@pytest.mark.parametrize("value", ["x" * 10**6, [1.0] * 10**6, {"a": list(range(10**6))}])
def test_of_a_huge_value_a_message_shows_the_beginning(value):
    with pytest.raises(RewardError, match=r"returned .{1,1000} for sequence 0") as raised:
        called(lambda hypothesis, references: value)
    assert len(str(raised.value)) < 1200


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), Silent(), asyncio.CancelledError(), ValueError("x" * 10**6)]
)
def test_odd_exceptions_are_one_line_of_every_kind_of_function(error):
    def one(hypothesis, references):
        raise error

    async def awaited(hypothesis, references):
        raise error

    def lazy(hypotheses, references):
        yield 1.0
        raise error

    for function in (one, awaited, lazy):
        with pytest.raises(RewardError, match=rf"^reward '\w+' raised {type(error).__name__} for .*$") as raised:
            called(function)
        assert len(str(raised.value)) < 1200
