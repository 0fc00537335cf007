"""Candidates that are compared with one another, without references."""

import pytest
import torch

from seqmixer.build import Metrics
from seqmixer.config import Config
from seqmixer.data import toy
from seqmixer.errors import ConfigError
from seqmixer.rewards import METRICS, consensus, is_replayable
from seqmixer.types import EOS, PAD, Rollout


def sentences(rows, width, words):
    """Random words, ended at random lengths."""
    steps, end = torch.arange(width), torch.randint(1, width, (rows, 1))
    return torch.randint(4, words, (rows, width)).masked_fill(steps == end, EOS).masked_fill(steps > end, PAD)


@pytest.mark.parametrize("name", ["rouge_l", "edit", "bleu_mean"])
def test_each_sentence_is_rewarded_with_its_mean_score_against_the_others(name):
    words, reward = sentences(12, 6, words=7), METRICS[name].reward
    found = consensus(reward)(Rollout(words, torch.full((12, 1, 6), 5), k=4))

    for i in range(12):
        others = [j for j in range(i // 4 * 4, i // 4 * 4 + 4) if j != i]
        scores = [float(reward(Rollout(words[i : i + 1], words[j : j + 1].unsqueeze(1)))) for j in others]
        assert float(found[i]) == pytest.approx(sum(scores) / 3, abs=1e-6)


def test_it_is_replayable_where_the_metric_is_and_alone_a_sentence_agrees_with_nobody():
    assert is_replayable(consensus(METRICS["edit"].reward))
    assert not is_replayable(consensus(lambda rollout: rollout.words[:, 0]))
    words = torch.tensor([[4, 2], [5, 2]])
    assert consensus(METRICS["edit"].reward)(Rollout(words, words.unsqueeze(1))).tolist() == [0, 0]


def test_a_config_rewards_agreement_and_validates_by_references():
    task = toy.translation(seed=1, train=4, valid=4, test=4)
    table = {"against": "candidates", "name": "edit"}
    metrics = Metrics(Config.parse({"reward": table, "algorithm": {"name": "best-of-n"}}), task)
    words = torch.tensor([[4, 5, 2], [4, 5, 2], [6, 7, 2]])
    references = torch.tensor([[[6, 7, 2]]]).expand(3, -1, -1)

    assert metrics.reward(Rollout(words, references, k=3)).tolist() == pytest.approx([0.5, 0.5, 0], abs=1e-6)
    assert metrics.chosen[0].reward(Rollout(words, references)).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("reward", "algorithm", "message"),
    [
        ({}, {"name": "reinforce"}, r"reward\.against = 'candidates' needs several sentences for each source; set alg"),
        (
            {},
            {"name": "rloo", "shaped": True},
            r"algorithm\.shaped = true rewards words .* set algorithm\.shaped to false",
        ),
        ({"name": "mine:f"}, {"name": "best-of-n"}, r"reward\.against = 'candidates' is for built-in metrics, not for"),
    ],
)
def test_what_has_no_others_to_agree_with_is_refused(reward, algorithm, message):
    with pytest.raises(ConfigError, match=message):
        Config.parse({"reward": {"against": "candidates", **reward}, "algorithm": algorithm})
