"""Programs that are captured, whatever they compute."""

import pytest
import torch

from networks import DEVICES
from seqmixer.kernels import Programs, capture


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
    with capture.no_questions():
        with capture.no_questions():
            assert mode[-1] == "error"
        assert mode[-1] == "error"
    assert mode[-1] == "default"
