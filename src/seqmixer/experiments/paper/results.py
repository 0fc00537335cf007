"""The runs of one experiment as numbers: Fig. 5, Fig. 6, Fig. 8, both protocols, and significance tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from seqmixer import files
from seqmixer.evaluation.scoring import METRICS as SCORED
from seqmixer.experiments.compare import paired_bootstrap
from seqmixer.experiments.grid import Result
from seqmixer.experiments.methods import EVERY, METHODS, PROPOSED, REFERENCE
from seqmixer.experiments.paper.beams import ENDS, WIDTHS, main_metric, read_counts, reported, standard_metrics
from seqmixer.experiments.paper.recipes import DataSizes, Experiment
from seqmixer.experiments.summary import METRIC_LABELS, Grid, MethodScores, Row, paired_scores, read_grid
from seqmixer.rewards import METRICS

PUBLISHED = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class Published:
    """What the paper reports of one task."""

    data: str
    metric: str
    where: str  # the scores are from
    scores: Mapping[str, float]  # by method
    schedule: Mapping[str, Any]  # xent_epochs, mixed_epochs, delta; where
    cross: Mapping[str, Any]  # by metric, then by method; where. Empty but for summarization


def published(task: str) -> Published:
    """
    >>> published("translation").scores["mixer"]
    20.73
    """
    entry = files.read_toml(PUBLISHED)[task]
    return Published(
        entry["data"], entry["metric"], entry["where"], entry["scores"], entry["schedule"], entry.get("cross", {})
    )


@dataclass(frozen=True)
class Difference:
    """A method against XENT on the same test sentences, seed by seed."""

    method: str
    width: int  # of the method's beam
    xent_width: int  # of XENT's
    differences: Sequence[float]  # of the scores, by seed
    intervals: Sequence[tuple[float, float]]  # 95 %, by seed
    p_values: Sequence[float]  # paired bootstrap, by seed

    @property
    def better(self) -> bool:
        """Whether the 95 % interval lies above 0 with every seed. sacreBLEU's p < 0.05 asks for less, see `p_value`."""
        return all(low > 0 for low, _ in self.intervals)


@dataclass(frozen=True)
class Results:
    """All numbers of an experiment."""

    experiment: Experiment
    card: DataSizes
    grid: Grid
    runs: Mapping[tuple[str, int], Result]  # by method and seed, bases too
    published: Published

    @property
    def methods(self) -> Sequence[str]:
        return self.grid.methods

    @property
    def compared(self) -> list[str]:
        """The methods of Fig. 5 and Fig. 6."""
        return [method.name for method in METHODS if method.name in self.methods]

    @property
    def images(self) -> bool:
        return self.card.source_words is None

    @property
    def metric(self) -> str:
        """Of Fig. 5, in the paper's protocol."""
        return main_metric(self.experiment.config.metrics[0], self.images)

    def of(self, method: str) -> list[Result]:
        """By seed."""
        return [self.runs[method, seed] for seed in self.grid.seeds]

    def cell(self, method: str, protocol: str, metric: str, width: int = 1, xent_width: int = 1) -> MethodScores:
        scores, reference = (
            [float(run["beams"][str(beam)][protocol][metric]) for run in self.of(name)]
            for name, beam in ((method, width), (REFERENCE, xent_width))
        )
        return paired_scores(scores, reference)

    def row(self, name: str, protocol: str, metric: str, width: int = 1) -> Row:
        """A line of a table. Bold is what the bootstrap supports, where it was asked."""
        cells = {method: self.cell(method, protocol, metric, width, width) for method in self.methods}
        highest = max(cells, key=lambda method: cells[method].mean)
        asked = (protocol, metric, width) == ("paper", self.metric, 1)
        supported = [test.method for test in self.tests if asked and test.better and test.width == test.xent_width == 1]
        return Row(name, METRIC_LABELS[metric], None, cells, highest if highest in supported else None)

    @property
    def main(self) -> Row:
        """Fig. 5, left."""
        return self.row(self.experiment.task, "paper", self.metric)

    @property
    def measures(self) -> list[tuple[str, Row]]:
        """Every score of both protocols, greedy and with the widest beam."""
        return [
            (protocol, self.row("greedy" if width == 1 else f"beam {width}", protocol, name, width))
            for protocol in ("paper", "standard")
            for name in reported(self.experiment.config.metrics[0], self.images, protocol)
            for width in ENDS
        ]

    def beam_curve(self, method: str, protocol: str = "paper") -> list[MethodScores]:
        """Fig. 6: the score by width of the beam; of the standard protocol its first metric."""
        first = standard_metrics(self.experiment.config.metrics[0], self.images)[0]
        metric = self.metric if protocol == "paper" else first
        return [self.cell(method, protocol, metric, width) for width in WIDTHS]

    @property
    def cross(self) -> list[Row]:
        """Fig. 8: gains over XENT by both metrics, ours and then the paper's; empty but for summarization."""
        special = [method.name for method in EVERY if method.only]
        if not set(special) & set(self.methods):
            return []
        names = [method for method in self.methods if method in (*self.compared, *special)]
        rows = []
        for metric in SCORED["paper"]:
            ours = {method: self.cell(method, "paper", metric) for method in names}
            theirs = published_cells(self.published.cross[metric]) if self.published.cross else {}
            rows += [Row(METRIC_LABELS[metric], METRIC_LABELS[metric], None, ours, None)]
            rows += (
                [Row(f"{METRIC_LABELS[metric]}, paper", METRIC_LABELS[metric], None, theirs, None)] if theirs else []
            )
        return rows

    @cached_property
    def tests(self) -> list[Difference]:
        """Each method against XENT, greedy; and MIXER's greedy search against XENT's widest beam."""
        others = [method for method in self.methods if method != REFERENCE]
        pairs = [(method, 1, 1) for method in others] + [(PROPOSED, 1, max(ENDS))]
        return [self.test(*pair) for pair in pairs]

    def test(self, method: str, width: int, xent_width: int) -> Difference:
        counted = METRICS[self.metric]
        found = []
        for reference, ours in zip(self.of(REFERENCE), self.of(method), strict=True):
            a, b = (
                read_counts(self.experiment.folder / run["run"], beam, self.metric)
                for run, beam in ((reference, xent_width), (ours, width))
            )
            found.append(paired_bootstrap(counted, a, b))
        return Difference(
            method,
            width,
            xent_width,
            [each.difference for each in found],
            [each.interval for each in found],
            [each.p_value for each in found],
        )

    def speed(self, method: str, width: int) -> float:
        """Seconds to decode a thousand test sentences, mean over seeds."""
        return mean(1000 * run["beams"][str(width)]["seconds"] / run["sentences"] for run in self.of(method))


def published_cells(scores: Mapping[str, float]) -> dict[str, MethodScores]:
    return {method: paired_scores([score], [scores[REFERENCE]]) for method, score in scores.items()}


def read_results(experiment: Experiment, card: DataSizes) -> Results:
    """Read what `run_grid` left in the experiment's folder."""
    grid = read_grid(experiment.folder)
    raw = files.read_json(experiment.folder / "grid.json")["results"]
    runs = {(result["method"], result["seed"]): result for result in raw}
    return Results(experiment, card, grid, runs, published(experiment.task))
