"""Settings as text: set by name, listed with their meaning, and explained where one is wrong."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from typing import Any

import tomli_w
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, PydanticUndefined, core_schema

from seqmixer import files
from seqmixer.errors import ConfigError, unknown

MEANT = {  # in place of pydantic's words, by the kind of its error
    "bool_type": "write true or false",
    "tuple_type": 'write a list of names, such as ["train.de", "train.en"]',
    "model_type": "this is a table of settings; `seqmixer settings` lists them",
}
RENAMED = {  # since version 0.1
    "algorithm.whole": "algorithm.to_zero",
    "evaluation.metric": "evaluation.metrics",
    "model.reading": "model.variant",
    "training.bad_numbers": "training.nonfinite",
    "training.mixed_dropout": "training.rl_dropout",
    "training.mixed_lr": "training.rl_lr",
    "training.samples": "training.examples",
}
WIDTH = 110  # of the lines of comments in the list of settings


class Section(BaseModel):
    """A table of the file. Unknown names, wrong types and infinite numbers are refused, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """What differs from the defaults."""
        fields = type(self).model_fields
        values = vars(self).items()
        return ((name, value) for name, value in values if value != fields[name].get_default(call_default_factory=True))

    @classmethod
    def unread(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        """The settings that nothing reads beside these values, and why. With other values they are read."""
        return {}


def refuse_unread(section: Section, table: str, names: Iterable[str], why: str) -> None:
    """A setting that nothing would read, and that is not the default, is a mistake."""
    for name in names:
        if vars(section)[name] != type(section).model_fields[name].default:
            raise ValueError(f"{table}.{name} {why}")


@dataclass(frozen=True)
class OneOf:
    """Annotates a table that comes in several kinds, told apart by its `name`; each kind has settings of its own."""

    kinds: Mapping[str, type[Section]]  # by name
    default: str  # the name, where none is given
    own: str | None = None  # the kind of all names "module:Class"; None: there are no such names

    def kind(self, value: Any) -> str:
        """Which kind a table or a section is of."""
        name = value.get("name", self.default) if isinstance(value, dict) else getattr(value, "name", self.default)
        return self.own if self.own and ":" in str(name) else str(name)

    def of(self, value: Any) -> type[Section]:
        """Its class; that of the default where its name is unknown."""
        return self.kinds.get(self.kind(value), self.kinds[self.default])

    def holders(self, name: str) -> list[str]:
        """The kinds that have this setting."""
        return [kind for kind, section in self.kinds.items() if name in section.model_fields]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {kind: handler.generate_schema(section) for kind, section in self.kinds.items()}
        return core_schema.tagged_union_schema(choices, discriminator=self.kind)


def documentation(config: type[BaseModel]) -> str:
    """Every setting as TOML, its meaning above it; commented out what has no default, or is of another kind."""
    lines = []
    for name, field in config.model_fields.items():
        if several := one_of(field):
            default = several.kinds[several.default]
            lines += [f"\n[{name}]", *table(default)]
            done = {*default.model_fields}
            for kind, other in several.kinds.items():
                more = {key: each for key, each in other.model_fields.items() if key not in done}
                done |= more.keys()
                lines += [f"# name = {kind!r}:", *commented(starmap(setting, more.items()))] if more else []
        elif inner := section(field):
            lines += [f"\n[{name}]", *table(inner)]
        else:
            lines += setting(name, field)
    return "\n".join(lines)


def table(section: type[BaseModel]) -> Iterator[str]:
    return chain.from_iterable(starmap(setting, section.model_fields.items()))


def commented(settings: Iterator[list[str]]) -> Iterator[str]:
    return (line if line.startswith("#") else f"# {line}" for lines in settings for line in lines)


def section(field: FieldInfo) -> type[BaseModel] | None:
    """The table of settings that a field is; None: it is a setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def one_of(field: FieldInfo) -> OneOf | None:
    """The kinds of a table, if it comes in several."""
    return next((each for each in field.metadata if isinstance(each, OneOf)), None)


def setting(name: str, field: FieldInfo) -> list[str]:
    """Its meaning, and its default."""
    default = field.get_default(call_default_factory=True)
    line = f"# {name} =" if default in (None, PydanticUndefined) else tomli_w.dumps({name: default}).strip()
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
                raise ConfigError(f"{where}: {name} = {text!r} has characters that are no text; remove them")


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


def change_kind(values: dict[str, Any], changed: Mapping[str, Any], config: type[BaseModel]) -> None:
    """Where one of the changed settings is the name of a table's kind, drop what only the kind before it reads."""
    for table, field in config.model_fields.items():
        several, given = one_of(field), values.get(table)
        if several is None or f"{table}.name" not in changed or not isinstance(given, dict):
            continue
        before, after = several.of(given), several.of({"name": changed[f"{table}.name"]})
        new = given | {name.removeprefix(f"{table}."): value for name, value in changed.items()}
        for name in before.model_fields.keys() - after.model_fields.keys() | after.unread(new).keys():
            given.pop(name, None)


def explained(error: ValidationError, section: type[BaseModel], table: str) -> str:
    """One line for the first thing wrong with a table of settings of this class."""
    first = error.errors()[0]
    names = [table, *map(str, first["loc"])]
    if first["type"] == "extra_forbidden":
        return str(unknown("setting", ".".join(names), [f"{table}.{name}" for name in section.model_fields]))
    return described(first, names)


def explain(error: ErrorDetails, config: type[BaseModel], values: Mapping[str, Any]) -> str:
    """One line for the first thing wrong with a config made of these values."""
    if not error["loc"]:  # of the settings together
        return described(error, [])
    table, *rest = (str(part) for part in error["loc"])
    several = one_of(config.model_fields[table]) if table in config.model_fields else None
    if several is not None and error["type"] == "union_tag_invalid":
        name = several.kind(values[table])
        return str(unknown(f"{table}.name", name, [*(kind for kind in several.kinds if kind != several.own)]))
    names = [table, *(rest[1:] if several else rest)]  # without the kind
    if error["type"] == "extra_forbidden":
        return refused(names, config, values)
    return described(error, names)


def described(error: ErrorDetails, names: Sequence[str]) -> str:
    """What is wrong with the value of a setting, in words."""
    if error["type"] == "missing":
        return f"{'.'.join(names)} is missing; it has no default"
    message = MEANT.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return message
    return f"{'.'.join(names)} = {error['input']!r}: {message}"


def refused(names: Sequence[str], config: type[BaseModel], values: Mapping[str, Any]) -> str:
    """What to say of a setting that nothing reads: which kind would, or the nearest name that there is."""
    table, last = names[0], names[-1]
    if new := RENAMED.get(".".join(names)):
        return f"{'.'.join(names)} is now called {new}; rename it"
    several = one_of(config.model_fields[table]) if len(names) == 2 else None
    if several is not None and (holders := several.holders(last)):
        which = " or ".join(map(repr, holders))
        return f"{table}.{last} is for {table}.name = {which}, not {several.kind(values[table])!r}; remove it"
    return str(unknown("setting", ".".join(names), known(names[:-1], config, values)))


def known(tables: Sequence[str], config: type[BaseModel], values: Mapping[str, Any]) -> list[str]:
    """The names of all settings in a table, written in full."""
    found: type[BaseModel] = config
    for table in tables:
        field = found.model_fields[table]
        several = one_of(field)
        found = several.of(values[table]) if several else section(field) or found
    return [".".join([*tables, name]) for name in found.model_fields]
