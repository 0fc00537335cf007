import itertools
import os
import re
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from seqmixer.errors import RunError
from seqmixer.storage import checkpoint


def tensors():
    return {"w": torch.randn(3, 2), "n": torch.arange(4), "state": torch.get_rng_state()}


def test_what_is_saved_is_loaded(tmp_path):
    saved = tensors()
    checkpoint.save(tmp_path / "last", saved, {"epoch": 3, "best": float("-inf")})
    loaded, state = checkpoint.load(tmp_path / "last")
    assert state == {"epoch": 3, "best": float("-inf")}
    assert loaded.keys() == saved.keys()
    assert all(torch.equal(loaded[name], saved[name]) for name in saved)


def saved(folder, *epochs, keep=1):
    for epoch in epochs:
        checkpoint.save(folder, {"w": torch.full((2,), float(epoch))}, {"epoch": epoch}, keep)


def epoch_of(folder):
    tensors, state = checkpoint.load(folder)
    assert tensors["w"].tolist() == [state["epoch"]] * 2
    return state["epoch"]


@pytest.mark.parametrize(("keep", "there"), [(1, ["last", "last.1"]), (3, ["last", "last.1", "last.2", "last.3"])])
def test_the_newest_is_loaded_and_the_ones_before_it_are_kept(tmp_path, keep, there):
    saved(tmp_path / "last", 1, 2, 3, 4, 5, keep=keep)
    assert epoch_of(tmp_path / "last") == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == there
    assert epoch_of(tmp_path / "last.1") == 4
    names = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {".safetensors", ".json"}  # nothing that would have to be unpickled


def test_death_between_the_renames_loses_nothing(tmp_path):
    saved(tmp_path / "last", 1, 2)
    (tmp_path / "last").rename(tmp_path / "last.new")  # as `save` leaves it, just before it puts the new one in place
    assert checkpoint.exists(tmp_path / "last")
    assert epoch_of(tmp_path / "last") == 2
    saved(tmp_path / "last", 3)
    assert epoch_of(tmp_path / "last") == 3
    assert epoch_of(tmp_path / "last.1") == 2


def test_what_is_not_wanted_is_discarded_and_the_rest_stays(tmp_path):
    saved(tmp_path / "best", 1, 5)
    checkpoint.discard(tmp_path / "best", lambda state: state["epoch"] > 3)
    assert epoch_of(tmp_path / "best") == 1
    saved(tmp_path / "best", 5)
    assert epoch_of(tmp_path / "best.1") == 1


def test_death_while_writing_leaves_the_one_before(tmp_path):
    saved(tmp_path / "last", 1)
    (tmp_path / "last.new").mkdir()
    (tmp_path / "last.new" / "state.json").write_text('{"epo')
    assert epoch_of(tmp_path / "last") == 1


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    saved(tmp_path / "last", 1)
    verify, calls = checkpoint.verify, []

    def replaced(place):
        calls.append(place)
        if len(calls) == 1:
            saved(tmp_path / "last", 2, keep=1)
            saved(tmp_path / "last", 3, keep=1)  # what was being read is gone
            raise RunError("damaged: state.json is missing")
        verify(place)

    monkeypatch.setattr(checkpoint, "verify", replaced)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint.load(tmp_path / "last")[1]["epoch"] == 3


def test_half_of_the_very_first_checkpoint_is_none(tmp_path):
    (tmp_path / "last.new").mkdir()
    (tmp_path / "last.new" / "state.json").write_text('{"epo')
    assert not checkpoint.exists(tmp_path / "last")
    saved(tmp_path / "last", 1)
    assert epoch_of(tmp_path / "last") == 1


def test_a_damaged_checkpoint_is_not_taken_for_none(tmp_path):
    saved(tmp_path / "last", 1)
    (tmp_path / "last/state.json").write_text('{"epo')
    assert checkpoint.exists(tmp_path / "last")


def test_a_missing_checkpoint_is_one_clear_line(tmp_path):
    assert not checkpoint.exists(tmp_path / "last")
    message = f"{tmp_path / 'last'}: no checkpoint that can be used: there is none"
    with pytest.raises(RunError, match=re.escape(message)):
        checkpoint.load(tmp_path / "last")


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


def flip(position):
    def damage(path):
        content = bytearray(path.read_bytes())
        content[int(position * (len(content) - 1))] ^= 1
        path.write_bytes(content)

    return damage


@pytest.mark.parametrize("damage", [cut, empty, remove, *map(flip, (0, 0.01, 0.3, 0.6, 1))])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_checkpoint_is_recognised_and_the_one_before_it_used(tmp_path, name, damage):
    saved(tmp_path / "last", 1, 2)
    damage(tmp_path / "last" / name)
    with pytest.warns(UserWarning, match=re.escape(f"{tmp_path / 'last'}: damaged: ")):
        assert epoch_of(tmp_path / "last") == 1


def test_with_no_whole_checkpoint_each_damage_is_named(tmp_path):
    saved(tmp_path / "last", 1, 2)
    remove(tmp_path / "last" / "state.json")
    empty(tmp_path / "last.1" / "tensors.safetensors")
    message = (
        f"{tmp_path / 'last'}: no checkpoint that can be used: last: damaged: state.json is missing; last.1: damaged: "
        "tensors.safetensors is not what was written"
    )
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(RunError, match=re.escape(message)):
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
    checkpoint.load_optimizer(second, checkpoint.optimizer_tensors(first), "here")
    trained(2, second, parts)
    assert torch.equal(whole, parts)


