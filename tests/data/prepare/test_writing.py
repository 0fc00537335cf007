"""A prepared corpus on disk: whole or not there, readable by the config its card gives."""

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib

import pytest
import torch

from seqmixer.build import build_task
from seqmixer.config import Config
from seqmixer.data import Captioned
from seqmixer.data.captions import is_quantised
from seqmixer.data.prepare import CaptionCorpus, TextCorpus, require_new, write_captions, write_text
from seqmixer.data.prepare.writing import new_folder, replacing
from seqmixer.errors import DataError


def refuses(message):
    return pytest.raises(DataError, match=f"^{re.escape(message)}$")


TEXT = TextCorpus(
    name="small",
    suffixes=("de", "en"),
    splits={
        "train": [("ein haus", "a house"), ("ein hund", "a dog"), ("das ist ein haus", "that is a house")],
        "valid": [("das ist ein hund", "that is a dog")],
        "test": [("ein über-haus", "a super-house")],
        "more": [("ja", "yes")],
    },
    dropped={"train": {"too long": 2}, "test": {}},
    published={"valid": 6969},
)
IMAGES = CaptionCorpus(
    name="pictures",
    images=[
        Captioned("a.jpg", 0, "train", ["a dog", "a brown dog"]),
        Captioned("b.jpg", 1, "valid", ["a cat"]),
        Captioned("c.jpg", 2, "test", ["a café"]),
    ],
    features=torch.tensor([[0.0, 1.5], [6.0, 0.0], [0.1, 0.2]]),
    quantised=False,
    dropped={},
    published={},
)


def task_of(folder):
    """The data as the config on the card reads it."""
    (block,) = re.findall(r"```toml\n(.*?)```", (folder / "card.md").read_text(), re.DOTALL)
    return build_task(Config.parse(tomllib.loads(block)).data)


def test_text_is_read_by_the_config_of_its_card(tmp_path):
    card = write_text(TEXT, tmp_path / "new" / "out", "the command")
    task = task_of(tmp_path / "new" / "out")
    for split in ("train", "valid", "test"):
        encoded = vars(task)[split]
        assert [(meta["source"], *meta["references"]) for meta in encoded.meta] == TEXT.splits[split]
    names = ["card.json", "card.md", *(f"{s}.{x}.gz" for s in ("more", "test", "train", "valid") for x in ("de", "en"))]
    assert sorted(path.name for path in (tmp_path / "new" / "out").iterdir()) == names
    assert gzip.decompress((tmp_path / "new" / "out" / "more.en.gz").read_bytes()) == b"yes\n"
    stored = json.loads((tmp_path / "new" / "out" / "card.json").read_text())
    assert stored["splits"]["more"]["fingerprint"] == card.splits["more"].fingerprint
    assert stored["origin"]["dropped"] == {"train": {"too long": 2}, "test": {}}
    assert os.listdir(tmp_path / "new") == ["out"]


def test_the_same_corpus_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write_text(TEXT, tmp_path / name, "the command")
        time.sleep(1.1 if name == "one" else 0)  # gzip counts whole seconds
    for path in (tmp_path / "one").glob("*.gz"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@pytest.mark.parametrize("quantised", [False, True])
def test_captions_are_read_by_the_config_of_their_card(tmp_path, quantised):
    corpus = CaptionCorpus(**{**vars(IMAGES), "quantised": quantised})
    write_captions(corpus, tmp_path / "out", "the command")
    assert is_quantised(tmp_path / "out" / "features.npz") == quantised
    task = task_of(tmp_path / "out")
    assert task.train.meta == [{"source": "a.jpg", "references": ["a dog", "a brown dog"]}]
    assert task.test.meta == [{"source": "c.jpg", "references": ["a café"]}]
    torch.testing.assert_close(task.valid.sources, torch.tensor([[6.0, 0.0]]))
    torch.testing.assert_close(task.train.sources, torch.tensor([[0.0, 1.5]]), atol=0.024 * quantised, rtol=0)
    assert sorted(os.listdir(tmp_path / "out")) == ["captions.json", "card.json", "card.md", "features.npz"]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "out").mkdir()
    write_text(TEXT, tmp_path / "out", "the command")
    assert (tmp_path / "out" / "card.md").is_file()


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    for place in (tmp_path / "out", tmp_path / "out" / "precious"):
        with refuses(f"{place} is there already, and not an empty folder; choose another --out, or remove it"):
            require_new(place)
        with refuses(f"{place} is there already, and not an empty folder; choose another --out, or remove it"):
            write_text(TEXT, place, "the command")
    assert os.listdir(tmp_path / "out") == ["precious"]


def fail_within(place, error):
    with place as path:
        path.touch()
        raise error


def test_a_fault_leaves_nothing(tmp_path):
    for place in (new_folder(tmp_path / "out"), replacing(tmp_path / "f.npz")):
        with pytest.raises(ZeroDivisionError):
            fail_within(place, ZeroDivisionError())
        assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with refuses(f"{tmp_path}/file/out cannot be written: Not a directory; nothing of it is left"):
        write_text(TEXT, tmp_path / "file" / "out", "the command")


def test_a_full_disk_leaves_nothing(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    with refuses(f"{tmp_path}/out cannot be written: No space left on device; nothing of it is left"):
        fail_within(new_folder(tmp_path / "out"), full)
    with refuses(f"{tmp_path}/f.npz cannot be written: No space left on device"):
        fail_within(replacing(tmp_path / "f.npz"), full)
    assert os.listdir(tmp_path) == []


KILLED = """
import sys, time
from pathlib import Path
from seqmixer.data.prepare.writing import new_folder
with new_folder(Path(sys.argv[1])) as folder:
    (folder / "train.de.gz").touch()
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_killed_preparation_leaves_nothing_that_looks_whole_and_can_be_run_again(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    write_text(TEXT, tmp_path / "out", "the command")
    assert len(task_of(tmp_path / "out").train) == 3
