"""A run is a TOML file. `Config.load` reads it, refuses what it does not know and names the nearest setting it does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import Field, ValidationError, field_validator, model_validator

from seqmixer import configs, files, settings
from seqmixer.algorithms.mixer import MixerSettings
from seqmixer.config.algorithms import AlgorithmConfig
from seqmixer.config.models import ModelConfig, RecurrentSettings
from seqmixer.config.sections import (
    TOYS,
    DataConfig,
    EvaluationConfig,
    RewardConfig,
    Seed,
    TextConfig,
    TrainingConfig,
)
from seqmixer.errors import ConfigError
from seqmixer.functions import is_path
from seqmixer.rewards import parse
from seqmixer.settings import Section, assign, refuse_unread

WORDS = ("source_min_count", "source_max_size", "target_min_count", "target_max_size")
PROMPT = ("prefix", "suffix", "source_length")


class Config(Section):
    """All settings of a run."""

    name: str = "run"
    """The run's folder is OUT/name; a slash in it makes folders inside of folders."""
    seed: Seed = 1
    """Of everything random: initial weights, order of the data, samples."""
    data: DataConfig = Field(default_factory=DataConfig)
    text: TextConfig = TextConfig()
    model: ModelConfig = RecurrentSettings()
    algorithm: AlgorithmConfig = MixerSettings()
    reward: RewardConfig = RewardConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of validation; the first selects the best model."""
        return self.evaluation.metrics or (
            self.reward.name,
            *(("sacrebleu", "sacrebleu_chrf") if self.text.raw else ()),
        )

    @field_validator("name")
    @classmethod
    def below_out(cls, name: str) -> str:
        if {"", ".", ".."} & set(name.split("/")):
            raise ValueError(f"name = {name!r}: a run's folder is OUT/name; write a name such as 'run' or 'tries/run'")
        return name

    @model_validator(mode="after")
    def has_a_function(self) -> Self:
        if self.reward.python is not None:
            named = [name for text in (self.reward.name, *self.metrics) for _, name in parse(text)]
            if not any(map(is_path, named)):
                raise ValueError(f"reward.python is for Python functions, 'module:function', not for {named[0]!r}")
        return self

    @model_validator(mode="after")
    def compares_probabilities(self) -> Self:
        if self.training.rl_dropout and self.algorithm.learns_again:
            raise ValueError(
                f"training.rl_dropout = true, but algorithm.name = {self.algorithm.name!r} with algorithm.updates of 2 "
                "or more compares the probability of a word before and after an update, which dropout changes, too; "
                "leave training.rl_dropout out"
            )
        return self

    @model_validator(mode="after")
    def has_groups(self) -> Self:
        for name, value in (("control", "shuffled-in-group"), ("against", "candidates")):
            if getattr(self.reward, name) == value and self.algorithm.rewarded and self.algorithm.sentences < 2:
                why = "needs several sentences for each source"
                raise ValueError(f"reward.{name} = {value!r} {why}; set algorithm.samples to 2 or more")
        if getattr(self.algorithm, "shaped", False) and (self.reward.control or self.reward.against == "candidates"):
            why = "rewards words by what they add, but reward.control and reward.against are of whole sentences"
            raise ValueError(f"algorithm.shaped = true {why}; set algorithm.shaped to false")
        code = [name for _, name in parse(self.reward.name) if is_path(name)]
        if code and self.reward.against == "candidates":
            raise ValueError(f"reward.against = 'candidates' is for built-in metrics, not for {code[0]!r}")
        return self

    @model_validator(mode="after")
    def readable(self) -> Self:
        pretrained = self.model.pretrained is not None
        if self.text.raw and (pretrained or self.data.task in TOYS):
            whose = "model.name = 'huggingface'" if pretrained else f"data.task = {self.data.task!r}"
            raise ValueError(f"[text] is for raw text, not for {whose}, whose words are its own; remove it")
        if pretrained and self.data.task in ("captions", "toy-captioning"):
            raise ValueError(f"model.name = 'huggingface' reads text, but data.task = {self.data.task!r} has images")
        if pretrained:
            refuse_unread(self.data, "data", WORDS, "is not for model.name = 'huggingface', whose words are its own")
            return self
        refuse_unread(self.data, "data", PROMPT, f"is for model.name = 'huggingface', not {self.model.name!r}")
        if self.data.task in TOYS:
            why = f"is not for data.task = {self.data.task!r}, which has words and T of its own"
            refuse_unread(self.data, "data", (*WORDS, "length"), why)
        return self

    @classmethod
    def load(cls, path: Path | str, overrides: Sequence[str] = ()) -> Self:
        """Read a TOML file, or a config that comes with seqmixer; `overrides` are such as "model.hidden=512"."""
        path = configs.found(path)
        if path.is_dir():
            raise ConfigError(f"{path}: a folder, not a config; name a TOML file, such as {path / 'config.toml'}")
        if not path.exists():
            raise ConfigError(
                f"{path}: no such file; configs end in .toml, and `seqmixer configs` lists those known by name"
            )
        values = files.read_toml(path)
        wanted: dict[str, Any] = {}
        for override in overrides:
            assign(wanted, override)
        settings.change_kind(values, dict(settings.flat(wanted)), cls)
        for override in overrides:
            assign(values, override)
        return cls.parse(values, str(path))

    @classmethod
    def parse(cls, values: dict[str, Any], where: str = "config") -> Self:
        """Check settings; errors say where they came from."""
        try:
            made = cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(f"{where}: {settings.explain(error.errors()[0], cls, values)}") from None
        settings.require_text(made.model_dump(), where)
        return made

    def toml(self) -> str:
        """All settings, also those left at their default; settings of value None are not written."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def documentation() -> str:
    """Every setting as TOML, its meaning above it."""
    return settings.documentation(Config)
