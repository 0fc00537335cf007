"""Is one run better than another, or only luckier with its test sentences? Paired bootstrap (Koehn, 2004)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmixer.errors import RunError
from seqmixer.evaluation import Scored
from seqmixer.experiments.report.page import ReportTable
from seqmixer.rewards import METRICS, READABLE, Metric, of_counts
from seqmixer.runs import Run, named_split

CHUNK = 8_000_000  # counts gathered at once: 32 MB of float32


@dataclass(frozen=True)
class Significance:
    """Two systems on the same sentences; `difference` is that of the second to the first."""

    scores: tuple[float, float]
    difference: float
    interval: tuple[float, float]  # 95 % of the differences of the resampled corpora lie in it
    p_value: float
    samples: int


@dataclass(frozen=True)
class Compared:
    """One run in a comparison. Intervals are of 95 %."""

    run: str
    score: float
    interval: tuple[float, float]
    difference: float | None = None  # to the reference run, which has none
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Runs on the same sentences by one metric; the first is the reference run of all others."""

    metric: str
    signature: str
    runs: Sequence[Compared]
    digits: int = 2
    others: Sequence["Comparison"] = ()  # by the metrics after the first
    effects: Sequence[tuple[str, Mapping[str, float]]] = ()  # of each run's sentences


def compare(
    runs: Sequence[Run],
    split: str = "test",
    metrics: Sequence[str] = (),
    **search: Any,
) -> Comparison:
    """Decode a split with every run, and test each against the first: by their own metrics, or by these."""
    if len(runs) < 2:
        raise RunError(f"a comparison needs at least two runs, got {len(runs)}")
    first, *others = runs
    for other in others:
        require_same_yardstick(first, other, split, metrics)
    found = {str(run.folder): run.evaluate(split, metrics, **search) for run in runs}
    by_metric = zip(*(evaluation.scored for evaluation in found.values()), strict=True)
    main, *more = (compared(list(zip(found, scored, strict=True))) for scored in by_metric)
    return replace(main, others=more, effects=[(run, evaluation.effects) for run, evaluation in found.items()])


def compared(systems: Sequence[tuple[str, Scored]]) -> Comparison:
    """Systems that were scored in the same way on the same sentences, each against the first."""
    _, first = systems[0]
    metric = of_counts(first.metric)
    drawn = bootstrap(metric, torch.stack([scored.statistics for _, scored in systems]))  # (systems, samples)
    rows = []
    for (run, scored), own in zip(systems, drawn, strict=True):
        rows.append(Compared(run, scored.score, interval(own)))
        if len(rows) > 1:
            difference, gaps = scored.score - first.score, own - drawn[0]
            low, high = interval(gaps)
            rows[-1] = replace(rows[-1], difference=difference, low=low, high=high, p_value=p_value(gaps, difference))
    return Comparison(first.metric, first.signature, rows, digits=2 if metric.highest > 1 else 4)


def require_same_yardstick(first: Run, other: Run, split: str, metrics: Sequence[str] = ()) -> None:
    """Refuse runs whose scores are not of one kind, before anything is decoded."""
    pair = f"{first.folder} and {other.folder} cannot be compared:"
    named = [", ".join(metrics or run.config.metrics) for run in (first, other)]
    if named[0] != named[1]:
        raise RunError(
            f"{pair} one is scored by {named[0]}, the other by {named[1]} (evaluation.metrics); choose with --metrics"
        )
    uncropped = first.counted(metrics) <= READABLE.keys()
    if first.dimensions.length != other.dimensions.length and not uncropped:
        lengths = f"T = {first.dimensions.length} words, the other's at T = {other.dimensions.length}"
        raise RunError(f"{pair} the references of one are cropped at {lengths} (data.length)")
    for name in sorted(first.counted(metrics) & METRICS.keys()):
        if "unk:left-out" in METRICS[name].signature and first.target_vocab != other.target_vocab:
            raise RunError(f"{pair} {name} skips unknown words, and their target vocabularies differ")
    if yardstick(first) == yardstick(other):
        return  # without reading the data
    if references(first, split) != references(other, split):
        raise RunError(f"{pair} their references in the {split} split differ; train both on the same data")
    both = zip(*(run.metrics(run.task(), metrics) for run in (first, other)), strict=True)
    for ours, theirs in ((a.signature, b.signature) for a, b in both):
        if ours != theirs:
            raise RunError(f"{pair} their scores are made in different ways, {ours} and {theirs}")


