"""Side effects in a table, the conspicuous marked."""

from collections.abc import Mapping, Sequence

from seqmixer.experiments.report.page import ReportTable

LIMITS = {"cut": 0.05, "unfinished": 0.01}  # of sentences; more is conspicuous
MORE_REPETITION = 1.5  # times the reference's; more is conspicuous
COLUMNS = {
    "length_ratio": "length ratio",
    "cut": "no end",
    "unfinished": "unfinished",
    "repetition": "repetition",
    "unk": "unknown",
    "distinct_2": "distinct bigrams",
    "entropy": "entropy",
}
NUMBERS = ("length_ratio", "entropy")  # that are no shares


def conspicuous(effects: Mapping[str, float], reference: Mapping[str, float]) -> list[str]:
    """What is beyond its limit."""
    limits = {**LIMITS, "repetition": MORE_REPETITION * reference["repetition"]}
    return [name for name, limit in limits.items() if effects[name] > limit]


def side_effects(lines: Sequence[tuple[str, Mapping[str, float]]], whose: str = "") -> ReportTable:
    """What each system wrote, beside its scores. The first is the reference."""
    _, reference = lines[0]

    def shown(effects: Mapping[str, float], name: str) -> str:
        text = f"{effects[name]:.2f}" if name in NUMBERS else f"{100 * effects[name]:.1f} %"
        return f"{text} (!)" if name in conspicuous(effects, reference) else text

    rows = [[label, *(shown(effects, name) for name in COLUMNS)] for label, effects in lines]
    allowed = f"{100 * LIMITS['cut']:.0f} % without an end, {100 * LIMITS['unfinished']:.0f} % unfinished"
    note = (
        f"{whose} (docs/log.md). (!): more than {allowed}, or {MORE_REPETITION:g} times the repetition of the first "
        "row: such a score is bought."
    )
    return ReportTable("Side effects", ["", *COLUMNS.values()], rows, note)
