"""Programs that are captured, whatever they compute."""

from contextlib import nullcontext

import pytest
import torch

from networks import DEVICES
from seqmixer.kernels import Programs, capture
from seqmixer.rewards import begin, replayable, sentence_bleu, weighted
from seqmixer.types import Rollout


def test_on_the_cpu_a_program_is_run_as_it_is():
    programs, calls = Programs(), []
    for _ in range(3):
        programs("name", lambda *given: calls.append(given), torch.ones(1), torch.zeros(2))

    assert len(calls) == 3
    assert programs.captured == {}


def test_an_error_is_located_in_the_line_it_comes_from():
    def failing():
        raise RuntimeError

    with pytest.raises(RuntimeError) as error:
        failing()
    assert capture.where(error.value) == f"{__file__}:{failing.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize("device", DEVICES[1:])
def test_a_program_is_captured_for_each_name_and_shape_and_forgotten_with_the_others(device):
    programs, runs = Programs(), []

    def run(x):
        runs.append(x.shape)
        return {"twice": 2 * x}

    for i in range(4):
        for width in (2, 3):
            x = torch.full((width,), float(i), device=device)
            assert programs("name", run, x)["twice"].tolist() == [2.0 * i] * width
    assert len(runs) == 4  # each shape once as it is and once captured
    programs.forget()
    assert programs("name", run, torch.ones(2, device=device))["twice"].tolist() == [2.0, 2.0]
    assert len(runs) == 5


@pytest.fixture
def as_on_a_device(monkeypatch):
    """Programs of CPU tensors are captured, too: what Python does is done once, and the tensors are given back."""

    class Frozen:
        def __init__(self, outputs):
            self.outputs = outputs

        def __call__(self, *inputs):
            return self.outputs

    monkeypatch.setattr(capture, "capturable", lambda tensor: True)
    monkeypatch.setattr(capture, "no_synchronisation", nullcontext)
    monkeypatch.setattr(Programs, "own_stream", lambda programs: nullcontext())
    monkeypatch.setattr(Programs, "capture", lambda programs, run, inputs: Frozen(run(*inputs)))
    monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", torch.set_rng_state)


def rewarded(reward, batches):
    """The rewards of batches of one shape, by one program; what it reported; the words that were rewarded."""
    lines, drawn = [], []
    programs = Programs(lines.append)
    results = []
    for meta in batches:

        def run(references, meta=meta):
            words = torch.randint(4, 9, references[:, 0].shape)  # drawn by the model
            drawn.append(words)
            return begin(reward, Rollout(words, references, meta=meta))()

        results.append(programs("step", run, torch.full((2, 1, 3), 5)).tolist())
    return results, lines, drawn


def test_what_python_adds_to_a_reward_is_not_frozen(as_on_a_device):
    calls = []

    def counting(rollout):
        calls.append(1)
        return torch.tensor([float(len(calls) * meta["weight"]) for meta in rollout.meta])

    batches = [[{"weight": number}] * 2 for number in (1, 10, 100, 1000)]
    results, lines, _ = rewarded(counting, batches)

    assert results == [[1, 1], [20, 20], [300, 300], [4000, 4000]]
    reason = "the reward is a Python function, which runs anew in every step"
    assert lines == [f"not captured as one program, which is slower: {reason}"]
    assert rewarded(weighted([(1.0, sentence_bleu), (2.0, counting)]), batches)[1] == lines


def test_a_reward_that_declares_itself_replayable_is_captured(as_on_a_device):
    calls = []

    @replayable
    def of_tensors(rollout):
        calls.append(1)
        return rollout.words.sum(-1)

    _, lines, _ = rewarded(weighted([(1.0, sentence_bleu), (2.0, of_tensors)]), [()] * 5)

    assert lines == []
    assert len(calls) == 2  # as it is, and captured


def test_what_was_drawn_before_a_program_was_given_up_is_drawn_again(as_on_a_device):
    """Else a resumed run, which tries to capture again, would draw other words than one that was not stopped."""
    torch.manual_seed(3)
    expected = torch.randint(4, 9, (2, 3))
    torch.manual_seed(3)

    _, _, drawn = rewarded(lambda rollout: torch.zeros(2), [()])

    assert [words.tolist() for words in drawn] == [expected.tolist()] * 2


@pytest.mark.parametrize("device", DEVICES[1:])
def test_an_error_of_a_program_is_not_mistaken_for_a_question(device):
    def broken(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        Programs()("name", broken, torch.ones(1, device=device))
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_program_inside_another_does_not_end_the_watch_for_questions(monkeypatch):
    """The sampling of a step is a program of its own; the reward comes after it."""
    mode = ["default"]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", mode.append)
    with capture.no_synchronisation():
        with capture.no_synchronisation():
            assert mode[-1] == "error"
        assert mode[-1] == "error"
    assert mode[-1] == "default"
