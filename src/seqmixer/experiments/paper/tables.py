"""The tables of one experiment, as text that the page and the Markdown file show alike. **Bold** is Markdown's."""

from collections.abc import Iterator
from statistics import mean

from seqmixer.bars import duration
from seqmixer.experiments.methods import BASE, EVERY, LABELS, NEW, OLD, PROPOSED, RATIO, RL
from seqmixer.experiments.paper.beams import ENDS, WIDTHS
from seqmixer.experiments.paper.results import Difference, Results, published_cells
from seqmixer.experiments.report.page import ReportTable, number, spelled
from seqmixer.experiments.summary import METRIC_LABELS, MethodScores
from seqmixer.schedules import stages


def scores(results: Results) -> ReportTable:
    """Fig. 5, left: ours, p-values, and the paper's."""
    special = [method.name for method in EVERY if method.only]
    shown = [method for method in results.methods if method not in special]
    row, theirs = results.main, published_cells(results.published.scores)
    tests = {test.method: test for test in results.tests if test.width == test.xent_width}
    lines = [
        [
            f"this run, {row.metric}",
            *(spelled(row.cells[method], method == row.winner) for method in shown),
            ratio(row.cells[PROPOSED]),
        ],
        [f"p, against {OLD}", *(probability(tests[m]) if m in tests else "" for m in shown), ""],
        [
            f"the paper, {results.published.metric}",
            *(number(theirs[method].mean) if method in theirs else "–" for method in shown),
            ratio(theirs[PROPOSED]),
        ],
    ]
    note = (
        f"Mean ± deviation over {seeds(results)}, in the paper's protocol. Bold: the highest mean, where "
        f"the 95 % interval of its difference to {OLD} lies above 0 with every seed; p is the largest over seeds "
        f"(paired bootstrap on the test sentences). The paper's row ({results.published.where}) is of its own data, "
        f"{results.published.data}: compare the ratios, not the scores."
    )
    for method in EVERY:
        if method.scratch and method.name in shown:
            name = LABELS[method.name]
            note += f" {name} starts from random weights; the paper does not report it, since it did not train."
    return ReportTable(
        "Test scores, greedy search",
        ["", *(LABELS[method] for method in shown), RATIO],
        lines,
        note,
    )


def measures(results: Results) -> ReportTable:
    """Both protocols."""
    shown = results.methods
    lines = [
        [protocol, row.metric, row.task, *(spelled(row.cells[m], m == row.winner) for m in shown)]
        for protocol, row in results.measures
    ]
    return ReportTable(
        "Both protocols",
        ["protocol", "score", "search", *(LABELS[method] for method in shown)],
        lines,
        "paper: what the released evaluator computes (sentences of common source lengths, cut at T); of captions, our "
        "reading of the paper's maximum over five: the best of the references, sentence by sentence. standard: "
        "complete references. The two are never mixed; how each score is made is in its "
        "signature.",
    )


def significance(results: Results) -> ReportTable:
    lines = []
    for test in results.tests:
        search = {1: "greedy"}
        name = f"{LABELS[test.method]} {search.get(test.width, f'beam {test.width}')}"
        against = f"{OLD} {search.get(test.xent_width, f'beam {test.xent_width}')}"
        intervals = "; ".join(f"{low:+.2f} .. {high:+.2f}" for low, high in test.intervals)
        p_values = ", ".join(f"{p:.3f}" for p in test.p_values)
        lines.append([f"{name} − {against}", f"{mean(test.differences):+.2f}", intervals, p_values])
    note = (
        "Paired bootstrap, 1,000 resampled test sets; intervals and p-values by seed. p is sacreBLEU's, which of a "
        "clear difference counts one tail only, so what is called better here is so by the intervals."
    )
    return ReportTable(f"Differences to {OLD}", ["", "difference", "95 % intervals", "p"], lines, note)


def beams(results: Results) -> ReportTable:
    """Fig. 6 in numbers."""
    lines = [
        [f"{LABELS[method]}, {protocol}", *(number(cell.mean) for cell in results.beam_curve(method, protocol))]
        for protocol in ("paper", "standard")
        for method in results.compared
    ]
    note = "Mean over seeds, in both protocols; 1 is greedy search."
    return ReportTable("Score by width of the beam", ["", *map(str, WIDTHS)], lines, note)


def cross(results: Results) -> ReportTable:
    """Fig. 8 in numbers: trained on one metric, scored by both."""
    rows = {row.task: row for row in results.cross}
    names = {PROPOSED: f"{NEW} on {METRIC_LABELS[results.metric]}"}
    lines: list[list[str]] = []
    for method in next(iter(rows.values())).cells:
        line = [names.get(method, LABELS[method])]
        for row in rows.values():
            cell = row.cells.get(method)
            line += [spelled(cell), ratio(cell)] if cell else ["–", "–"]
        lines.append(line)
    columns = ["trained with", *(name for row in rows for name in (row, f"/ {OLD}"))]
    return ReportTable("Trained on one metric, scored by both", columns, lines, "Greedy search, the paper's protocol.")


