"""The space of a search: a TOML file that names settings, each with its choices or its range.

"training.lr" = { low = 1e-4, high = 1e-2, log = true }
"model.hidden" = [64, 128, 256]
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seqmixer import configs, files
from seqmixer.config import Config
from seqmixer.errors import ConfigError, unknown
from seqmixer.settings import change_kind, explain, flat

MOST = 100_000  # values of one setting in a grid
RANGE = ("low", "high", "log", "step")
FIXED = ("name", "data.task", "data.folder", "data.length", "data.seed", "evaluation.metrics", "evaluation.unit")

Value = bool | int | float | str
Values = dict[str, Value]  # of one trial, by the full name of the setting


@dataclass(frozen=True)
class Choices:
    """One of these."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Range:
    """Any number from low to high, both included; integers only where both ends are written so."""

    low: int | float
    high: int | float
    log: bool = False  # as likely between 1 and 10 as between 10 and 100
    step: int | float | None = None

    @property
    def integers(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


Domain = Choices | Range
Space = dict[str, Domain]  # by the full name of the setting


def read_space(path: Path, base: Config) -> Space:
    """Read a search space. Every name, choice and end of a range must be one that the config allows."""
    space: Space = {}
    for name, entry in entries(read(path)):
        require_searchable(name, base, path)
        space[name] = domain(entry, f"{path}: {name}")
        for value in probes(space[name]):
            require_allowed(name, value, base, path)
    if not space:
        raise ConfigError(f'{path}: no setting to search; write, for example, "training.lr" = [0.001, 0.002]')
    return space


def read(path: Path) -> dict[str, Any]:
    path = configs.found(path)
    if not path.exists():
        raise ConfigError(f"{path}: no such file; --search names a TOML file of settings and their choices")
    return files.read_toml(path)


def entries(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a file by their full names, written as "a.b" = ... or below [a].

    >>> dict(entries({"a.b": [1, 2], "c": {"d": {"low": 1, "high": 5}}}))
    {'a.b': [1, 2], 'c.d': {'low': 1, 'high': 5}}
    """
    for name, entry in table.items():
        if isinstance(entry, dict) and not set(entry) & set(RANGE):
            yield from entries(entry, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", entry


def domain(entry: object, where: str) -> Domain:
    """Choices from a list, a range from a table."""
    if isinstance(entry, list):
        return choices(entry, where)
    if isinstance(entry, dict):
        return a_range(entry, where)
    raise ConfigError(f"{where} = {entry!r}: write its choices, [1, 2, 3], or its range, {{low = 1, high = 3}}")


def choices(entry: list[Any], where: str) -> Choices:
    wrong = [value for value in entry if not isinstance(value, Value)]
    if wrong:
        raise ConfigError(f"{where}: {wrong[0]!r} cannot be a choice; choices are numbers, strings, true and false")
    if len(set(entry)) < max(len(entry), 2):
        raise ConfigError(f"{where} = {entry!r}: write two or more choices, all different")
    return Choices(tuple(entry))


def a_range(entry: dict[str, Any], where: str) -> Range:
    for key in entry:
        if key not in RANGE:
            raise ConfigError(f"{where}: {unknown('part of a range', key, RANGE)}")
    for key in ("low", "high", "step"):
        if key in entry and not is_number(entry[key]):
            raise ConfigError(f"{where}: {key} = {entry[key]!r} is not a number")
    if not ("low" in entry and "high" in entry and entry["low"] < entry["high"]):
        raise ConfigError(f"{where}: a range has a low and, above it, a high; got {shown(entry)}")
    if not isinstance(entry.get("log", False), bool):
        raise ConfigError(f"{where}: log = {entry['log']!r}; write true or false")
    found = Range(**entry)
    if found.log and (found.low <= 0 or found.step is not None):
        raise ConfigError(f"{where}: with log = true a range begins above 0 and has no step; got {shown(entry)}")
    if found.step is not None and not 0 < found.step <= found.high - found.low:
        raise ConfigError(f"{where}: step must be above 0 and fit between low and high; got {shown(entry)}")
    if found.integers and isinstance(found.step, float):
        raise ConfigError(f"{where}: step = {found.step} with integers; write low and high with a point too")
    return found


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def shown(entry: Mapping[str, object]) -> str:
    """A range, about as it was written."""
    return ", ".join(f"{key} = {value!r}" for key, value in entry.items())


def require_searchable(name: str, base: Config, path: Path) -> None:
    names = dict(flat(base.model_dump()))
    if name not in names:
        table = name.rpartition(".")[0]
        near = [known for known in names if known.startswith(f"{table}.")]
        raise ConfigError(f"{path}: {unknown('setting', name, near or names)}")
    if name in FIXED:
        reason = "every trial has its own" if name == "name" else "the scores of its trials would not compare"
        raise ConfigError(f"{path}: {name} cannot be searched: {reason}")
    if name == "reward.name" and not base.evaluation.metrics:
        reason = "the scores of its trials would not compare; set evaluation.metrics, which is else the reward"
        raise ConfigError(f"{path}: reward.name cannot be searched: {reason}")


def probes(found: Domain) -> tuple[Value, ...]:
    """Values to test whether a config allows all of a domain."""
    if isinstance(found, Choices):
        return found.values
    inside = () if found.integers else (math.nextafter(found.low, found.high),)  # with a fraction: no integer
    return (*inside, found.low, found.high)


def require_allowed(name: str, value: Value, base: Config, path: Path) -> None:
    """Refuse a value that no config allows. Clashes with other settings are left for the trial to find."""
    values = changed(base, {name: value})
    try:
        Config.model_validate(values)
    except ValidationError as error:
        wrong = [each for each in error.errors() if each["type"] != "value_error"]
        if wrong:
            raise ConfigError(f"{path}: {explain(wrong[0], Config, values)}") from None


def changed(base: Config, values: Values) -> dict[str, Any]:
    """The settings of a config with some replaced."""
    result = base.model_dump(exclude_none=True)
    change_kind(result, values, Config)
    for name, value in values.items():
        *tables, last = name.split(".")
        table = result
        for each in tables:
            table = table[each]
        table[last] = value
    return result


def combinations(space: Space, where: str) -> list[Values]:
    """Every cell of the grid, the last setting changing fastest."""
    columns = [points(found, f"{where}: {name}") for name, found in space.items()]
    return [dict(zip(space, row, strict=True)) for row in product(*columns)]


def points(found: Domain, where: str) -> tuple[Value, ...]:
    """All values of a domain.

    >>> points(Range(0.1, 0.5, step=0.2), "here"), points(Range(1, 4), "here"), points(Choices((True, False)), "here")
    ((0.1, 0.3, 0.5), (1, 2, 3, 4), (True, False))
    """
    if isinstance(found, Choices):
        return found.values
    if found.log or (found.step is None and not found.integers):
        raise ConfigError(f"{where}: a grid needs choices, or a range with a step; this range has no end of values")
    kind = int if found.integers else float
    low, step = Decimal(str(found.low)), Decimal(str(found.step or 1))
    if steps(found) >= MOST:
        raise ConfigError(f"{where}: a grid of {steps(found) + 1} values; allowed are {MOST:,}")
    return tuple(kind(low + i * step) for i in range(steps(found) + 1))


def steps(found: Range) -> int:
    """How many steps lead from its low end to its last value."""
    low, high, step = (Decimal(str(number)) for number in (found.low, found.high, found.step or 1))
    return int((high - low) // step)


def last_point(found: Range) -> float:
    """The highest value that steps from the lowest reach; without steps the high end.

    >>> last_point(Range(0.1, 0.6, step=0.2)), last_point(Range(1, 4, step=2)), last_point(Range(0.1, 0.25))
    (0.5, 3.0, 0.25)
    """
    if found.step is None:
        return found.high
    return float(Decimal(str(found.low)) + steps(found) * Decimal(str(found.step)))