class Death(BaseException):
    """A process is killed."""


def dying(monkeypatch, step):
    """Have the `step`-th change of the disk fail, half done; what follows it does not happen."""
    left = [step]

    def killed(real, half):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                half(*arguments)
                raise Death
            return real(*arguments, **options)

        return call

    def half_removed(place, *_):
        for path in sorted(Path(place).glob("*"))[:1]:
            path.unlink()

    changes = (
        (checkpoint, "save_file", lambda tensors, path: path.write_bytes(b"half")),
        (os, "rename", lambda *_: None),
        (os, "replace", lambda *_: None),
        (os, "fsync", lambda *_: None),
        (shutil, "rmtree", half_removed),
    )
    for module, name, half in changes:
        monkeypatch.setattr(module, name, killed(getattr(module, name), half))
    return left


def saved_or_killed(monkeypatch, folder, epoch, step):
    """-> whether it was killed"""
    with monkeypatch.context() as patch:
        dying(patch, step)
        try:
            saved(folder, epoch)
        except Death:
            return True
    return False


@pytest.mark.filterwarnings("ignore:.*looking for the checkpoint before it")
@pytest.mark.parametrize("before", [0, 1, 3])
def test_after_two_deaths_at_any_points_the_newest_complete_checkpoint_is_there(tmp_path, monkeypatch, before):
    """Epochs 1 to `before` were saved; the saves of the next two are killed; the next is not."""
    steps = 1
    while saved_or_killed(monkeypatch, tmp_path / "count" / str(steps) / "last", 1, steps):
        steps += 1
    assert steps > 8
    for first, second in itertools.product(range(1, steps + 6), repeat=2):
        folder = tmp_path / f"{first}-{second}" / "last"
        saved(folder, *range(1, before + 1))
        done = before
        for epoch, step in ((before + 1, first), (before + 2, second)):
            if not saved_or_killed(monkeypatch, folder, epoch, step):
                done = epoch
            assert checkpoint.usable(folder) or not done
            assert checkpoint.usable(folder) == checkpoint.exists(folder)  # what is incomplete never gets the name
            if checkpoint.usable(folder):
                found = epoch_of(folder)
                assert found >= done
                done = found
        saved(folder, 9)
        assert epoch_of(folder) == 9
        assert {path.name for path in folder.parent.iterdir()} <= {"last", "last.1"}


def test_a_complete_new_checkpoint_is_kept_while_the_next_is_written_over_a_damaged_one(tmp_path, monkeypatch):
    saved(tmp_path / "last", 1)
    shutil.copytree(tmp_path / "last", tmp_path / "last.new")
    empty(tmp_path / "last/state.json")
    assert saved_or_killed(monkeypatch, tmp_path / "last", 2, 5)
    assert epoch_of(tmp_path / "last") == 1


def test_fewer_checkpoints_are_kept_when_fewer_are_asked_for(tmp_path):
    saved(tmp_path / "last", 1, 2, 3, 4, keep=3)
    saved(tmp_path / "last", 5, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "last.1"]


def test_all_of_a_checkpoint_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    synced, renamed = set(), []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.add(os.fstat(handle).st_ino), fsync(handle)))

    def watched(source, target):
        renamed.append(source)
        assert {path.stat().st_ino for path in (source, *source.iterdir())} <= synced
        rename(source, target)

    monkeypatch.setattr(os, "rename", watched)
    saved(tmp_path / "last", 1)
    assert renamed == [tmp_path / "last.new"]
    assert tmp_path.stat().st_ino in synced


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_the_files_of_a_checkpoint_have_the_mode_of_any_file(tmp_path):
    (tmp_path / "any").touch()
    saved(tmp_path / "last", 1)
    assert {path.stat().st_mode for path in (tmp_path / "last").iterdir()} == {(tmp_path / "any").stat().st_mode}


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("0.exp_avg", torch.zeros(1)),
        ("0.exp_avg", torch.zeros(2, dtype=torch.double)),
        ("0.exp_avg_sq", None),
        ("0.step", torch.zeros(2)),
        ("0.more", torch.zeros(2)),
        ("7.step", torch.zeros(())),
        ("x.step", torch.zeros(())),
        ("00.step", torch.zeros(())),
    ],
)
def test_a_memory_that_is_not_of_these_parameters_is_refused(name, tensor):
    """Fused Adam would read past the end of a tensor that is too short."""
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight], fused=True)
    weight.sum().backward()
    optimizer.step()
    tensors = checkpoint.optimizer_tensors(optimizer)
    checkpoint.load_optimizer(optimizer, tensors, "here")
    changed = {**tensors, name: tensor} if tensor is not None else {k: v for k, v in tensors.items() if k != name}
    with pytest.raises(RunError, match=r"^here: tensors.safetensors does not fit the run: '[^\n]*$"):
        checkpoint.load_optimizer(optimizer, changed, "here")


def test_weights_of_another_type_are_refused():
    weights = {name: weight.double() for name, weight in nn.Linear(2, 2).state_dict().items()}
    with pytest.raises(RunError, match=r"^here: .*'bias' is float64 \(2,\), not float32 \(2,\)$"):
        checkpoint.load_weights(nn.Linear(2, 2), weights, "here")
