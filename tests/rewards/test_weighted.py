import re

import pytest
import torch

from seqmixer.errors import ConfigError
from seqmixer.rewards import Startable, parse, weighted
from seqmixer.types import Rollout


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("bleu", [(1.0, "bleu")]),
        ("0.5*bleu + 0.5*rouge_l", [(0.5, "bleu"), (0.5, "rouge_l")]),
        ("bleu-.25 * mine.module:price", [(1.0, "bleu"), (-0.25, "mine.module:price")]),
        ("-1e-2*length+2*cider", [(-0.01, "length"), (2.0, "cider")]),
        ("0.5*chrf++ + bleu", [(0.5, "chrf++"), (1.0, "bleu")]),
    ],
)
def test_a_sum_is_read_as_it_is_written(text, terms):
    assert parse(text) == terms


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("", ""),
        ("0.5*", "0.5*"),
        ("bleu rouge_l", "bleu rouge_l"),
        ("bleu + ", "+ "),
        ("bleu * 2", "bleu * 2"),
        ("2", "2"),
    ],
)
def test_what_is_no_sum_is_one_clear_line(text, rest):
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert str(error.value) == (
        f"reward {text!r}: no sum of rewards from {rest!r} on; write for example '0.5*bleu + 0.5*rouge_l'"
    )


def test_the_weighted_sum_begins_every_reward_before_it_waits_for_any():
    events = []

    def slow(name, value):
        def start(rollout):
            events.append(f"begin {name}")
            return lambda: events.append(f"wait {name}") or torch.full((2,), value)

        return Startable(start)

    words = torch.ones(2, 3, dtype=torch.long)
    reward = weighted(
        [(0.5, slow("a", 1.0)), (-2.0, slow("b", 3.0)), (1.0, lambda rollout: torch.tensor([10.0, 20.0]))]
    )
    assert reward(Rollout(words, words.unsqueeze(1))).tolist() == [4.5, 14.5]
    assert events == ["begin a", "begin b", "wait a", "wait b"]


def test_names_with_a_stray_character_are_refused_where_it_stands():
    with pytest.raises(ConfigError, match=re.escape("from '+ @x' on")):
        parse("bleu + @x")


@pytest.mark.parametrize("text", ["1e999*bleu", "bleu - 1e7*length"])
def test_a_weight_out_of_range_is_refused(text):
    with pytest.raises(ConfigError, match=r"a weight of (inf|-1e\+07); allowed are weights up to 1e\+06$"):
        parse(text)