def schedule(results: Results) -> ReportTable:
    """Table 2."""
    ours, theirs, length = results.experiment.config.algorithm, results.published.schedule, results.card.length
    found = stages(ours.schedule(length))
    steps = ", ".join(f"{first if first == last else f'{first}–{last}'} with s = {s}" for s, first, last in found)
    lines = [
        ["this run", str(ours.xent_epochs), str(ours.mixed_epochs), str(ours.delta)],
        ["the paper", *(str(theirs[name]) for name in ("xent_epochs", "mixed_epochs", "delta"))],
    ]
    note = f"The paper's: {theirs['where']}. Epochs of this run: {steps}. With s = T = {length} all is {OLD}."
    if ours.sentences > 1:
        note += f" {NEW} samples {ours.sentences} sentences for each source; baseline: {ours.model_dump()['baseline']}."
    return ReportTable("Schedule", ["", f"N^{OLD}", "N^XE+R", "Δ"], lines, note)


def decoding(results: Results) -> ReportTable:
    narrow, wide = ENDS
    lines = []
    for method in results.compared:
        greedy, beam = results.speed(method, narrow), results.speed(method, wide)
        lines.append([LABELS[method], f"{greedy:.2f} s", f"{beam:.2f} s", f"{beam / greedy:.1f}"])
    size = results.experiment.config.evaluation.batch_size
    note = f"Seconds for a thousand test sentences, {size} at a time, mean over seeds{shared(results)}. "
    note += "The paper: at least 10 times."
    return ReportTable("Decoding time", ["", "greedy", f"beam {wide}", "times slower"], lines, note)


def times(results: Results) -> ReportTable:
    lines = []
    for method in (BASE, *results.methods):
        runs = results.of(method)
        judged = mean(run["wall"]["judge"] for run in runs)
        best = ", ".join(str(run["epoch"]) for run in runs)
        trained = duration(mean(run["seconds"] for run in runs))
        lines.append([LABELS[method], trained, "–" if method == BASE else duration(judged), best])
    total = sum(run["seconds"] + run["wall"]["judge"] for run in results.runs.values())
    note = (
        "Of one run, mean over seeds; the best epoch is that of the highest validation score, by seed. Every method "
        f"but {RL} starts from the best model of the base. All runs together: {duration(total)}{shared(results)}; "
        f"the table took {duration(results.grid.seconds)}."
    )
    return ReportTable("Time", ["", "training", "decoding and scoring", "best epoch"], lines, note)


def every_seed(results: Results) -> ReportTable:
    lines = []
    for method in results.methods:
        for width in ENDS:
            cell = results.cell(method, "paper", results.metric, width, width)
            name = f"{LABELS[method]}, {'greedy' if width == 1 else f'beam {width}'}"
            lines.append([name, *map(number, cell.scores), number(cell.mean), number(cell.deviation)])
    columns = ["", *(f"seed {seed}" for seed in results.grid.seeds), "mean", "deviation"]
    return ReportTable(f"Every seed, {METRIC_LABELS[results.metric]}", columns, lines)


def data(results: Results) -> ReportTable:
    card, config = results.card, results.experiment.config.data
    source = "" if card.source_words is None else f"{card.source_words:,} / "
    name = config.captions if results.images else ", ".join(config.train) or config.task
    line = [name, f"{card.train:,} / {card.valid:,} / {card.test:,}", f"{source}{card.target_words:,}"]
    columns = ["files", "train / valid / test", "words known" + ("" if results.images else ", source / target"), "T"]
    return ReportTable("Data", columns, [[*line, f"{card.length} (holds {card.covered:.1%} of the targets)"]])


def signatures(results: Results) -> Iterator[tuple[str, str]]:
    """How each score was made; more than one line for a score would mean that its runs do not compare."""
    found = {
        (name, signature)
        for method in results.methods
        for run in results.of(method)
        for name, signature in run["signatures"].items()
    }
    yield from sorted(found)


def shared(results: Results) -> str:
    """A remark on runs that share a machine, whose times are longer than alone."""
    return f", {results.grid.workers} runs at a time on one machine" if results.grid.workers > 1 else ""


def seeds(results: Results) -> str:
    count = len(results.grid.seeds)
    return f"{count} seeds" if count > 1 else "one seed (no deviation)"


def ratio(cell: MethodScores) -> str:
    return "–" if cell.ratio is None else f"{cell.ratio:.3f}"


def probability(test: Difference) -> str:
    return f"{max(test.p_values):.3f}"
