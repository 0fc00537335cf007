"""Test sentences with what several systems wrote for them, and what each sentence scores."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from seqmixer.errors import RunError
from seqmixer.evaluation import SENTENCES, Evaluation, read_scores, read_sentences
from seqmixer.experiments.methods import BASE, LABELS, LIGHT
from seqmixer.experiments.summary import Grid
from seqmixer.rewards import of_counts
from seqmixer.runs import load
from seqmixer.storage import checkpoint
from seqmixer.training import epochs, read_log

EXAMPLES = 6  # in Markdown


@dataclass(frozen=True)
class System:
    """A run with what it wrote for the test split."""

    label: str
    test: Evaluation
    colour: str  # of the page's style
    words: str = ""  # a checksum of its target vocabulary


@dataclass(frozen=True)
class Outputs:
    """The same sentences for several systems. Two of them are compared first."""

    name: str
    systems: Sequence[System]
    compared: tuple[int, int]

    def data(self) -> dict[str, Any]:
        """For the page."""
        first, metrics = self.systems[0].test, {}
        systems = []
        for system in self.systems:
            scores = {}
            for scored in system.test.scored:
                metric = metrics[scored.metric] = of_counts(scored.metric)
                scores[scored.metric] = metric.of_each(scored.statistics).tolist()
            outputs = system.test.hypotheses
            systems.append({"label": system.label, "colour": system.colour, "outputs": outputs, "scores": scores})
        return {
            "name": self.name,
            "sources": first.sources,
            "references": first.references,
            "systems": systems,
            "compared": self.compared,
            "digits": {name: 1 if metric.highest > 1 else 3 for name, metric in metrics.items()},
        }

    def differing(self) -> Iterator[list[tuple[str, str]]]:
        """The first sentences that the two systems write differently, in the manner of Fig. 7."""
        a, b = (self.systems[i].test.hypotheses for i in self.compared)
        first = self.systems[0].test
        for i in islice((i for i in range(len(a)) if a[i] != b[i]), EXAMPLES):
            references = [("reference", text) for text in first.references[i]]
            written = [(system.label, system.test.hypotheses[i]) for system in self.systems]
            yield [("source", first.sources[i]), *references, *written]


def by_test_set(systems: Iterable[tuple[str, System]]) -> list[Outputs]:
    """Systems by what they were outputs on, under the name that the first of them gives it."""
    found: dict[Any, tuple[str, list[System]]] = {}
    for name, system in systems:
        key = tuple(system.test.sources), tuple(map(tuple, system.test.references))
        found.setdefault(key, (name, []))[1].append(system)
    return [Outputs(name, several, (0, len(several) - 1)) for name, several in found.values()]


def of_grid(grid: Grid, a: str, b: str) -> list[Outputs]:
    """By task: what every method of the first seed wrote. The methods a and b are compared first."""
    found = []
    for task in grid.tasks:
        systems = []
        for i, method in enumerate(grid.methods):
            run = grid.folder / grid.of(task, method)[0].run
            if (test := outputs(run)) is None:
                raise RunError(f"{run / SENTENCES}: no such file; it holds what the run wrote for the test split")
            systems.append(System(LABELS[method], test, colour(method, i)))
        found.append(Outputs(task, systems, (grid.methods.index(a), grid.methods.index(b))))
    return found


def outputs(run: Path, trust: bool = False) -> Evaluation | None:
    """What the best model of a run writes for the test split: as it was kept, or decoded now; None without a model."""
    kept, best = read_sentences(run), [event["epoch"] for event in epochs(read_log(run)) if event["best"]]
    if kept and (not best or read_scores(run).epoch == best[-1]):  # else it was trained on
        return kept
    return load(run, trust).evaluate() if checkpoint.exists(run / "best") else None


def colour(method: str, i: int) -> str:
    return f"var(--{method if method in LIGHT and method != BASE else f'run-{i % 8}'})"
