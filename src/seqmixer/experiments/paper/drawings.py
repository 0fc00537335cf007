"""The paper's figures of one experiment: gains (Fig. 5, right; Fig. 8), beams (Fig. 6), and how the runs learnt."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from seqmixer.experiments.figures import (
    LIGHT,
    Points,
    draw,
    draw_measure,
    mark_stages,
    relative_gains,
    spread,
    stages,
    style,
    svg,
)
from seqmixer.experiments.paper.beams import WIDTHS
from seqmixer.experiments.paper.results import Results, published_cells
from seqmixer.experiments.summary import LABELS, METRIC_LABELS, Row
from seqmixer.training import epochs, read_log
from seqmixer.training.callbacks import Event

if TYPE_CHECKING:  # an extra: loaded by the functions that draw
    from matplotlib.axes import Axes


def drawings(results: Results) -> dict[str, str]:
    """Every figure as an SVG element, by name."""
    drawn = {"gains": gains(results), "beams": beams(results), "curves": curves(results)}
    if results.cross:
        drawn["cross"] = relative_gains(results.cross, "cross")
    return drawn


def gains(results: Results) -> str:
    """Fig. 5, right: ours beside the paper's."""
    ours = results.main
    cells = {method: ours.cells[method] for method in results.compared}
    theirs = published_cells({method: results.published.scores[method] for method in results.compared})
    rows = [Row("this run", ours.metric, None, cells, None), Row("the paper", ours.metric, None, theirs, None)]
    return relative_gains(rows, "gains")


def beams(results: Results) -> str:
    """Fig. 6: score by width of the beam; the lines are MIXER's greedy search and MIXER's widest beam."""
    from matplotlib.figure import Figure

    curves = {method: [cell.mean for cell in results.beam_curve(method)] for method in results.compared}
    with style():
        figure = Figure(figsize=(5.6, 3.9), layout="constrained")
        axes = figure.subplots()
        for method, means in curves.items():
            weight = 2.2 if method == "mixer" else 1.5
            axes.plot(WIDTHS, means, "o-", color=LIGHT[method], linewidth=weight, markersize=3.5)
        draw_level(axes, curves["mixer"][0], "ink", "MIXER, greedy", at=0.45, side="top")
        draw_level(axes, curves["mixer"][-1], "base", f"MIXER, beam {max(WIDTHS)}", at=0.01, side="bottom")
        low, high = axes.get_ylim()
        heights = spread([means[-1] for means in curves.values()], 0.06 * (high - low))
        name_ends(axes, max(WIDTHS), list(curves), heights)
        axes.set_xticks(list(WIDTHS))
        axes.set_xlabel("width of the beam; 1 is greedy search")
        axes.set_ylabel(f"test {METRIC_LABELS[results.metric].split(',')[0]}")
        axes.grid(axis="y")
        return svg(figure, "beams")


def draw_level(axes: "Axes", value: float, colour: str, text: str, at: float, side: Literal["top", "bottom"]) -> None:
    """A line across, and its name that share of the way along, whose top or bottom is at the line."""
    axes.axhline(value, color=LIGHT[colour], linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    place = axes.get_yaxis_transform()
    shift = (0, -3 if side == "top" else 3)
    axes.annotate(text, (at, value), shift, place, "offset points", va=side, fontsize=8, color=LIGHT["soft"])


def name_ends(axes: "Axes", x: float, methods: Sequence[str], heights: Sequence[float]) -> None:
    for method, height in zip(methods, heights, strict=True):
        place = (x, height)
        axes.annotate(LABELS[method], place, (7, 0), textcoords="offset points", va="center", color=LIGHT[method])


def curves(results: Results) -> str:
    """Validation score and perplexity by epoch, the base and then each method; MIXER's reward, entropy and length."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    offset = max(len(each) for each in logged(results, "base"))
    mixer = logged(results, "mixer")
    metric = results.experiment.config.evaluation.metric
    with style():
        figure = Figure(figsize=(9.6, 5.2), layout="constrained")
        panels = figure.subplots(2, 2, sharex=True, height_ratios=[3, 2])
        (score, perplexity), (reward, writing) = panels
        for axes, key, label in ((score, metric, METRIC_LABELS[metric]), (perplexity, "perplexity", "perplexity")):
            for method in ("base", *(["reinforce"] if "reinforce" in results.methods else [])):
                draw_valid(axes, results, method, key, 0)
            ends = [draw_valid(axes, results, method, key, offset) for method in results.compared]
            if key == "perplexity":
                axes.set_yscale("log")
            else:
                low, high = axes.get_ylim()
                heights = spread([y for _, y in ends], (high - low) / 16)
                name_ends(axes, max(x for x, _ in ends), results.compared, heights)
            axes.set_ylabel(f"validation {label}")
            axes.grid(axis="y")
        draw_measure(reward, mixer, "reward", "MIXER's training reward", offset)
        draw_measure(writing, mixer, "entropy", "MIXER's entropy, nats a word", offset)
        draw_measure(writing, mixer, "length_ratio", "its length / the reference's", offset, dashed=True)
        writing.set_ylim(bottom=0)
        mark_stages([score, reward], list(stages(mixer[0])), offset)
        mark_stages([perplexity, writing], list(stages(mixer[0])), offset)
        for axes in (reward, writing):
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return svg(figure, "curves")


def logged(results: Results, method: str) -> list[list[Event]]:
    """The epochs of a method's runs, by seed."""
    return [epochs(read_log(results.experiment.folder / run["run"])) for run in results.of(method)]


def draw_valid(axes: "Axes", results: Results, method: str, key: str, offset: int) -> tuple[float, float]:
    """One method's curve, from the best model of its base; returns where it ends."""
    found: list[Points] = []
    for base, log in zip(logged(results, "base"), logged(results, method), strict=True):
        points = [(offset + event["epoch"], event["valid"][key]) for event in log]
        begin = [(offset, event["valid"][key]) for event in base if event["best"]][-1:] if offset else []
        found.append([*begin, *points])
    return draw(axes, found, method, dashed=method == "reinforce")
