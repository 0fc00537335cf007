"""Files and arguments made to do harm: each is read, or refused in one line, and nothing of it moves the terminal.

Checksums hold nobody back who can write a manifest: what is changed in a run folder here gets its right checksum.
"""

import gzip
import hashlib
import io
import json
import math
import os
import random
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from stress.cases import CONTROL, Site, wrong
from stress.materials import GENERATE, HUGGING_FACE, OWN, overrides, train

SHARE = 0.7  # of the cases, with own models
DEEP = 200_000
SHORT = ["training.epochs=1", "data.limit=8", "training.threads=1"]  # a harmless config is trained by
ESCAPES = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "\r\x1b[Kseqmixer: all is well",
    "a\x08\x08b",
    "\x7f",
]
VALUES = [
    None,
    [],
    {},
    "",
    "x",
    -1,
    0,
    2**31,
    2**63,
    10**400,
    1e308,
    math.nan,
    math.inf,
    True,
    [[1]],
    "a" * 10**6,
    *ESCAPES,
]
VALUES += ["../../../etc/passwd", "/etc/passwd", "\ud800", "a\nb", {"a": 1}, [0] * 10**6]
TABLES = b"""[
{"id": "1", "row": 0, "split": "train", "captions": ["a b c", "a b"]},
{"id": "2", "row": 1, "split": "val", "captions": ["b c"]},
{"id": "3", "row": 2, "split": "test", "captions": ["c a"]}]"""
BOMB = gzip.compress(bytes(10**8)) * 60  # 6 GB
BOMB_OF_LINES = gzip.compress(b"a b c d\n" * 10**7) * 60


def case(site: Site) -> None:
    """Make something hostile and use it."""
    places = {folder: 4, config: 2, override: 1, text: 2, captions: 1, source: 1, recipe: 1}
    chosen = folder if site.flavour in HUGGING_FACE else site.rng.choices(list(places), list(places.values()))[0]
    what, argv = chosen(site)
    ended = site.run(argv, terminal=True)
    site.counts["tried"] += 1
    problem = wrong(ended, said=argv[0] != "doctor") or ("traceback" if CONTROL.search(ended.out) else None)
    site.count(problem or ("refused" if ended.code == 2 else "harmless"), ended, what)


def folder(site: Site) -> tuple[str, list[str]]:
    """A file of a run folder."""
    rng = site.rng
    use = rng.choice(("evaluate", "generate", "resume", "doctor"))
    run = site.copy("half" if use == "resume" else "done")
    paths = sorted(path for path in run.rglob("*") if path.is_file() and ".1" not in path.parent.name)
    path = rng.choice(paths)
    checksum = digest(path)
    if rng.random() < 0.35:
        kind = thing(path, rng)
    elif path.suffix == ".safetensors":
        kind = tensors(path, rng)
    elif path.suffix == ".json" and rng.random() < 0.7:
        kind = types(path, rng)
    elif path.suffix == ".vocab" and rng.random() < 0.5:
        kind = escapes(path, rng)
    else:
        kind = contents(path, rng)
    if path.is_file() and (now := digest(path)) != checksum:
        reseal(run, checksum, now)
    plain = site.flavour in OWN and rng.random() < 0.5
    answers = GENERATE if plain else ["--json"]
    commands = {
        "evaluate": ["evaluate", "run"],
        "generate": ["generate", "run", str(site.materials / "test.src"), *answers],
        "resume": train(site.materials, site.flavour),
        "doctor": ["doctor", "run"],
    }
    return f"{use}: {path.relative_to(run)}: {kind}", commands[use]


def config(site: Site) -> tuple[str, list[str]]:
    """A config."""
    path = site.folder / "hostile.toml"
    shutil.copy(site.materials / "run.toml", path)
    kind = thing(path, site.rng) if site.rng.random() < 0.3 else toml(path, site.rng)
    return f"config: {kind}", ["train", str(path), "--out", ".", *overrides(SHORT)]


