"""Is one run better than another, or only luckier with its test sentences? Paired bootstrap (Koehn, 2004)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from seqmixer.errors import RunError
from seqmixer.evaluation import Evaluation
from seqmixer.rewards import METRICS, READABLE, Metric
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
    """One run in a comparison."""

    run: str
    score: float
    difference: float | None = None  # to the reference run, which has none
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Runs on the same sentences by one metric; the first is the reference run of all others."""

    metric: str
    split: str
    signature: str
    runs: Sequence[Compared]
    others: Sequence["Comparison"] = ()  # by the metrics after the first
    digits: int = 2
    effects: Sequence[Mapping[str, float]] = ()  # of each run's sentences


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
    counting = first.metrics(first.task(), metrics)
    evaluations = [run.evaluate(split, metrics, **search) for run in runs]
    main, *more = (compared(i, metric, runs, evaluations, split) for i, metric in enumerate(counting))
    return replace(main, others=more, effects=[evaluation.effects for evaluation in evaluations])


def compared(i: int, metric: Metric, runs: Sequence[Run], evaluations: Sequence[Evaluation], split: str) -> Comparison:
    """By the metric i of the evaluations."""
    reference, *others = (evaluation.scored[i] for evaluation in evaluations)
    rows = [Compared(str(runs[0].folder), reference.score)]
    for run, scored in zip(runs[1:], others, strict=True):
        found = paired_bootstrap(metric, reference.statistics, scored.statistics)
        rows.append(Compared(str(run.folder), scored.score, found.difference, *found.interval, p_value=found.p_value))
    return Comparison(metric.name, split, reference.signature, rows, digits=2 if metric.highest > 1 else 4)


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
    """A dict for each run: run, score, difference, low, high, p_value."""
    return [asdict(row) for row in comparison.runs]


def as_table(comparison: Comparison) -> Table:
    """For the terminal, above the signature."""
    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold", min_width=12)
    digits = comparison.digits
    for title in (escape(comparison.metric), "difference", "95 % interval", "p"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in comparison.runs:
        cells = [escape(row.run), f"{row.score:.{digits}f}"]
        if row.difference is not None:
            interval = f"{row.low:+.{digits}f} .. {row.high:+.{digits}f}"
            cells += [f"{row.difference:+.{digits}f}", interval, f"{row.p_value:.3f}"]
        table.add_row(*cells)
    return table


def effects_table(comparison: Comparison) -> Table:
    """What each run's sentences have of each side effect."""
    table = Table(box=None, pad_edge=False)
    table.add_column("side effect", no_wrap=True)
    for row in comparison.runs:
        table.add_column(escape(row.run), justify="right", overflow="fold")
    for name in comparison.effects[0]:
        table.add_row(name, *(f"{measured[name]:.3f}" for measured in comparison.effects))
    return table
