"""The methods that tables compare, read from methods.toml and study.toml: their labels and what makes them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmixer import files
from seqmixer.algorithms import ALGORITHMS


@dataclass(frozen=True)
class Method:
    """One column of a table."""

    name: str
    settings: tuple[str, ...]  # what makes it this method
    scratch: bool = False  # from random weights, for as many epochs as the base, instead of from the base
    compared: bool = False  # in every table
    only: str | None = None  # the metric without which it has no sense
    control: bool = False  # its rewards say nothing: it should gain nothing


def made(name: str, entry: dict[str, Any]) -> Method:
    settings = (f"algorithm.name={entry.get('algorithm', name)}", *entry.get("settings", ()))
    return Method(
        name, settings, **{key: entry[key] for key in ("scratch", "compared", "only", "control") if key in entry}
    )


def read(name: str) -> dict[str, Any]:
    return files.read_toml(Path(__file__).with_name(name))


FILE = read("methods.toml")
ENTRIES: dict[str, dict[str, Any]] = {name: entry for name, entry in FILE.items() if isinstance(entry, dict)}
EVERY = tuple(made(name, entry) for name, entry in ENTRIES.items())
METHODS = tuple(method for method in EVERY if method.compared)

STUDY = read("study.toml")
STUDIED = tuple(sorted((made(name, entry) for name, entry in STUDY.items()), key=lambda method: method.control))
CONTROLS = {method.name for method in STUDIED if method.control}

BASE = "base"
LABELS = {BASE: BASE}
LABELS |= {name: entry.get("label") or ALGORITHMS[name].label for name, entry in (STUDY | ENTRIES).items()}
REFERENCE, PROPOSED = FILE["reference"], FILE["proposed"]
OLD, NEW, RL = LABELS[REFERENCE], LABELS[PROPOSED], LABELS[FILE["rl"]]
RATIO = f"{NEW} / {OLD}"

# Told apart by lightness too, so that no kind of colour blindness merges them. Each is a variable of the page's style.
LIGHT = {"ink": "#1c2330", "soft": "#667080", "rule": "#d9dde3", BASE: "#9aa2ae"}
DARK = {"ink": "#e7eaf0", "soft": "#98a2b3", "rule": "#333b48", BASE: "#778192"}
LIGHT |= {name: entry["light"] for name, entry in ENTRIES.items()}
DARK |= {name: entry["dark"] for name, entry in ENTRIES.items()}
