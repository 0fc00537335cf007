"""A config that fits the data and the machine, as TOML whose comments say why each setting is what it is."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from seqmixer import files
from seqmixer.bars import duration
from seqmixer.build import build_task, read_split
from seqmixer.config import Config
from seqmixer.data import Task, coverage, read_captions
from seqmixer.doctor.cost import measured
from seqmixer.doctor.examination import made_ready
from seqmixer.errors import DataError
from seqmixer.init.files import Ask, Files, capitals, raw, unspaced
from seqmixer.rewards import READABLE
from seqmixer.runs import threads
from seqmixer.training import device

HERE = Path(__file__).parent
SAMPLE = 20_000  # training examples that are looked at
LEAST = 30  # examples for training, validation and test together
UNKNOWN = 0.02  # of the words of new text: from here on, sub-words are better
SECONDS = 480  # to train in, of ten minutes
HIDDEN = {"cpu": (256, 128)}  # sizes to choose from
LARGER = (512, 256)  # on any other device
BY_SIZE = [  # up to so many training examples
    (3_000, {"subwords": 1_000, "dropout": 0.4, "xent_epochs": 30, "mixed_epochs": 3, "batch_size": 32}),
    (20_000, {"subwords": 2_000, "dropout": 0.3, "xent_epochs": 20, "mixed_epochs": 2, "batch_size": 32}),
    (100_000, {"subwords": 4_000, "dropout": 0.3, "xent_epochs": 15, "mixed_epochs": 1, "batch_size": 64}),
    (10**12, {"subwords": 16_000, "dropout": 0.1, "xent_epochs": 10, "mixed_epochs": 1, "batch_size": 128}),
]
PLACE = re.compile(r"\{(\w+)\}")

Values = dict[str, Any]  # by place in the template; what is None, empty or not there is left out


@dataclass(frozen=True)
class Plan:
    """A config, and what was found, in lines for people."""

    toml: str
    config: Config
    found: list[str]


def plan(given: Files, spoken: Sequence[str], file: Path, ask: Ask) -> Plan:
    """Look at the text, choose all settings, and measure how long training takes.

    Args:
        spoken: the languages of the source and of the target, where somebody has said them.
        file: what the config will be called.
    """
    size, data = sized(given.data)
    values: Values = {"file": file, "run": file.stem, "name": file.stem, "source": "the first file"} | data
    values |= next(chosen for most, chosen in BY_SIZE if size <= most)
    values |= text_steps(looked_at(values | {"subwords": None, "normalise": "NFC"}), spoken or given.languages, ask)
    values |= words_or_pieces(values)
    task = looked_at(values)
    values |= rewarded(task, bool(values.get("normalise"))) | lengths(task, values["mixed_epochs"])
    seconds = 0.0
    for hidden in HIDDEN.get(device("auto").type, LARGER):
        values["hidden"] = hidden
        seconds = lasts(configured(values), task, size)
        if seconds < SECONDS:
            break
    values["time"] = duration(seconds)
    values["what"] = f"{size:,} examples of {values['kind']}"
    text = filled(values)
    return Plan(text, Config.parse(files.parse_toml(text, str(file)), str(file)), list(described(task, values)))


def sized(data: Values) -> tuple[int, Values]:
    """The number of training examples, and [data] with sizes for what has no files: a tenth to test, a twentieth."""
    if data["task"] == "captions":
        images = read_captions(Path(data["folder"]) / data["captions"])
        return sum(image.split == "train" for image in images), data
    data = data | {"skip_empty": True, "held_out": [0 if data["valid"] else 1, 0 if data["test"] else 1]}
    size = len(read_split(Config.parse({"data": data}).data, 0)[1])
    if size < LEAST:
        raise DataError(
            f"{', '.join(data['train'])}: {size} examples; it takes {LEAST}, and better thousands, to train"
        )
    wanted_valid, wanted_test = data["held_out"]
    valid, test = wanted_valid * min(1_000, size // 20 + 1), wanted_test * min(1_000, size // 10)
    return size - valid - test, data | {"held_out": [valid, test] if valid + test else None}


def text_steps(task: Task, spoken: Sequence[str], ask: Ask) -> Values:
    """[text], for raw text."""
    targets = [text for meta in islice(task.train.meta, 2_000) for text in meta["references"]]
    sources = [meta["source"] for meta in islice(task.train.meta, 2_000)] if task.source_vocab else []
    if unspaced(targets):
        return {"normalise": "NFC", "pieces": True}
    if not raw(targets):
        return {}
    if not spoken:
        question = (
            "Language of the source and of the target, such as: de en (for punctuation; no answer: as in English)"
        )
        spoken = ask(question).replace(",", " ").split() or ["en"]
    return {"normalise": "NFC", "languages": [*spoken], "case": "true" if capitals([*targets, *sources]) else None}


def words_or_pieces(values: Values) -> Values:
    """Words where new text has few unknown ones, else sub-words."""
    once = {"source_min_count": 2, "target_min_count": 2}
    if values["task"] == "captions":
        del once["source_min_count"]
    shares = looked_at(values | once | {"subwords": None}).test.unknown_shares()
    said = " and ".join(f"{share:.1%} of the {side} words" for side, share in sorted(shares.items()))
    if values["task"] == "captions" or (max(shares.values()) < UNKNOWN and not values.get("pieces")):
        return once | {"subwords": None, "unknown": said, "unk": False}
    return {"spelled": said}


def rewarded(task: Task, readable: bool) -> Values:
    """The reward and the metrics of this kind of task."""
    lengths = [len(text) for meta in task.train.meta for text in (meta["source"], meta["references"][0])]
    kind = "text" if 2 * sum(lengths[1::2]) > sum(lengths[::2]) else "summaries"
    kind = kind if task.source_vocab else "captions"
    chosen = tomllib.loads((HERE / "kinds.toml").read_text(encoding="utf-8"))[kind]
    metrics = [name for name in chosen["metrics"] if readable or name not in READABLE]
    return {"kind": kind} | chosen | {"metrics": metrics}


def lengths(task: Task, mixed_epochs: int) -> Values:
    """T, and MIXER's s: half of it, then 0."""
    T, delta = task.length, -(-task.length // 2)
    longest = max(len(reference) for references in task.train.references for reference in references)
    covered = f"{coverage(task.train, T):.1%}"
    return {"length": T, "covered": covered, "longest": longest, "delta": delta, "s": f"{T - delta}, then 0"}


def lasts(config: Config, task: Task, size: int) -> float:
    """Seconds that training takes, by a few updates of its first and last stage."""
    ready = made_ready(config, Path("/nowhere"), task)
    if seconds := threads.measured(ready.model, task, config.training, True):
        config = threads.with_threads(config, threads.fewest(seconds))
    stages = config.algorithm.schedule(task.length)
    timing = measured(config, task, ready.model, ready.algorithm, len(stages))
    first = stages.count(stages[0])
    each = first * median(timing.first) + (len(stages) - first) * median(timing.last)
    return size / config.training.batch_size * each + len(stages) * timing.validation


def looked_at(values: Values) -> Task:
    """The data of the config so far, of much data a part."""
    config = configured(values)
    return build_task(config.data, text=config.text, sample=SAMPLE)


def configured(values: Values) -> Config:
    """The config so far."""
    return Config.parse(files.parse_toml(filled(values), "the config"), "the config")


def filled(values: Values) -> str:
    """The template with its places filled; tables without settings are left out."""
    tables = (HERE / "template.toml").read_text(encoding="utf-8").rstrip().split("\n\n")
    return "\n\n".join(filter(None, (filled_table(table.split("\n"), values) for table in tables))) + "\n"


def filled_table(lines: Sequence[str], values: Values) -> str:
    """A table, without the settings whose value is not there, and the comments above them.

    >>> filled_table(["[t]", "# Why {x}.", "a = {a}  # so: {b}", "# Why not.", "c = {c}"], {"a": "é", "x": 1})
    '[t]\\n# Why 1.\\na = "é"'
    >>> filled_table(["[t]", "a = {a}"], {})
    ''
    """
    kept, above = list[str](), list[str]()
    for line in lines:
        if line.startswith("#"):
            above += filled_line(line, values, str)
            continue
        setting, mark, remark = line.partition("  # ")
        if found := filled_line(setting, values, partial(json.dumps, ensure_ascii=False)):
            said = filled_line(remark, values, str)
            kept += [*above, *(f"{each}{mark}{said[0]}" if said else each for each in found)]
        above = []
    return "\n".join(kept) if any(" = " in line for line in kept) else ""


def filled_line(line: str, values: Values, write: Callable[[Any], str]) -> list[str]:
    """The line, or nothing where a value is not there."""
    if any(values.get(place) is None or values[place] == [] for place in PLACE.findall(line)):
        return []
    return [PLACE.sub(lambda place: " ".join(write(values[place[1]]).split()), line)]


def described(task: Task, values: Values) -> Iterator[str]:
    """What was found and chosen."""
    sizes = (
        "" if not values.get("held_out") else " ({} more for validation, {} for the test)".format(*values["held_out"])
    )
    kind = "raw text" if values.get("normalise") else "words with spaces between"
    yield f"{values['what']}{sizes}: {kind}{', ' + ' to '.join(values['languages']) if values.get('languages') else ''}"
    if values["subwords"]:
        yield f"{values['subwords']:,} sub-words on each side: {values['spelled']} of new text would be unknown"
    else:
        yield f"words seen twice or more: {values['unknown']} of new text are unknown"
    yield f"T = {task.length} holds {values['covered']} of the targets; the longest has {values['longest']}"
    schedule = f"{values['xent_epochs']} epochs of cross-entropy, then s = {values['s']}"
    yield f"hidden = {values['hidden']}, {schedule}: about {values['time']} here"
