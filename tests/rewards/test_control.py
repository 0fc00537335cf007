from collections import Counter
from itertools import permutations

import pytest
import torch

from seqmixer.build import Metrics
from seqmixer.config import Config
from seqmixer.data import toy
from seqmixer.errors import ConfigError
from seqmixer.rewards import CONTROLS, METRICS, Startable, begin, is_replayable
from seqmixer.types import Rollout

CALLS = 6000


def rollout(n, k):
    words = torch.arange(4, 4 + n).unsqueeze(-1)
    return Rollout(words, words.unsqueeze(1), k=k)


def first(rollout):
    return rollout.words[:, 0].double()


def test_within_a_group_every_order_is_as_likely_and_no_reward_leaves_its_group():
    control, counts = CONTROLS["shuffled-in-group"](first), Counter()
    for _ in range(CALLS):
        r = control(rollout(6, 3)).tolist()
        assert set(r[:3]) == {4, 5, 6}
        assert set(r[3:]) == {7, 8, 9}
        counts[tuple(r[:3])] += 1

    assert set(counts) == set(permutations((4.0, 5.0, 6.0)))
    expected = CALLS / 6
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 20.5  # 99.9 % of chi-square, 5 df


def test_in_the_batch_every_order_is_as_likely_whatever_the_groups():
    control = CONTROLS["shuffled-in-batch"](first)
    counts = Counter(tuple(control(rollout(4, 2)).tolist()) for _ in range(CALLS))

    assert set(counts) == set(permutations((4.0, 5.0, 6.0, 7.0)))
    expected = CALLS / 24
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 49.8  # 23 df


def test_a_constant_is_1_for_all_and_the_reward_is_not_asked():
    def never(rollout):
        raise AssertionError

    assert CONTROLS["constant"](never)(rollout(3, 1)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_replayable_where_its_reward_is(name):
    assert is_replayable(CONTROLS[name](METRICS["edit"].reward))
    assert is_replayable(CONTROLS[name](first)) == (name == "constant")


def test_a_reward_that_can_be_begun_is_begun_at_once():
    order = []

    def start(rollout):
        order.append("begun")
        return lambda: order.append("collected") or first(rollout)

    pending = begin(CONTROLS["shuffled-in-group"](Startable(start)), rollout(2, 2))
    assert order == ["begun"]
    pending()
    assert order == ["begun", "collected"]


def test_a_config_controls_the_reward_and_nothing_else():
    task = toy.translation(seed=1, train=4, valid=4, test=4)
    config = Config.parse({"reward": {"control": "constant", "name": "edit"}})
    metrics = Metrics(config, task)
    words = torch.tensor([[4, 5, 2], [6, 2, 0]])
    given = Rollout(words, torch.tensor([[[4, 5, 2]], [[7, 8, 2]]]))

    assert metrics.reward(given).tolist() == [1, 1]
    assert metrics.chosen[0].reward(given).tolist() == [1, 0]


def test_what_is_compared_with_nothing_cannot_be_shuffled_in_its_group():
    with pytest.raises(
        ConfigError, match=r"reward\.control = 'shuffled-in-group' needs .* set algorithm\.samples to 2"
    ):
        Config.parse({"reward": {"control": "shuffled-in-group"}, "algorithm": {"name": "mixer"}})
