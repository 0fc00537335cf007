"""Whatever a file or an argument holds, it is read, or refused with one clear line: never a traceback."""

import gzip
import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqmixer.config import Config, documentation
from seqmixer.data import Vocab, captions_task, read_captions, read_features, read_lines, read_pairs
from seqmixer.errors import SeqmixerError
from seqmixer.rewards import parse
from seqmixer.settings import assign

pytestmark = pytest.mark.slow

MANY = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))

names = st.sampled_from([*Config.model_fields, "hidden", "task", "lr", "train", "name", "metrics", "length", "", "x.y"])
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | names
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=8
)
lines = st.lists(st.text(max_size=12), max_size=5).map("\n".join)
content = st.binary(max_size=60) | lines.map(lambda text: text.encode("utf-8", "surrogatepass"))


def mutated(original: bytes):
    """A good file with a few bytes changed, taken out or put in."""

    def change(edits):
        text = bytearray(original)
        for place, byte, kind in edits:
            at = place % (len(text) + 1)
            text[at : at + (kind != 1)] = b"" if kind == 0 else bytes([byte])
        return bytes(text)

    edit = st.tuples(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 2))
    return st.lists(edit, min_size=1, max_size=4).map(change)


def refused_or(function, *arguments):
    """Call it; an error must be the caller's to mend, in one line."""
    try:
        return function(*arguments)
    except SeqmixerError as error:
        message = str(error)
    assert message
    assert "\n" not in message
    return None


@pytest.fixture(scope="module")
def file():
    with tempfile.TemporaryDirectory() as folder:
        yield lambda name, data: (Path(folder) / name, (Path(folder) / name).write_bytes(data))[0]


@MANY
@given(st.dictionaries(names, values, max_size=5))
def test_settings_of_any_kind(settings):
    refused_or(Config.parse, settings)


@MANY
@given(data=mutated(documentation().encode()) | content)
def test_config_files(file, data):
    refused_or(Config.load, file("run.toml", data))


@MANY
@given(st.lists(st.text(max_size=20) | st.builds("{}.{}={}".format, names, names, plain), max_size=3))
def test_overrides(overrides):
    def apply():
        settings = {}
        for override in overrides:
            assign(settings, override)
        return Config.parse(settings)

    refused_or(apply)


@MANY
@given(data=content, skip=st.booleans())
def test_text_files(file, data, skip):
    refused_or(read_lines, file("text", data), 5, skip)


@MANY
@given(data=mutated(gzip.compress(b"a b\nc\n")) | content)
def test_compressed_files(file, data):
    refused_or(read_lines, file("text.gz", data), 5)


@MANY
@given(one=content, other=content, skip=st.booleans())
def test_pairs_of_files(file, one, other, skip):
    refused_or(read_pairs, file("a", one), [file("b", other)], skip, 5)


@MANY
@given(data=mutated(b"<pad>\n<s>\n</s>\n<unk>\na\nb\n") | content)
def test_vocabulary_files(file, data):
    vocab = refused_or(Vocab.load, file("target.vocab", data))
    if vocab is not None:
        assert vocab.decode(vocab.encode("a")) in ("a", "<unk>")


entries = st.fixed_dictionaries(
    {},
    optional={
        "id": plain,
        "row": plain,
        "split": st.sampled_from(["train", "val", "test", "x"]) | plain,
        "captions": values,
    },
)


@MANY
@given(data=st.lists(entries, max_size=3) | values)
def test_caption_files(file, data):
    captions = refused_or(read_captions, file("captions.json", json.dumps(data).encode()))
    if captions:
        refused_or(lambda: captions_task("captions", captions, torch.zeros(2, 3), length=None))


@MANY
@given(data=mutated(json.dumps([{"id": "1", "row": 0, "split": "train", "captions": ["a"]}]).encode()) | content)
def test_damaged_caption_files(file, data):
    refused_or(read_captions, file("captions.json", data))


@MANY
@given(data=content, suffix=st.sampled_from([".npy", ".npz"]))
def test_feature_files(file, data, suffix):
    refused_or(read_features, file(f"features{suffix}", data))


@MANY
@given(st.text(alphabet="0.5*+- bleurog_:e", max_size=20))
def test_sums_of_rewards(text):
    terms = refused_or(parse, text)
    assert terms is None or all(isinstance(weight, float) and name for weight, name in terms)