def override(site: Site) -> tuple[str, list[str]]:
    """A value of --set; the system gives an argument no more than 128 kB."""
    rng = site.rng
    name = rng.choice(
        ("model.hidden", "name", "data.train", "reward.name", "algorithm.name", "x", "training.start", "seed")
    )
    made = {
        "lists": f"{name}={'[' * 100_000}",
        "tables": f"{name}={'{a=' * 30_000}",
        "dots": f"{'a.' * 50_000}a=1",
        "dots in the value": f"{name}={{{'a.' * 30_000}a=1}}",
        "escape": f"{name}={rng.choice(ESCAPES)}",
        "escaped escape": f'{name}="\\u001b[2J"',
        "escape in the name": f"{rng.choice(ESCAPES)}=1",
        "no text": f"{name}=\udcff",
        "huge": f"{name}={'9' * rng.choice((20, 5000, 100_000))}",
        "long": f"{name}={'a' * 100_000}",
        "infinite": f"{name}={rng.choice(('inf', 'nan', '1e999', '-inf'))}",
        "lines": f"{name}=a\nseqmixer: b",
        "second value": f"{name}=1\nx=2",
    }
    kind = rng.choice(list(made))
    return f"--set {kind}", [*train(site.materials, site.flavour), *overrides([made[kind]])]


def text(site: Site) -> tuple[str, list[str]]:
    """A file of parallel text."""
    rng = site.rng
    data = site.folder / "data"
    data.mkdir()
    for path in site.materials.glob("*.*"):
        if path.suffix in (".src", ".tgt"):
            shutil.copy(path, data)
    path, settings = data / rng.choice(("train.src", "train.tgt", "valid.tgt", "test.src")), [f"data.folder={data}"]
    packed = {"gz bomb": BOMB, "gz bomb of lines": BOMB_OF_LINES, "gz of noise": b"\x1f\x8b" + rng.randbytes(100)}
    kind = rng.choice((*packed, "thing", "contents", "contents", "escapes", "escapes"))
    if kind in packed:
        (data / "train.src.gz").write_bytes(packed[kind])
        settings.append('data.train=["train.src.gz", "train.tgt"]')
    else:
        kind = {"thing": thing, "contents": contents, "escapes": escapes}[kind](path, rng)
    return f"data: {path.name}: {kind}", [
        *train(site.materials, site.flavour, ".", "training.epochs=1"),
        *overrides(settings),
    ]


def captions(site: Site) -> tuple[str, list[str]]:
    """Captions, or the features of their images."""
    rng = site.rng
    names = {"captions": site.folder / "captions.json", "features": site.folder / "features.npy"}
    names["captions"].write_bytes(TABLES)
    numpy.save(names["features"], numpy.ones((3, 4), dtype=numpy.float32))
    if rng.random() < 0.5:
        path = names["captions"]
        kind = rng.choice((thing, types, types, contents, escapes))(path, rng)
    else:
        kind, path = features(site.folder, rng)
    settings = ["data.task=captions", f"data.folder={site.folder}", "data.train=[]", "data.valid=[]", "data.test=[]"]
    settings += [f"data.features={path.name}"] if path.suffix != ".json" else []
    return f"{path.name}: {kind}", [
        *train(site.materials, site.flavour, ".", "training.epochs=1"),
        *overrides(settings),
    ]


def source(site: Site) -> tuple[str, list[str]]:
    """What `generate` reads."""
    rng, path = site.rng, site.folder / "sources.txt"
    site.copy("done")
    shutil.copy(site.materials / "test.src", path)
    kind = rng.choice((thing, contents, escapes))(path, rng)
    if rng.random() < 0.2:
        kind, path = "gz bomb", path.with_suffix(".gz")
        path.write_bytes(BOMB_OF_LINES if rng.random() < 0.3 else BOMB)
    return f"sources: {kind}", ["generate", "run", str(path), *rng.choice(([], GENERATE))]


