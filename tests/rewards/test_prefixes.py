"""The reward of every prefix, against that of each prefix by itself."""

import pytest
import torch

from seqmixer.rewards import (
    METRICS,
    CharacterTable,
    DocumentFrequencies,
    chrf_metric,
    cider_metric,
    is_replayable,
    of_prefixes,
    on_text,
    with_end,
)
from seqmixer.types import EOS, PAD, Rollout

T = 7
WORDS = torch.tensor([[4, 5, 6, 5, EOS, PAD, PAD], [6, 4, 4, 5, 6, 7, 5], [EOS, *[PAD] * 6]])
REFERENCES = torch.tensor(
    [[[4, 5, 6, 4, EOS, PAD], [5, 6, EOS, PAD, PAD, PAD]], [[6, 4, 4, 5, 6, EOS], [PAD] * 6], [[4, EOS] + [PAD] * 4, [PAD] * 6]]
)  # fmt: skip
NAMES = ["<pad>", "<s>", "</s>", "<unk>", "ab", "b", "cab", "ca"]
TABLE = CharacterTable.build(NAMES)
DOCUMENTS = [[[4, 5, 6, 4, EOS]], [[6, 4, 5, EOS], [7, 5, EOS]]]
BUILT_IN = {
    **METRICS,
    "chrf": chrf_metric(TABLE),
    "chrf++": chrf_metric(TABLE, "chrf++"),
    "cider": cider_metric(DocumentFrequencies.build(DOCUMENTS)),
    "bleu_mean, end": with_end(METRICS["bleu_mean"]),
}


def rollout(start=0):
    return Rollout(WORDS, REFERENCES, start, torch.arange(3).unsqueeze(-1), [{"source": name} for name in "abc"])


def one_by_one(reward, start):
    steps = torch.arange(T)
    each = [Rollout(WORDS.where(steps < n, PAD), REFERENCES, start, rollout().source, rollout().meta) for n in steps]
    return torch.stack([reward(prefix) for prefix in each], 1)


@pytest.mark.parametrize("rows", [1, 7, 1000], ids=lambda rows: f"{rows} at a time")
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_reward_of_prefixes_is_that_of_each_by_itself(name, rows):
    reward = BUILT_IN[name].reward
    for start in (0, 2):
        got = of_prefixes(reward, rows)(rollout(start))
        torch.testing.assert_close(got, one_by_one(reward, start))
    assert got.shape == (3, T)
    assert is_replayable(of_prefixes(reward))


def test_a_python_function_gets_the_text_of_each_prefix_beside_its_own_references():
    seen = []

    def reward(hypothesis, references):
        seen.append((hypothesis, references))
        return float(len(hypothesis))

    function = on_text(reward, decode=lambda ids: " ".join(NAMES[i] for i in ids if i > EOS))
    meta = [{"references": [f"of {name}"], "source": name} for name in "abc"]
    got = of_prefixes(function)(Rollout(WORDS, REFERENCES, meta=meta))
    assert got[0].tolist() == [0, 2, 4, 8, 10, 10, 10]
    assert ("ab b cab", ["of a"]) in seen
    assert ("cab ab", ["of b"]) in seen
    assert ("cab ab", ["of a"]) not in seen
    assert not is_replayable(of_prefixes(function))
