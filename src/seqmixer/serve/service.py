"""Answers for many callers at once: one thread has the models, and batches what is waiting."""

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from seqmixer.data import Split
from seqmixer.errors import DataError, RunError, SeqmixerError, unknown
from seqmixer.rewards import DEFAULT, Metric
from seqmixer.runs import Run, load
from seqmixer.runs.explain import Explanation, Searches, explain
from seqmixer.runs.threads import threads
from seqmixer.serve.limits import CHARACTERS, ROOM, SOURCES, WAITING, WORDS, Busy, Question
from seqmixer.storage.identity import first_path, require_same_data

Source = str | list[float]


@dataclass(frozen=True)
class Served:
    """A run, with what its data adds: examples, and a metric for a sentence and its reference."""

    name: str
    run: Run
    test: Split | None = None
    metric: Metric | None = None
    lacks: str = ""  # why it has no examples and no metric

    @property
    def reads(self) -> str:
        features = self.run.dimensions.features
        return f"{features} image features" if features else "text" if self.run.source_vocab else "nothing"


@dataclass(frozen=True, eq=False)
class Wanted:
    """One source, and who waits for it."""

    served: Served
    searches: Searches
    source: Source
    reference: str | None
    answer: "Future[Explanation]" = field(default_factory=Future)

    @property
    def cost(self) -> int:
        """The words of the source, counted once for each sentence that is written."""
        words = len(self.source.split()) + 1 if isinstance(self.source, str) else 1
        return words * (1 + self.searches.beam + self.searches.samples)


class Service:
    """A queue and the thread that empties it. What is alike (the run, the searches) is decoded in one batch."""

    def __init__(self, every: Sequence[Served]) -> None:
        self.served = {each.name: each for each in every}
        self.waiting = deque[Wanted]()
        self.changed = threading.Condition()
        self.closed = False
        self.thread = threading.Thread(target=self.work, name="models", daemon=True)
        self.thread.start()

    def ask(self, question: Question) -> tuple[Served, list["Future[Explanation]"]]:
        """Put a question's sources into the queue. Raises a SeqmixerError for one that cannot be answered."""
        served = self.named(question.run)
        wanted = wanted_of(served, question)
        with self.changed:
            if len(self.waiting) + len(wanted) > WAITING:
                raise Busy(f"{len(self.waiting)} sources are waiting, at most {WAITING} may; try again in a second")
            self.waiting.extend(wanted)
            self.changed.notify()
        return served, [each.answer for each in wanted]

    def named(self, name: str | None) -> Served:
        if name is None:
            return next(iter(self.served.values()))
        if name not in self.served:
            raise unknown("run", name, self.served)
        return self.served[name]

    def work(self) -> None:
        while batch := self.next():
            taken = [each for each in batch if each.answer.set_running_or_notify_cancel()]
            if not taken:
                continue
            try:
                answers = answered(taken)
            except Exception as error:
                for each in taken:
                    each.answer.set_exception(error)
            else:
                for each, answer in zip(taken, answers, strict=True):
                    each.answer.set_result(answer)

    def next(self) -> list[Wanted]:
        """The source that has waited longest, and those like it that there is room for. None once all is over."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.closed)
            if self.closed:
                return []
            first, rest = self.waiting.popleft(), deque[Wanted]()
            batch, longest = [first], first.cost
            for each in self.waiting:
                alike = each.served is first.served and each.searches == first.searches
                if alike and max(longest, each.cost) * (len(batch) + 1) <= ROOM and len(batch) < SOURCES:
                    batch.append(each)
                    longest = max(longest, each.cost)
                else:
                    rest.append(each)
            self.waiting = rest
            return batch

    def close(self) -> None:
        """End the thread once its batch is done. Who still waits is told."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join(timeout=1)
        for each in self.waiting:
            each.answer.cancel()


def wanted_of(served: Served, question: Question) -> list[Wanted]:
    """A question's sources, checked for the kind that the run reads."""
    given: dict[str, Sequence[Source]] = {"sources": question.sources, "features": question.features}
    kind = "features" if served.run.dimensions.features else "sources"
    (other,) = given.keys() - {kind}
    if not given[kind] or given[other]:
        raise DataError(f"{served.name} reads {served.reads}: give it as {kind!r}, a list with at least one")
    sources = given[kind]
    references = question.references if question.references is not None else [None] * len(sources)
    if len(references) != len(sources):
        raise DataError(f"{len(references)} references of {len(sources)} sources; give one for each, or null")
    for i, (source, reference) in enumerate(zip(sources, references, strict=True), 1):
        the, number = ("", f" {i}") if len(sources) > 1 else ("the ", "")
        require_readable(served, source, f"{the}source{number}")
        require_text(reference or "", f"{the}reference{number}")
    return [
        Wanted(served, question.searches, source, reference or None)
        for source, reference in zip(sources, references, strict=True)
    ]


def require_readable(served: Served, source: Source, name: str) -> None:
    if isinstance(source, str):
        require_text(source, name)
        if served.run.source_vocab and not source.strip():
            raise DataError(f"{name} is empty; give it at least one word")
    elif len(source) != served.run.dimensions.features:
        raise DataError(f"{name} has {len(source)} features; {served.name} reads {served.run.dimensions.features}")


def require_text(text: str, name: str) -> None:
    for count, most, what in ((len(text), CHARACTERS, "characters"), (len(text.split()), WORDS, "words")):
        if count > most:
            raise DataError(f"{name} has {count:,} {what}; at most {most:,} are read")


def answered(batch: Sequence[Wanted]) -> list[Explanation]:
    """What the model does with sources of one run, searched alike."""
    first = batch[0]
    sources: list[str] | Tensor = [each.source for each in batch if isinstance(each.source, str)]
    if not sources:
        sources = torch.tensor([each.source for each in batch])
    reward = first.served.metric.reward if first.served.metric else None
    references = [each.reference for each in batch]
    with threads(first.served.run.config.training.threads):
        return explain(first.served.run, sources, first.searches, references, reward)


def opened(folders: Sequence[Path]) -> list[Served]:
    """Open runs to serve, under the names of their folders. They must read the same kind of source."""
    last = [folder.resolve().name for folder in folders]
    names = [name if last.count(name) == 1 else str(folder) for name, folder in zip(last, folders, strict=True)]
    if len(set(names)) < len(names):
        raise RunError(f"{max(names, key=names.count)} is given twice; name each run once")
    every = [with_data(name, load(folder)) for name, folder in zip(names, folders, strict=True)]
    for other in every[1:]:
        if other.reads != every[0].reads:
            raise RunError(
                f"{other.name} reads {other.reads}, {every[0].name} reads {every[0].reads}; serve them one by one"
            )
    return every


def with_data(name: str, run: Run) -> Served:
    """The run with its test split, and its first metric that is not Python code: nothing of a folder is executed."""
    try:
        task = run.task()
        require_same_data(run.folder, {"test": task.test})
        names = [name for name in run.config.metrics if not first_path(name)] or [DEFAULT.name]
        (metric,) = run.metrics(task, names[:1])
    except SeqmixerError as error:
        return Served(name, run, lacks=f"no examples and no scores: {error}")
    return Served(name, run, task.test, metric)
