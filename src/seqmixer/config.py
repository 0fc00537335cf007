"""Every setting of a run: its name, its default, its range and what it means.

A run is a TOML file. `Config.load` reads it, refuses what it does not know and names the nearest setting it does.
"""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from seqmixer.errors import ConfigError, unknown

TOYS = ("toy-translation", "toy-summarization", "toy-captioning")


class Section(BaseModel):
    """A table of the file. Unknown names are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class DataConfig(Section):
    task: Literal["toy-translation", "toy-summarization", "toy-captioning", "text", "captions"] = "toy-translation"
    """A built-in task, parallel text files, or image features with captions."""
    folder: str = Field(default_factory=lambda: os.environ.get("SEQMIXER_DATA", "."))
    """Where the files below are. Default: the variable SEQMIXER_DATA, or else the current folder."""
    train: tuple[str, ...] = ()
    """text: the source file, then one or more reference files, plain or .gz, aligned line by line."""
    valid: tuple[str, ...] = ()
    """text: the same for the validation split."""
    test: tuple[str, ...] = ()
    """text: the same for the test split."""
    source: bool = True
    """text: whether there is a source file; false trains a plain language model."""
    captions: str = "captions.json"
    """captions: a JSON list of {id, row, split, captions}."""
    features: str = "features.npy"
    """captions: the image features, one row an image, .npy or .npz."""
    length: int | None = Field(None, ge=2)
    """T, the number of words (EOS included) a target is cropped at. Default: what covers 95 % of the targets."""
    source_min_count: int = Field(1, ge=1)
    """Source words seen less often than this are read as <unk>."""
    source_max_size: int | None = Field(None, ge=1)
    """At most this many source words are known."""
    target_min_count: int = Field(1, ge=1)
    """Target words seen less often than this are read as <unk>."""
    target_max_size: int | None = Field(None, ge=1)
    """At most this many target words are known."""
    skip_empty: bool = False
    """text: drop pairs with an empty side instead of refusing the file."""
    max_words: int = Field(1000, ge=1)
    """text: a longer line is taken for a mistake."""
    seed: int = Field(1, ge=0)
    """Of the built-in tasks: which data set is generated."""
    limit: int | None = Field(None, ge=1)
    """Train on the first so many examples only, to try things out."""

    @model_validator(mode="after")
    def files(self) -> Self:
        if self.task == "text":
            least = 2 if self.source else 1
            for split in ("train", "valid", "test"):
                names: tuple[str, ...] = vars(self)[split]
                if len(names) < least:
                    shape = "a source file and at least one reference file" if self.source else "at least one file"
                    raise ValueError(f"data.{split} names {len(names)} files; with data.task = 'text' it names {shape}")
        return self


class ModelConfig(Section):
    name: Literal["elman", "lstm", "gru", "transformer"] = "lstm"
    """Elman RNN (Eqs. 3-5), LSTM, GRU, or a Transformer."""
    hidden: int = Field(256, ge=1)
    """H, the size of the hidden state and of every embedding."""
    layers: int = Field(1, ge=1)
    """Recurrent layers, the context enters the first; or layers of the Transformer's decoder, and of its encoder."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """On the inputs of each layer and of the output layer. Transformer: on embeddings, attention weights and what each
    part of a layer adds."""
    heads: int = Field(4, ge=1)
    """Transformer: in how many ways each layer attends; hidden is a multiple of twice as many."""
    feedforward: int | None = Field(None, ge=1)
    """Transformer: the inner size of the feed-forward parts. Default: four times hidden."""
    positions: Literal["rotary", "learned"] = "rotary"
    """Transformer: a word's place rotates queries and keys, or is a learned vector added to the word."""
    window: int = Field(5, ge=1)
    """q of Eq. 12, how many neighbouring source words are averaged; odd."""
    reading: Literal["paper", "released"] = "paper"
    """Attention and output as the paper writes them (Eqs. 12-14), or as the released network has them."""
    init: float = Field(0.05, gt=0)
    """Weights start from N(0, init), biases from 0."""

    @model_validator(mode="after")
    def fits(self) -> Self:
        if self.window % 2 == 0:
            raise ValueError(f"model.window must be odd, so that it has a centre; got {self.window}")
        if self.name == "transformer" and self.hidden % (2 * self.heads):
            got = f"got model.hidden = {self.hidden}, model.heads = {self.heads}"
            raise ValueError(f"model.hidden must be a multiple of twice model.heads; {got}")
        return self


