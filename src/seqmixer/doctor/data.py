"""The data of a run: there, readable, aligned, long enough, known words, no test sentence among the training ones."""

from collections.abc import Iterator
from pathlib import Path

from seqmixer.build import Metrics, elsewhere, missing_files
from seqmixer.config import Config
from seqmixer.data import Split, Task, coverage
from seqmixer.data.cropping import length_covering
from seqmixer.doctor.findings import Check, Finding
from seqmixer.errors import SeqmixerError
from seqmixer.runs import task_of
from seqmixer.storage.identity import changed_splits

UNKNOWN = 0.05  # share of unknown words from which on they matter
LEAK = 0.01  # share of examples that stand in the training data too, from which on they matter


def examine_data(config: Config, folder: Path) -> tuple[Check, Task | None]:
    """The task is None where it cannot be read."""
    gone = missing_files(config.data)
    if gone:
        return Check("data", [Finding("problem", f"{path}: no such file", advice=elsewhere()) for path in gone]), None
    try:
        task = task_of(config, folder)
        _ = Metrics(config, task).chosen
    except SeqmixerError as error:
        return Check("data", [Finding("problem", str(error))]), None
    findings = [
        size(config, task),
        covered(task),
        *unknown_words(config, task),
        *leaks(task),
        *changed(folder, task),
    ]
    if config.training.batch_size > len(task.train):
        what = (
            f"training.batch_size = {config.training.batch_size} is more than the {len(task.train)} training examples"
        )
        findings.append(Finding("warning", what, "an epoch is then one update", "lower it"))
    return Check("data", findings, measured(task)), task


def size(config: Config, task: Task) -> Finding:
    sizes = " / ".join(f"{len(split):,}" for split in task.splits.values())
    words = f"{len(task.target_vocab):,} target words"
    if task.source_vocab:
        words = f"{len(task.source_vocab):,} source and {words}"
    return Finding("ok", f"{config.data.task}: {sizes} examples to train, validate and test on, {words}")


def covered(task: Task) -> Finding:
    share = coverage(task.train, task.length)
    what = f"T = {task.length} covers {share:.1%} of the training targets"
    if share >= 0.9:
        return Finding("ok", what)
    why = "the others lose their tail and their end, so the model learns not to stop"
    return Finding("warning", what, why, f"set data.length = {length_covering(task.train)}, which covers 95 %")


def unknown_words(config: Config, task: Task) -> Iterator[Finding]:
    why = {"source": "the model reads them all as one word", "target": "an unknown word never matches"}
    for name, split in task.splits.items():
        for side, share in split.unknown_shares().items():
            if share > UNKNOWN:
                what = f"{share:.1%} of the {side} words of {name} are unknown"
                yield Finding("warning", what, why[side], known_words(config, side))


def known_words(config: Config, side: str) -> str:
    """How to know more of them."""
    if config.model.pretrained:
        return "take a model.path whose tokenizer knows them"
    if getattr(config.data, f"{side}_min_count") > 1:
        return f"lower data.{side}_min_count, or use BPE"
    if getattr(config.data, f"{side}_max_size") is not None:
        return f"raise data.{side}_max_size, or use BPE"
    return "have more training sentences, or use BPE"


def leaks(task: Task) -> Iterator[Finding]:
    for name in ("valid", "test"):
        split = task.splits[name]
        if not split.meta:
            continue
        share = leaked(task.train, split)
        if share > LEAK:
            what = f"{share:.1%} of the {name} examples, source and reference, are training examples too"
            yield Finding("warning", what, "their score says nothing of new text", "drop them from the training data")


def leaked(train: Split, other: Split) -> float:
    """The share of examples that have their source and one of their references in common with a training example."""
    seen = {(meta["source"], reference) for meta in train.meta for reference in meta["references"]}
    there = [any((meta["source"], reference) in seen for reference in meta["references"]) for meta in other.meta]
    return sum(there) / len(other)


def changed(folder: Path, task: Task) -> Iterator[Finding]:
    """Against what the run began with."""
    if not (folder / "task.json").is_file():
        return
    try:
        different = changed_splits(folder, task.splits)
    except SeqmixerError as error:
        yield Finding("problem", str(error))
        return
    for name in different:
        what = f"the {name} data is not what the run in {folder} began with"
        yield Finding(
            "problem", what, "it cannot go on", "put the old files back, or begin another run (--set name=...)"
        )
    if not different:
        yield Finding("ok", f"the data is what the run in {folder} began with")


def measured(task: Task) -> dict[str, object]:
    return {
        "length": task.length,
        "covered": coverage(task.train, task.length),
        "sizes": {name: len(split) for name, split in task.splits.items()},
        "unknown": {name: split.unknown_shares() for name, split in task.splits.items()},
        "leaked": {name: leaked(task.train, task.splits[name]) for name in ("valid", "test")},
    }