def recipe(site: Site) -> tuple[str, list[str]]:
    """A recipe of `paper`, or what `sweep` searches."""
    path = site.folder / "hostile.toml"
    path.write_text('"training.lr" = [0.1, 0.2]\n')
    kind = thing(path, site.rng) if site.rng.random() < 0.3 else toml(path, site.rng)
    if site.rng.random() < 0.5:
        return f"search: {kind}", ["sweep", str(site.materials / "run.toml"), "--search", str(path), "--trials", "1"]
    return f"recipe: {kind}", ["paper", "translation", "--recipe", str(path), "--seeds", "1", "--methods", "xent"]


def thing(path: Path, rng: random.Random) -> str:
    """Something else in a file's place."""

    def pipe() -> None:
        os.mkfifo(path)

    def listening() -> None:
        with socket.socket(socket.AF_UNIX) as made:
            before = os.getcwd()
            os.chdir(path.parent)
            made.bind(path.name)
            os.chdir(before)

    def sparse() -> None:
        with path.open("wb") as file:
            file.truncate(rng.choice((2**31, 2**33)))

    made: dict[str, Callable[[], None]] = {
        "FIFO": pipe,
        "socket": listening,
        "sparse file": sparse,
        "folder": path.mkdir,
        "link outside": lambda: path.symlink_to("/etc/passwd"),
        "link to itself": lambda: path.symlink_to(path.name),
        "link to nothing": lambda: path.symlink_to("nothing"),
        "link to /dev/zero": lambda: path.symlink_to("/dev/zero"),
        "link to /proc": lambda: path.symlink_to("/proc/self/environ"),
        "empty": path.touch,
    }
    kind = rng.choice(list(made))
    path.unlink()
    made[kind]()
    return kind


def contents(path: Path, rng: random.Random) -> str:
    """Other contents."""
    before = path.read_bytes()
    middle = rng.randrange(len(before) + 1)

    def put(inside: bytes) -> bytes:
        return before[:middle] + inside + before[middle:]

    made = {
        "lists": b"[" * DEEP,
        "closed lists": b"[" * DEEP + b"]" * DEEP,
        "tables": b'{"a":' * DEEP,
        "deep value": b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        "null": b"null",
        "a number": b"7",
        "a string": b'"x"',
        "many digits": b"9" * 10**5,
        "a huge exponent": b"1e99999",
        "NaN": b"NaN",
        "null characters": put(b"\0\0\0"),
        "only null characters": bytes(4096),
        "no UTF-8": put(b"\xff\xfe\xc3"),
        "UTF-16": before.decode(errors="replace").encode("utf-16"),
        "byte order marks": b"\xef\xbb\xbf" * 3 + before,
        "escapes": put(rng.choice(ESCAPES).encode()),
        "a long line": b"a " * 10**7,
        "a long word": b"a" * 10**7,
        "many lines": b"\n" * 10**6,
        "other line ends": before.replace(b"\n", rng.choice((b"\r", b"\x0b", b"\xe2\x80\xa8", b"\x85"))),
        "a program": b"#!/bin/sh\necho\n",
    }
    kind = rng.choice(list(made))
    path.write_bytes(made[kind])
    return kind