class AlgorithmConfig(Section):
    name: Literal["xent", "dad", "e2e", "reinforce", "mixer"] = "mixer"
    """How the model learns."""
    xent_epochs: int = Field(20, ge=0)
    """N^XENT: epochs of pure XENT at the beginning (MIXER, DAD, E2E)."""
    mixed_epochs: int = Field(5, ge=0)
    """N^XE+R: epochs of each later stage (MIXER, E2E)."""
    delta: int = Field(2, ge=1)
    """Delta: how many words each stage hands from XENT to REINFORCE (MIXER), or to its own k best (E2E)."""
    whole: bool = True
    """MIXER: end with a stage of s = 0, REINFORCE on the whole sequence; without it the last s is 1 or more."""
    xent_weight: float = Field(0.5, ge=0)
    """MIXER: weight of XENT in the mixed stages."""
    reinforce_weight: float = Field(0.5, ge=0)
    """MIXER: weight of REINFORCE. The released code sums over the batch: times the batch size is its scale."""
    overlap: bool = False
    """MIXER: train word s by both losses, as the released code does."""
    baseline: Literal["linear", "step"] = "linear"
    """Expected reward: one linear regressor of the hidden state, or one for each step (as released)."""
    annealing: Literal["linear", "exponential", "inverse-sigmoid"] = "linear"
    """DAD: how the probability of feeding the reference word falls."""
    annealing_k: float = Field(20.0, gt=0)
    """DAD: 1 - i/k, k^i or k/(k + exp(i/k)) in the i-th epoch after the XENT ones."""
    truth_floor: float = Field(0.0, ge=0, le=1)
    """DAD: the probability of feeding the reference word never falls below this."""
    feed: Literal["sample", "greedy"] = "sample"
    """DAD: whether the model's own word is drawn or is its most likely one."""
    k: int = Field(5, ge=1)
    """E2E: how many of its best words the model is fed."""

    @model_validator(mode="after")
    def decays(self) -> Self:
        if self.annealing == "exponential" and self.annealing_k >= 1:
            raise ValueError(f"algorithm.annealing_k must be below 1 with exponential, got {self.annealing_k}")
        if self.annealing == "inverse-sigmoid" and self.annealing_k < 1:
            raise ValueError(f"algorithm.annealing_k must be at least 1 with inverse-sigmoid, got {self.annealing_k}")
        return self


class RewardConfig(Section):
    name: str = "bleu"
    """bleu and rouge2 as in the released code; rouge1 rouge1_f rouge2_f rouge_l chrf cider edit exact length bleu_mean;
    the path of a Python function of a sentence, 'module:function'; or a sum, '0.5*bleu + 0.5*rouge_l'."""
    on: Literal["text", "words"] = "text"
    """What a Python function is given: strings, or lists of word ids."""
    workers: int = Field(0, ge=0)
    """Processes that a Python function runs in, at the same time as the scoring pass. 0: in this one, after it."""
    seconds: float | None = Field(None, gt=0)
    """How long one call of a Python function may take before the run stops. Default: as long as it likes."""


