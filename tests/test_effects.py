"""Side effects against plain Python that counts them sentence by sentence."""

import random

import pytest
import torch

from sentences import row
from seqmixer.data import Split, Table
from seqmixer.evaluation.effects import effects, repeated_4grams, repeating, unfinished
from seqmixer.types import EOS, UNK


def table(references):
    split = Split(
        [[EOS]] * len(references), [[[*r, EOS] for r in several] for several in references], [{}] * len(references)
    )
    return Table.of(split)


def in_a_repeat(sentence):
    """Which words are in the second of two equal n-grams in a row."""
    found = set()
    for n in range(1, 5):
        for i in range(len(sentence) - 2 * n + 1):
            if sentence[i : i + n] == sentence[i + n : i + 2 * n]:
                found |= set(range(i + n, i + 2 * n))
    return found


def grams(sentence, n):
    return [tuple(sentence[i : i + n]) for i in range(len(sentence) - n + 1)]


def counted(hypotheses, references, width):
    written = sum(map(len, hypotheses))
    expected = sum(sum(min(len(r), width) for r in several) / len(several) for several in references)
    all_references = [r for several in references for r in several]
    last = 0
    for words in hypotheses:
        if 0 < len(words) < width:
            places = sum(r.count(words[-1]) for r in all_references)
            ends = sum(r[-1:] == [words[-1]] for r in all_references)
            last += (ends + 1) / (places + 1) < 0.01
    fours = [grams(words, 4) for words in hypotheses]
    shares = {n: [gram for words in hypotheses for gram in grams(words, n)] for n in (1, 2)}
    return {
        "length_ratio": written / expected,
        "cut": sum(len(words) >= width for words in hypotheses) / len(hypotheses),
        "unfinished": last / len(hypotheses),
        "repetition": sum(len(in_a_repeat(words)) for words in hypotheses) / written,
        "repeated_4grams": sum(1 - len(set(four)) / len(four) for four in fours if four) / len(hypotheses),
        "unk": sum(words.count(UNK) for words in hypotheses) / written,
        "distinct_1": len(set(shares[1])) / len(shares[1]),
        "distinct_2": len(set(shares[2])) / len(shares[2]),
    }


@pytest.mark.parametrize("kinds", [2, 5, 30])
def test_each_is_what_plain_python_counts(kinds):
    draw = random.Random(kinds)
    width = 11
    vocabulary = [UNK, *range(4, 4 + kinds)]
    hypotheses = [draw.choices(vocabulary, k=draw.randint(0, width)) for _ in range(60)]
    hypotheses[:2] = [[5, 4], [4, 5, 4, 4, 4, 5, 4, 4]]
    references = [
        [draw.choices(vocabulary, k=draw.randint(0, 14)) for _ in range(draw.randint(1, 3))] for _ in hypotheses
    ]
    for several in references:
        several[0] += [4, 4, 4, 5]  # 4 is never the last, and there more than a hundred times
        for reference in several[1:]:
            while reference and reference[-1] == 4:
                reference.pop()
    words = torch.tensor([row(h, width) for h in hypotheses])
    found = effects(words, table(references), torch.tensor([7.0, 4.0]))
    expected = counted(hypotheses, references, width) | {"entropy": 7 / 4}
    assert found == pytest.approx(expected, abs=1e-6)
    assert expected["unfinished"] > 0
    assert expected["repetition"] > 0
    assert 0 < expected["cut"] < 1


def test_a_repeat_is_marked_as_a_whole():
    a_cat_of_a_cat_of_it = torch.tensor([row([4, 5, 6, 4, 5, 6, 7], 9)])
    assert repeating(a_cat_of_a_cat_of_it).tolist() == [[False] * 3 + [True] * 3 + [False] * 3]


def test_a_rare_word_at_the_end_is_no_unfinished_end():
    seen = [8] * 98 + [4]  # 8 is in 98 places, never the last; 9 in none
    words = torch.tensor([row([4, 8], 4), row([9], 4), [EOS, 0, 0, 0]])
    once_more = torch.tensor([*seen, EOS, 8, 4, EOS])
    assert unfinished(words, torch.tensor([*seen, EOS])).tolist() == [False, False, False]
    assert unfinished(words, torch.cat([once_more, once_more])).tolist() == [True, False, False]


def test_short_sentences_have_no_4_grams():
    assert repeated_4grams(torch.tensor([[4, 4, 4], [4, EOS, 0]])).tolist() == [0, 0]
    assert repeated_4grams(torch.tensor([[4, 4, 4, 4, 4, EOS]])).tolist() == [0.5]