def yardstick(run: Run) -> tuple[Any, ...]:
    """All that references and metric are made of."""
    return run.config.data, run.config.evaluation.unit, run.target_vocab


def references(run: Run, split: str) -> list[list[str]]:
    return [list(meta["references"]) for meta in named_split(run.task(), split).meta]


def paired_bootstrap(metric: Metric, a: Tensor, b: Tensor, samples: int = 1000, seed: int = 1) -> Significance:
    """Score both systems on corpora of n sentences drawn with replacement, the same for both.  (n, S), (n, S)"""
    if a.shape != b.shape:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise RunError(f"a paired test needs both systems' counts of the same sentences, got rows of shape {shapes}")
    both = torch.stack([a, b])  # (2, n, S)
    first, second = bootstrap(metric, both, samples, seed)  # (samples,), (samples,)
    scores = float(metric.corpus(a)), float(metric.corpus(b))
    difference = scores[1] - scores[0]
    return Significance(scores, difference, interval(second - first), p_value(second - first, difference), samples)


def bootstrap(metric: Metric, rows: Tensor, samples: int = 1000, seed: int = 1) -> Tensor:
    """The score of each system on corpora of n sentences drawn with replacement, the same for all.

    (..., n, S) -> (..., samples)
    """
    generator, n = torch.Generator().manual_seed(seed), rows.shape[-2]
    size = max(1, CHUNK // rows.numel())  # corpora at a time
    drawn = (torch.randint(n, (min(size, samples - i), n), generator=generator) for i in range(0, samples, size))
    return torch.cat([metric.corpus(rows[..., indices, :]) for indices in drawn], -1)  # (..., c, n, S) -> (..., c)


def interval(drawn: Tensor) -> tuple[float, float]:
    """95 %: without the lowest and the highest fortieth, as sacreBLEU's.  (samples,)"""
    ordered, edge = drawn.sort().values, len(drawn) // 40
    return float(ordered[edge]), float(ordered[len(drawn) - edge - 1])


def p_value(differences: Tensor, difference: float) -> float:
    """sacreBLEU's p-value of the paired bootstrap (Riezler and Maxwell, 2005).  (samples,)

    d_i = |difference on resample i|,   p = (1 + #{i : d_i - mean(d) >= |difference|}) / (1 + samples)

    Where all differences have one sign, only one tail of them can count: of two equal systems about one test in ten
    has p < 0.05. sacreBLEU has > for >=, which gives two equal systems the smallest p there is; else the two agree.

    >>> p_value(torch.zeros(1000), 0.0)
    1.0
    """
    d = differences.abs()
    beyond = int((d - d.mean() >= abs(difference)).sum())
    return (1 + beyond) / (1 + len(d))


def as_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """A dict for each run: run, score, interval, difference, low, high, p_value."""
    return [asdict(row) for row in comparison.runs]


def as_table(comparison: Comparison, title: str = "") -> ReportTable:
    """For the terminal and for pages. Bold: the interval of the difference does not hold 0."""
    form = f".{comparison.digits}f"

    def within(low: float, high: float, sign: str = "") -> str:
        return f"{low:{sign}{form}} .. {high:{sign}{form}}"

    rows = [[row.run, f"{row.score:{form}}", within(*row.interval)] for row in comparison.runs]
    for row, cells in zip(comparison.runs, rows, strict=True):
        if row.difference is not None and row.low is not None and row.high is not None:
            text = f"{row.difference:+{form}}"
            bold = f"**{text}**" if row.low > 0 or row.high < 0 else text
            cells += [bold, within(row.low, row.high, "+"), f"{row.p_value:.3f}"]
        elif len(rows) > 1:
            cells += ["", "", ""]
    return ReportTable(title, ["", comparison.metric, "95 %", *["difference", "95 %", "p"] * (len(rows) > 1)], rows)