class TrainingConfig(Section):
    epochs: int | None = Field(None, ge=1)
    """Passes over the data. Default: what the schedule of s has, for every algorithm alike."""
    batch_size: int = Field(32, ge=1)
    """Sentences in a batch."""
    optimizer: Literal["sgd", "adam"] = "adam"
    """What updates the model."""
    lr: float = Field(1e-3, gt=0)
    """Learning rate."""
    mixed_lr: float | None = Field(None, gt=0)
    """Learning rate once the model is paid for its own words, with a fresh optimiser, from the best model so far.
    Default: nothing changes then."""
    decay: float = Field(1.0, ge=1)
    """Divide the rate by this when validation perplexity does not improve by 0.01 % (released: 1.2)."""
    min_lr: float = Field(1e-4, ge=0)
    """With decay above 1: stop when the rate falls below this."""
    clip: float = Field(10.0, gt=0)
    """Gradients are re-scaled when their norm is above this."""
    baseline_lr: float = Field(5e-3, gt=0)
    """Learning rate of the expected-reward regressor, which has an Adam of its own."""
    start: str | None = None
    """The folder of a run whose best model this one starts from."""
    save_minutes: float = Field(0.5, gt=0)
    """A checkpoint is written after so many minutes, or after twenty times as long as writing one takes; also after the
    first epoch, at the end, and when the run is stopped."""
    keep: int = Field(1, ge=1)
    """How many checkpoints before the last are kept."""
    threads: int | None = Field(None, ge=1)
    """CPU threads. Default: torch's choice; small models are fastest with 1."""
    samples: int = Field(4, ge=0)
    """How many validation sentences are written down each epoch."""
    device: str = "auto"
    """A device of torch, such as cpu; auto takes an accelerator if there is one."""
    fast: bool = True
    """Fused kernels, and on a CUDA device the whole step as one captured program; false: plain torch, to compare."""
    precision: Literal["float32", "tf32", "bfloat16"] = "tf32"
    """How matrices are multiplied: tf32 and bfloat16 are faster on a CUDA device. Losses and rewards are float32."""


class EvaluationConfig(Section):
    metric: str = "bleu"
    """What picks the best model and is reported: bleu rouge1 rouge1_f rouge2 rouge2_f rouge_l chrf cider edit exact
    length bleu_mean."""
    unit: Literal["words", "pieces"] = "words"
    """What rewards and scores count. Where the vocabulary marks pieces of words (BPE's @@, sentencepiece's ▁), they are
    merged into words first, or counted as they are."""
    batch_size: int = Field(256, ge=1)
    """Sentences decoded together."""


class Config(Section):
    """A whole run."""

    name: str = "run"
    """The run's folder is OUT/name."""
    seed: int = Field(1, ge=0)
    """Of everything random: initial weights, order of the data, samples."""
    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    reward: RewardConfig = RewardConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @classmethod
    def load(cls, path: Path, overrides: Sequence[str] = ()) -> Self:
        """Read a TOML file; `overrides` are settings such as "model.hidden=512"."""
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; configs end in .toml")
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not TOML: {error}") from None
        for override in overrides:
            assign(values, override)
        return cls.parse(values, str(path))

    @classmethod
    def parse(cls, values: dict[str, Any], where: str = "config") -> Self:
        """Check settings; errors say where they came from."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(f"{where}: {explain(error.errors()[0])}") from None

    def toml(self) -> str:
        """All settings, also those left at their default; settings of value none are left out."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def documentation() -> str:
    """Every setting as TOML, its meaning above it. Settings without a value by default are commented out."""
    lines = []
    for name, field in Config.model_fields.items():
        kind = field.annotation
        table = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {name: field}
        lines += [f"\n[{name}]"] if table is not Config.model_fields and name not in table else []
        for key, setting in table.items():
            default = setting.get_default(call_default_factory=True)
            line = f"# {key} =" if default is None else tomli_w.dumps({key: default}).strip()
            lines += [f"# {' '.join((setting.description or '').split())}", line]
    return "\n".join(lines)


def assign(values: dict[str, Any], override: str) -> None:
    """Set `a.b=c` in nested dicts. c is read as TOML, or else as a string."""
    name, equals, text = override.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set {override!r}: write NAME=VALUE, for example model.hidden=512")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *tables, last = name.strip().split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {override!r}: {table!r} is a setting, not a table of settings")
    values[last] = value


def explain(error: ErrorDetails) -> str:
    """One line for the first thing wrong with a config."""
    names = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        return str(unknown("setting", ".".join(names), known(names[:-1])))
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error":
        return message
    return f"{'.'.join(names)} = {error['input']!r}: {message}"


def known(tables: Sequence[str]) -> list[str]:
    """The names of all settings in a table, written in full."""
    section: type[BaseModel] = Config
    for table in tables:
        kind = section.model_fields[table].annotation if table in section.model_fields else None
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            break
        section = kind
    return [".".join([*tables, name]) for name in section.model_fields]