def toml(path: Path, rng: random.Random) -> str:
    """TOML that a parser, or what comes after it, does not like."""
    name = rng.choice(("name", "seed", "x", "data.task", "model.hidden", "training.lr", "reward.name"))
    escape = rng.choice((r"\u001b[2J", r"\u0007", r"\u009b31m", r"\b\b", r"\u202e"))
    made = {
        "lists": "x = " + "[" * DEEP,
        "closed lists": "x = " + "[" * 50_000 + "]" * 50_000,
        "tables": "x = " + "{a=" * 60_000,
        "dotted key": "a" + ".a" * 100_000 + " = 1",
        "dotted table": "[a" + ".a" * 100_000 + "]",
        "dotted keys": "\n".join(f"a{'.a' * 300}.b{i} = 1" for i in range(300)),
        "many keys": "\n".join(f"a{i} = 1" for i in range(50_000)),
        "many tables": "\n".join(f"[[a]]\nb = {i}" for i in range(50_000)),
        "a long key": "a" * 10**6 + " = 1",
        "escapes": f'{name} = "{escape}"',
        "escapes in a key": '"\\u001b[31m" = 1',
        "raw escapes": f'{name} = "\x1b[2J"',
        "a null character": f'{name} = "a\\u0000b"',
        "no UTF-8": "name = '\udcff'",
        "many digits": f"{name} = " + "9" * rng.choice((30, 5000, 10**6)),
        "a huge number": f"{name} = 1e308",
        "infinite": f"{name} = {rng.choice(('inf', 'nan', '-inf'))}",
        "a date": f"{name} = 1979-05-27T07:32:00Z",
        "another type": f"{name} = " + rng.choice(("[]", "{}", "true", "[[1]]", "07:32:00", "1.5", "-1")),
        "a name with lines": 'name = "a\\nseqmixer: b"',
        "a name that leads out": 'name = "../../out"',
        "a long name": f'name = "{"a" * 5000}"',
        "twice": "seed = 1\nseed = 2",
        "a huge model": "[model]\nhidden = 1000000\nlayers = 1000",
        "a huge batch": "[training]\nbatch_size = 99999999999999999999",
    }
    kind = rng.choice(list(made))
    path.write_bytes(made[kind].encode("utf-8", "surrogateescape") + b"\n")
    return f"{kind} ({name})" if name in made[kind] else kind


def types(path: Path, rng: random.Random) -> str:
    """Another value, of another type mostly, anywhere in a JSON file."""
    values = json.loads(path.read_bytes())
    found = list(places(values))
    if not found:
        return contents(path, rng)
    table, key = rng.choice(found)
    value = rng.choice(VALUES)
    how = rng.choice(("value", "value", "value", "value", "key", "gone"))
    if how == "value" or isinstance(table, list):
        table[key] = value
    else:
        before = table.pop(key)
        if how == "key":
            table[str(value)[:1000]] = before
    path.write_text(json.dumps(values), encoding="utf-8", errors="surrogatepass")
    return f"{how} {key!r}: {repr(value)[:40]}"


def places(value: Any) -> Any:
    """Every (table or list, key) in a JSON value."""
    for key, inner in list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield value, key
        yield from places(inner)


def escapes(path: Path, rng: random.Random) -> str:
    """Control characters as part of a word."""
    lines = path.read_bytes().split(b"\n")
    for i in range(4 if path.suffix == ".vocab" else 0, len(lines)):
        if lines[i] and rng.random() < 0.5:
            lines[i] = rng.choice(ESCAPES).replace("\r", "").encode() + lines[i]
    path.write_bytes(b"\n".join(lines))
    return "control characters in words"


