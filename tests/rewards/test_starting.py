import functools

import pytest
import torch

from seqmixer.algorithms import LinearBaseline, Mixer, Reinforce
from seqmixer.build import Metrics
from seqmixer.config import Config
from seqmixer.data import batches, text_task
from seqmixer.models import AttentiveEncoder, ElmanCell, Recurrent
from seqmixer.rewards import BUILT_IN, READABLE, Startable, begin, is_replayable, on_text, on_words, sentence_bleu
from seqmixer.training.clock import Clock
from seqmixer.types import Rollout


def rollout():
    words = torch.tensor([[4, 5, 2]])
    return Rollout(words, words.unsqueeze(1), meta=[{"references": ["the cat"]}])


def recording(order):
    """A reward that says when it was begun and when it was collected."""

    def start(given):
        order.append("begun")
        return lambda: order.append("collected") or torch.ones(len(given.words))

    return Startable(start)


def test_a_startable_reward_is_a_plain_reward_too():
    order = []
    assert recording(order)(rollout()).tolist() == [1.0]
    assert order == ["begun", "collected"]


def test_an_ordinary_reward_is_computed_when_it_is_collected():
    calls = []
    pending = begin(lambda given: calls.append(given) or torch.ones(1), rollout())
    assert calls == []
    assert pending().tolist() == [1.0]
    assert len(calls) == 1


def test_a_clock_begins_what_can_be_begun():
    order, clock = [], Clock()
    pending = begin(clock.timed_reward(recording(order)), rollout())
    assert order == ["begun"]
    assert "reward" in clock.seconds
    began = clock.seconds["reward"]
    assert pending().tolist() == [1.0]
    assert order == ["begun", "collected"]
    assert clock.seconds["reward"] > began


def test_algorithms_score_between_beginning_a_reward_and_collecting_it():
    pairs = (["a b", "b a c"], [["b a"], ["c a b"]])
    task = text_task("reverse", pairs, pairs, pairs, length=4)
    model = Recurrent(ElmanCell, AttentiveEncoder(len(task.source_vocab), 4, positions=4), len(task.target_vocab), 4)
    (batch,) = batches(task.train, 2, 4, seed=0, epoch=0)
    order, unroll = [], model.unroll
    model.unroll = lambda *arguments: order.append("scored") or unroll(*arguments)
    for algorithm in (
        Reinforce(recording(order), LinearBaseline(model.features)),
        Mixer(recording(order), LinearBaseline(model.features), 4, [2]),
    ):
        order.clear()
        algorithm(model, batch, 0)
        assert order == ["begun", "scored", "collected"]


def test_functions_in_this_process_are_called_when_collected_but_see_the_words_of_the_beginning():
    given, seen = rollout(), []
    for reward in (
        on_text(lambda hypothesis, references: seen.append(hypothesis) or 0.0, decode=str),
        on_words(lambda hypothesis, references: seen.append(hypothesis) or 0.0),
    ):
        pending = begin(reward, given)
        assert seen == []
        pending()
        assert seen.pop() in ("[4, 5]", [4, 5])


def built(name, word="b", **more):
    pairs = (["a b", "b a c"], [[f"{word} a"], ["c a b"]])
    return Metrics(Config.parse({"reward": {"name": name, **more}}), text_task("copy", *[pairs] * 3, length=4)).reward


@pytest.mark.parametrize("name", [*(name for name in BUILT_IN if name not in READABLE), "0.5*bleu + 2*chrf"])
def test_built_in_rewards_are_of_tensors_alone_and_sums_of_them_too(name):
    reward = built(name)
    assert is_replayable(reward)
    assert is_replayable(Clock().timed_reward(reward))


def test_built_in_rewards_stay_replayable_with_an_end_and_on_whole_words():
    assert is_replayable(built("bleu", eos=True))
    assert is_replayable(built("rouge2", word="b@@"))


@pytest.mark.parametrize("name", ["golden.record:overlap", "bleu + golden.record:overlap"])
def test_a_function_of_the_users_runs_anew_in_every_step(name):
    reward = built(name)
    assert not is_replayable(reward)
    assert not is_replayable(Clock().timed_reward(reward))


def test_a_wrapper_of_a_replayable_reward_is_another_reward():
    @functools.wraps(sentence_bleu)
    def wrapper(rollout):
        return sentence_bleu(rollout)

    assert is_replayable(sentence_bleu)
    assert not is_replayable(wrapper)
