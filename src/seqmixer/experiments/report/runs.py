"""`seqmixer report`: any runs on one page. What differs, what they score, how they learnt, what they write."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from seqmixer import files
from seqmixer.bars import duration
from seqmixer.build import run_length
from seqmixer.config import Config
from seqmixer.errors import RunError
from seqmixer.evaluation import Evaluation, Scored
from seqmixer.experiments.compare import as_table, compared
from seqmixer.experiments.report.effects import side_effects
from seqmixer.experiments.report.page import (
    Bars,
    Chapter,
    Curves,
    History,
    Page,
    Part,
    ReportTable,
    Sentences,
    require_extra,
    versions,
)
from seqmixer.experiments.report.sentences import Outputs, System, by_test_set, outputs
from seqmixer.settings import flat
from seqmixer.storage.identity import Description, read_config, read_task
from seqmixer.training import epochs, read_log
from seqmixer.training.callbacks import Event

SPLITS = ("train", "valid", "test")
ASIDE = ("name", "data.folder", "training.threads")  # settings that say nothing of what a run learns
INTERVALS = (
    "The intervals hold 95 % of 1,000 resampled test sets, which are the same for all runs (paired "
    "bootstrap). Differences are to the first run; bold: 0 is outside the interval. p is sacreBLEU's."
)


@dataclass(frozen=True)
class Told:
    """What a run folder says of itself."""

    label: str
    colour: str
    config: Config
    task: Description
    events: Sequence[Event]
    test: Evaluation | None
    words: str  # a checksum of its target vocabulary

    @cached_property
    def epochs(self) -> list[Event]:
        return epochs(list(self.events))

    @property
    def data(self) -> str:
        data = self.config.data
        return ", ".join(data.train) or (data.captions if data.task == "captions" else data.task)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Of all epochs, by what took them."""
        names = dict.fromkeys(name for event in self.epochs for name in event["seconds"])
        return {name: sum(event["seconds"].get(name, 0.0) for event in self.epochs) for name in names}

    def facts(self) -> Iterator[tuple[str, str]]:
        planned = run_length(self.config, self.task.dimensions["length"] or 1)
        why = "".join(f", ended: {event['why']}" for event in self.events if event["event"] == "end")
        yield "epochs", f"{len(self.epochs)} of {planned}{why}"
        if best := [event for event in self.epochs if event["best"]]:
            yield "best epoch", str(best[-1]["epoch"])
        parameters = f", {self.task.parameters:,} parameters" if self.task.parameters else ""
        yield "algorithm", self.config.algorithm.name
        yield "model", self.config.model.described + parameters
        yield "data", self.data
        if self.task.sizes:
            yield " / ".join(SPLITS), " / ".join(f"{self.task.sizes[name]:,}" for name in SPLITS)
        yield "training time", duration(sum(self.seconds.values()))
        if machines := dict.fromkeys(event["machine"] for event in self.epochs if "machine" in event):
            yield "machine", "; ".join(machines)
        for name, value in best[-1]["valid"].items() if best else ():
            yield f"validation {name}", f"{value:.2f}"

    def history(self) -> History:
        size = self.task.sizes.get("train")
        events = [{k: v for k, v in event.items() if k not in ("samples", "machine")} for event in self.events]
        return History(self.label, self.colour, events, size and -(-size // self.config.training.batch_size))


def write_report(folders: Sequence[Path], out: Path, trust: bool, command: str) -> Path:
    require_extra()
    if out.is_dir():
        raise RunError(f"--out {out} is a folder; name a file, such as {out / 'report.html'}")
    return page(read(folders, trust), command).write(out)


def read(folders: Sequence[Path], trust: bool) -> list[Told]:
    """Each run once, named by the part of its path that differs."""
    paths = list(dict.fromkeys(folder.resolve() for folder in folders))
    above = os.path.commonpath([path.parent for path in paths])
    found = []
    for i, path in enumerate(paths):
        label, colour = path.relative_to(above).as_posix(), f"var(--run-{i % 8})"
        config, task, events = read_config(path), read_task(path), read_log(path)
        vocab = path / "target.vocab"
        words = files.sha256(vocab) if vocab.is_file() else ""
        found.append(Told(label, colour, config, task, events, outputs(path, trust), words))
    return found


def page(runs: Sequence[Told], command: str) -> Page:
    tests = by_test_set((run.data, System(run.label, run.test, run.colour, run.words)) for run in runs if run.test)
    written = [(run.label, run.test.effects) for run in runs if run.test and run.test.effects]
    spent = [(run.label, run.seconds) for run in runs if run.epochs]
    chapters = [
        Chapter("Runs", [*summary(runs)]),
        Chapter("Test scores", [*(table for test in tests for table in scores(test)), *[INTERVALS] * bool(tests)]),
        Chapter("Learning", [Curves([run.history() for run in runs])]),
        Chapter("Side effects", [side_effects(written, "Of the test sentences, greedy search")] if written else []),
        Chapter("Where the time went", [Bars("Where the time went", spent)] if spent else []),
        Chapter("What they write", [Sentences(tests)] if tests else []),
    ]
    return Page(
        f"Runs: {', '.join(run.label for run in runs)}" if len(runs) > 1 else f"Run: {runs[0].label}",
        headline(runs, tests),
        [chapter for chapter in chapters if chapter.parts],
        commands=[command],
        facts=[("versions", versions()), *signatures(tests)],
        colours={run.label: run.colour for run in runs},
    )


def headline(runs: Sequence[Told], tests: Sequence[Outputs]) -> str:
    """What was found, in a sentence."""
    if not tests:
        return f"{len(runs)} run{'s' * (len(runs) > 1)}, none with a model yet."
    first, *others = tests[0].systems
    name, scored = first.test.scored[0].metric, f"{first.test.score:.2f}"
    if len(tests) > 1 or any(other.test.scored[0].metric != name for other in others):
        return f"{len(runs)} runs on {len(tests)} test set{'s' * (len(tests) > 1)}."
    if not others:
        return f"{first.label}: {name} {scored} on {len(first.test.sources):,} test sentences."
    best = max(others, key=lambda system: system.test.score)
    return f"{best.label}: {name} {best.test.score:.2f}, {best.test.score - first.test.score:+.2f} to {first.label}."


def summary(runs: Sequence[Told]) -> Iterator[Part]:
    """What is known of the runs: what they share in a line, what differs in a table; then the settings that differ."""
    facts = [dict(run.facts()) for run in runs]
    settings = [{k: v for k, v in flat(run.config.model_dump(mode="json")) if k not in ASIDE} for run in runs]
    labels = [run.label for run in runs]
    yield ReportTable("Runs", ["", *labels], [*rows(facts, equal=len(runs) == 1)])
    if len(runs) > 1:
        if same := [f"{name}: {values[0]}" for name, *values in rows(facts, equal=True) if len(set(values)) == 1]:
            yield f"The same for all: {'; '.join(same)}."
        different = [*rows(settings)]
        yield ReportTable(
            f"{len(different)} settings that differ", ["", *labels], different, folded=len(different) > 12
        )


def rows(found: Sequence[Mapping[str, object]], equal: bool = False) -> Iterator[list[str]]:
    """A row for each name: those whose values differ, or all."""
    for name in dict.fromkeys(name for values in found for name in values):
        cells = [text if isinstance(text := values.get(name, "–"), str) else json.dumps(text) for values in found]
        if equal or len(set(cells)) > 1:
            yield [name, *cells]


def scores(test: Outputs) -> Iterator[ReportTable]:
    """A table for each way to score: every system with its interval, and the difference to the first."""
    ways: dict[Any, list[tuple[str, Scored]]] = {}
    for system in test.systems:
        for scored in system.test.scored:
            words = system.words if "unk:left-out" in scored.signature else ""  # which words are unknown matters there
            ways.setdefault((scored.metric, scored.signature, words), []).append((system.label, scored))
    for (metric, *_), systems in ways.items():
        yield as_table(compared(systems), f"{metric}, {len(test.systems[0].test.sources):,} sentences: {test.name}")


def signatures(tests: Sequence[Outputs]) -> list[tuple[str, str]]:
    found = {(scored.metric, scored.signature) for test in tests for s in test.systems for scored in s.test.scored}
    return sorted(found)
