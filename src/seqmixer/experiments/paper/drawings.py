"""The paper's figures of one experiment: gains (Fig. 5, right; Fig. 8), beams (Fig. 6), and how the runs learnt."""

from typing import TYPE_CHECKING, Literal

from seqmixer.experiments.figures import (
    draw,
    draw_samples,
    mark_stages,
    name_ends,
    relative_gains,
    stages,
    style,
    svg,
    valid_curves,
)
from seqmixer.experiments.methods import BASE, EVERY, LIGHT, NEW, PROPOSED
from seqmixer.experiments.paper.beams import WIDTHS
from seqmixer.experiments.paper.results import Results, published_cells
from seqmixer.experiments.summary import METRIC_LABELS, Row

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
            weight = 2.2 if method == PROPOSED else 1.5
            axes.plot(WIDTHS, means, "o-", color=LIGHT[method], linewidth=weight, markersize=3.5)
        draw_level(axes, curves[PROPOSED][0], "ink", f"{NEW}, greedy", at=0.45, side="top")
        draw_level(axes, curves[PROPOSED][-1], BASE, f"{NEW}, beam {max(WIDTHS)}", at=0.01, side="bottom")
        name_ends(axes, {method: (max(WIDTHS), means[-1]) for method, means in curves.items()})
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


def curves(results: Results) -> str:
    """Validation score and perplexity by epoch, the base and then each method; MIXER's reward, entropy and length."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    grid, (task,) = results.grid, results.grid.tasks
    offset, logs = max(map(len, grid.logs(task, BASE))), grid.logs(task, PROPOSED)
    scratch = [method.name for method in EVERY if method.scratch and method.name in results.methods]
    metric = results.experiment.config.metrics[0]
    with style():
        figure = Figure(figsize=(9.6, 5.2), layout="constrained")
        (score, perplexity), (reward, writing) = figure.subplots(2, 2, sharex=True, height_ratios=[3, 2])
        for axes, key, label in ((score, metric, METRIC_LABELS[metric]), (perplexity, "perplexity", "perplexity")):
            for method in (BASE, *scratch):
                draw(axes, valid_curves(grid, task, method, key), method, dashed=method in scratch)
            found = {method: valid_curves(grid, task, method, key, offset) for method in results.compared}
            ends = {method: draw(axes, found[method], method) for method in results.compared}
            if key == "perplexity":
                axes.set_yscale("log")
            else:
                name_ends(axes, ends)
            axes.set_ylabel(f"validation {label}")
            axes.grid(axis="y")
        draw_samples(reward, writing, logs, offset, f"{NEW}'s ")
        mark_stages([score, reward], list(stages(logs[0])), offset)
        mark_stages([perplexity, writing], list(stages(logs[0])), offset)
        for axes in (reward, writing):
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return svg(figure, "curves")
