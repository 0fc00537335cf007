"""What a model did, as HTML. Text of data, of people and of models is escaped, its control characters are spelled."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmixer.errors import printable
from seqmixer.runs.explain import Explanation, Hypothesis

if TYPE_CHECKING:
    from jinja2 import Environment

CLIPPED = 400  # characters of a word or a sentence that are shown
BRIEF = 90  # characters of an example in a list
DRAWN = 60  # words of a source whose attention is drawn


def rendered(template: str, **values: Any) -> str:
    return environment().get_template(template).render(values)


@cache
def environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(clipped(value)) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"drawn": DRAWN, "groups": groups, "zip": zip}
    return made


def clipped(text: str, most: int = CLIPPED) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def brief(text: str) -> str:
    """An example in a list, where its words alone count."""
    return clipped(printable(" ".join(text.split())), BRIEF)


def groups(found: Explanation) -> list[tuple[str, Sequence[Hypothesis]]]:
    every = [("Greedy search", [found.greedy]), ("Beam search", found.beam), ("Samples", found.samples)]
    return [(name, hypotheses) for name, hypotheses in every if hypotheses]
