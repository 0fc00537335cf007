"""The data of a run: long enough, known words, no test sentence among the training ones, the same as at its start."""

from collections.abc import Iterator
from pathlib import Path

from seqmixer.config import Config
from seqmixer.data import Split, Task, coverage
from seqmixer.data.cropping import length_covering
from seqmixer.doctor.findings import Finding, ok, warning
from seqmixer.storage.identity import require_same_data

UNKNOWN = 0.05  # share of unknown words from which on they matter
LEAK = 0.01  # share of examples that are training examples too, from which on they matter
READ_AS = {"source": "the model reads them all as one word", "target": "an unknown word never matches"}


def described(config: Config, task: Task, folder: Path) -> Iterator[Finding]:
    """What there is, and what is wrong with it; an error where it is not what the run in `folder` began with."""
    sizes = " / ".join(f"{len(split):,}" for split in task.splits.values())
    source = f"{len(task.source_vocab):,} source and " if task.source_vocab else ""
    words = f"{source}{len(task.target_vocab):,} target words"
    yield ok(f"{config.data.task}: {sizes} examples to train, validate and test on, {words}")
    share = coverage(task.train, task.length)
    what = f"T = {task.length} covers {share:.1%} of the training targets"
    if share >= 0.9:
        yield ok(what)
    else:
        why = "the longer ones lose their last words and EOS, so the model learns not to stop"
        yield warning(what, why, f"set data.length = {length_covering(task.train)}, which covers 95 %")
    for name, split in task.splits.items():
        for side, unknown in split.unknown_shares().items():
            if unknown > UNKNOWN:
                what = f"{unknown:.1%} of the {side} words of {name} are unknown"
                advice = f"lower data.{side}_min_count, raise data.{side}_max_size, or use BPE"
                pretrained = "take a model.path whose tokenizer knows them"
                yield warning(what, READ_AS[side], pretrained if config.model.pretrained else advice)
    for name, leak in leaks(task).items():
        if leak > LEAK:
            what = f"{leak:.1%} of the {name} examples, source and reference, are training examples too"
            yield warning(what, "their score says nothing of new text", "drop them from the training data")
    if (size := config.training.batch_size) > len(task.train):
        what = f"training.batch_size = {size} is more than the {len(task.train)} training examples"
        yield warning(what, "an epoch is then one update", "lower it")
    if (folder / "task.json").is_file():
        require_same_data(folder, task.splits)
        yield ok(f"the data is what the run in {folder} began with")


def leaks(task: Task) -> dict[str, float]:
    """The share of examples that have source and a reference in common with a training example, by split."""
    seen = {pair for pairs in source_and_references(task.train) for pair in pairs}
    held_out = {name: source_and_references(task.splits[name]) for name in ("valid", "test")}
    return {
        name: sum(any(p in seen for p in pairs) for pairs in split) / len(split) for name, split in held_out.items()
    }


def source_and_references(split: Split) -> list[list[tuple[str, str]]]:
    return [[(meta["source"], reference) for reference in meta["references"]] for meta in split.meta]


def measured(task: Task) -> dict[str, object]:
    return {
        "length": task.length,
        "covered": coverage(task.train, task.length),
        "sizes": {name: len(split) for name, split in task.splits.items()},
        "unknown": {name: split.unknown_shares() for name, split in task.splits.items()},
        "leaked": leaks(task),
    }
