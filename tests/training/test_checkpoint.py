import re

import pytest
import torch
from torch import nn

from seqmixer.errors import RunError
from seqmixer.training import checkpoint


def tensors():
    return {"w": torch.randn(3, 2), "n": torch.arange(4), "state": torch.get_rng_state()}


def test_what_is_saved_is_loaded(tmp_path):
    saved = tensors()
    checkpoint.save(tmp_path / "last", saved, {"epoch": 3, "best": float("-inf")})
    loaded, state = checkpoint.load(tmp_path / "last")
    assert state == {"epoch": 3, "best": float("-inf")}
    assert loaded.keys() == saved.keys()
    assert all(torch.equal(loaded[name], saved[name]) for name in saved)


def test_a_second_save_replaces_the_first_and_leaves_nothing_beside_it(tmp_path):
    checkpoint.save(tmp_path / "last", {"w": torch.zeros(2)}, {"epoch": 1})
    checkpoint.save(tmp_path / "last", {"w": torch.ones(2)}, {"epoch": 2})
    assert checkpoint.load(tmp_path / "last")[1] == {"epoch": 2}
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["last", "state.json", "tensors.safetensors"]


def test_death_between_the_two_renames_loses_nothing(tmp_path):
    checkpoint.save(tmp_path / "last", {"w": torch.zeros(2)}, {"epoch": 1})
    (tmp_path / "last").rename(tmp_path / "last.old")  # as `save` does, just before it puts the new one in place
    assert checkpoint.exists(tmp_path / "last")
    assert checkpoint.load(tmp_path / "last")[1] == {"epoch": 1}


def test_a_missing_checkpoint_is_one_clear_line(tmp_path):
    assert not checkpoint.exists(tmp_path / "last")
    with pytest.raises(
        RunError, match=re.escape(f"{tmp_path / 'last'}: no checkpoint here (tensors.safetensors is missing)")
    ):
        checkpoint.load(tmp_path / "last")


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_one_clear_line(tmp_path, name):
    checkpoint.save(tmp_path / "last", tensors(), {"epoch": 1})
    (tmp_path / "last" / name).write_bytes(b"{\x00")
    with pytest.raises(RunError, match=re.escape(f"{tmp_path / 'last'}: damaged checkpoint: ")):
        checkpoint.load(tmp_path / "last")


def test_weights_of_another_model_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"^here: the weights do not fit the model: size mismatch for bias: "):
        checkpoint.load_weights(nn.Linear(2, 3), nn.Linear(2, 4).state_dict(), "here")


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_an_optimiser_gets_its_memory_back(kind):
    def trained(steps, optimizer, weight):
        for _ in range(steps):
            optimizer.zero_grad()
            (weight**3).sum().backward()
            optimizer.step()

    whole = nn.Parameter(torch.ones(3))
    trained(4, kind([whole], lr=0.1), whole)

    parts = nn.Parameter(torch.ones(3))
    first = kind([parts], lr=0.1)
    trained(2, first, parts)
    second = kind([parts], lr=0.1)
    checkpoint.load_optimizer(second, checkpoint.optimizer_tensors(first))
    trained(2, second, parts)
    assert torch.equal(whole, parts)