def tensors(path: Path, rng: random.Random) -> str:
    """A safetensors file, well-formed or not, with other tensors than those that are expected."""
    content = path.read_bytes()
    (size,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + size])
    data = content[8 + size :]
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names)
    entry = header[name]
    begin, end = entry["data_offsets"]
    made = {
        name: (each["dtype"], each["shape"], data[slice(*each["data_offsets"])])
        for name, each in header.items()
        if name in names
    }
    kind = rng.choice(
        (
            "smaller",
            "larger",
            "flat",
            "type",
            "rename",
            "gone",
            "more",
            "NaN",
            "scalar",
            "header",
            "size",
            "offsets",
            "all smaller",
        )
    )
    dtype, shape, raw = made[name]
    match kind:
        case "smaller":
            made[name] = (dtype, [1], raw[: width(dtype)])
        case "all smaller":
            made = {
                each: (dtype, [1], raw[: width(dtype)]) if raw else (dtype, shape, raw)
                for each, (dtype, shape, raw) in made.items()
            }
        case "larger":
            made[name] = (dtype, [2, *shape], raw * 2)
        case "flat":
            made[name] = (dtype, [len(raw) // width(dtype), 1, 1], raw)
        case "type":
            other = {4: "I32", 8: "F64", 1: "BOOL", 2: "BF16"}[width(dtype)]
            made[name] = ("F32" if dtype == other else other, shape, raw)
        case "rename":
            made[rng.choice(("x", name + ".x", "", "../x", rng.choice(ESCAPES), name[:3]))] = made.pop(name)
        case "gone":
            del made[name]
        case "more":
            made[name + "2"] = made[name]
            made["9999.exp_avg"] = made[name]
        case "NaN":
            made[name] = (dtype, shape, struct.pack("<f", math.nan) * (len(raw) // 4) + raw[len(raw) // 4 * 4 :])
        case "scalar":
            made[name] = (dtype, [], raw[: width(dtype)])
        case "header":
            entry[rng.choice(("shape", "dtype", "data_offsets"))] = rng.choice(VALUES)
        case "size":
            path.write_bytes(struct.pack("<Q", rng.choice((0, 1, 2**40, 2**63, 99_000_000))) + content[8:])
            return kind
        case "offsets":
            entry["data_offsets"] = rng.choice(([end, begin], [begin, end + 4], [0, 2**62], [-4, end], [begin, begin]))
    if kind in ("header", "offsets"):
        text = json.dumps(header).encode("utf-8", "surrogatepass")
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        return f"{kind} {name}"
    path.write_bytes(packed(made))
    return f"{kind} {name}"


def width(dtype: str) -> int:
    return {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "BOOL": 1, "U8": 1, "I8": 1}[dtype]


def packed(made: dict[str, tuple[str, list[int], bytes]]) -> bytes:
    header, place = {}, 0
    for name, (dtype, shape, raw) in made.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(raw)]}
        place += len(raw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in made.values())


def features(folder: Path, rng: random.Random) -> tuple[str, Path]:
    """Image features that are none."""
    path = folder / "features.npy"
    good = path.read_bytes()

    def header(text: str) -> bytes:
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n" + bytes(48)

    def array(made: Any) -> bytes:
        file = io.BytesIO()
        numpy.save(file, made, allow_pickle=True)
        return file.getvalue()

    made = {
        "objects": array(numpy.array([{"a": 1}, None, 3], dtype=object)),
        "texts": array(numpy.array([["a", "b"]] * 3)),
        "one dimension": array(numpy.ones(3)),
        "five dimensions": array(numpy.ones((3, 1, 1, 1, 1))),
        "too few rows": array(numpy.ones((1, 4))),
        "no columns": array(numpy.ones((3, 0))),
        "not finite": array(numpy.full((3, 4), numpy.nan)),
        "huge numbers": array(numpy.full((3, 4), 1e300)),
        "complex": array(numpy.ones((3, 4), dtype=complex)),
        "a huge shape": header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 4)}"),
        "a negative shape": header("{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4)}"),
        "a program": header("{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').getpid(), 4)}"),
        "a deep header": header("(" * 30_000),
        "cut": good[: rng.randrange(len(good))],
        "a link outside": b"",
    }
    if rng.random() < 0.25:
        path = folder / "features.npz"
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("features.npy", "w", force_zip64=True) as file,
        ):
            shape = "{'descr': '<f4', 'fortran_order': False, 'shape': (250000000, 4)}"
            file.write(header(shape))
            for _ in range(4):  # says 4 GB, and unpacks to 400 MB
                file.write(bytes(10**8))
        return "zip bomb", path
    if rng.random() < 0.2:
        return thing(path, rng), path
    kind = rng.choice(list(made))
    path.write_bytes(made[kind])
    return kind, path


def digest(path: Path) -> str:
    with path.open("rb") as file:  # perhaps of many gigabytes, all of them a hole
        return hashlib.file_digest(file, "sha256").hexdigest()


def reseal(run: Path, before: str, now: str) -> None:
    """Put the checksum of a changed file wherever the old one was written; that changes another file, and so on."""
    for path in run.rglob("*.json"):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > 2**28:
            continue
        if before.encode() in (content := path.read_bytes()):
            checksum = digest(path)
            path.write_bytes(content.replace(before.encode(), now.encode()))
            reseal(run, checksum, digest(path))
