"""Settings as text: set by name, listed with their meaning, and explained where one is wrong."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from typing import Any

import tomli_w
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from seqmixer import files
from seqmixer.errors import ConfigError, unknown

MEANT = {  # in place of pydantic's words, by the kind of its error
    "bool_type": "write true or false",
    "tuple_type": 'write a list of names, such as ["train.de", "train.en"]',
    "model_type": "this is a table of settings; `seqmixer settings` lists them",
}
WIDTH = 110  # of the lines of comments in the list of settings


def documentation(config: type[BaseModel]) -> str:
    """Every setting as TOML, its meaning above it. Settings without a value by default are commented out."""
    lines = []
    for name, field in config.model_fields.items():
        if inner := section(field):
            lines += [f"\n[{name}]", *chain.from_iterable(starmap(setting, inner.model_fields.items()))]
        else:
            lines += setting(name, field)
    return "\n".join(lines)


def section(field: FieldInfo) -> type[BaseModel] | None:
    """The table of settings that a field is; None: it is a setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def setting(name: str, field: FieldInfo) -> list[str]:
    """Its meaning, and its default."""
    default = field.get_default(call_default_factory=True)
    line = f"# {name} =" if default is None else tomli_w.dumps({name: default}).strip()
    return [*comment(field.description or ""), line]


def comment(text: str) -> list[str]:
    """
    >>> comment("How many words the model is fed.")
    ['# How many words the model is fed.']
    """
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def require_text(values: dict[str, Any], where: str) -> None:
    """Refuse what no file and no terminal can be told: a null character, and bytes that were no text."""
    for name, value in flat(values):
        for text in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(text, str) and any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
                raise ConfigError(f"{where}: {name} = {text!r} has characters that are no text; leave them out")


def assign(values: dict[str, Any], override: str) -> None:
    """Set `a.b=c` in nested dicts. c is read as TOML, or else as a string."""
    name, equals, text = override.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set {override!r}: write NAME=VALUE, for example model.hidden=512")
    shown = f"--set {override if len(override) <= WIDTH else override[:WIDTH] + '...'}"
    try:
        value = files.parse_toml(f"value = {text}", shown)["value"]
    except ValueError:
        value = text
    *tables, last = name.strip().split(".")
    if len(tables) > files.DEPTH:
        raise ConfigError(f"{shown}: no setting is so many tables deep")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {override!r}: {table!r} is a setting, not a table of settings")
    values[last] = value


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by their full names.

    >>> dict(flat({"seed": 1, "model": {"hidden": 8}}))
    {'seed': 1, 'model.hidden': 8}
    """
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def explain(error: ErrorDetails, config: type[BaseModel]) -> str:
    """One line for the first thing wrong with a config."""
    names = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        return str(unknown("setting", ".".join(names), known(names[:-1], config)))
    message = MEANT.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return message
    return f"{'.'.join(names)} = {error['input']!r}: {message}"


def known(tables: Sequence[str], config: type[BaseModel]) -> list[str]:
    """The names of all settings in a table, written in full."""
    found = config
    for table in tables:
        inner = section(found.model_fields[table]) if table in found.model_fields else None
        if inner is None:
            break
        found = inner
    return [".".join([*tables, name]) for name in found.model_fields]
