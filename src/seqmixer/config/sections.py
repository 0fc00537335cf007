"""The tables of a config: every setting, its default, its range and what it means."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from seqmixer.data import LONGEST, kind_of
from seqmixer.rewards import Control
from seqmixer.settings import Section

TOYS = ("toy-translation", "toy-summarization", "toy-captioning")

Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Names = Annotated[tuple[str, ...], Field(strict=False)]  # a list of TOML, too
Three = Annotated[tuple[str, str, str], Field(strict=False)]
Count = Annotated[int, Field(ge=0)]
Two = Annotated[tuple[Count, Count], Field(strict=False)]


class DataConfig(Section):
    task: Literal["toy-translation", "toy-summarization", "toy-captioning", "text", "captions", "dataset"] = (
        "toy-translation"
    )
    """A built-in task, parallel text files, image features with captions, or a dataset of the `datasets` library."""
    folder: str = Field(default_factory=lambda: os.environ.get("SEQMIXER_DATA") or ".")
    """Where the files below are. Default: the variable SEQMIXER_DATA, or else the current folder."""
    train: Names = ()
    """text: the source file, then one or more reference files, plain or .gz, aligned line by line; with `columns`, one
    table: .tsv, .csv or .jsonl."""
    valid: Names = ()
    """text: the same for the validation split. Default: drawn from the training text, see `held_out`."""
    test: Names = ()
    """text: the same for the test split. Default: drawn from the training text."""
    held_out: Two = (0, 0)
    """text: how many examples are drawn from the training text for validation, and how many for the test, where those
    name no files. Examples with the same source stay together."""
    source: bool = True
    """text, dataset: whether there is a source; false trains a plain language model."""
    captions: str = "captions.json"
    """captions: a JSON list of {id, row, split, captions}."""
    features: str = "features.npy"
    """captions: the image features, one row an image, .npy or .npz."""
    dataset: str = "dataset"
    """dataset: the folder that save_to_disk wrote."""
    columns: Names = ()
    """dataset, and text in tables: the column of the sources, then one or more columns of references. Numbers, as in
    ["1", "2"], are columns of a table without a line of names."""
    splits: Three = ("train", "validation", "test")
    """dataset: what the three splits are called there."""
    prefix: str = ""
    """Hugging Face: put before each source, such as "summarize: "."""
    suffix: str = ""
    """Hugging Face decoders: put between each source, which is the prompt, and its target, such as " TL;DR:"."""
    source_length: int | None = Field(None, ge=1)
    """Hugging Face: sources are cropped at so many tokens. Default: what the model has no positions for is refused."""
    length: int | None = Field(None, ge=2, le=LONGEST)
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
    """text, dataset: drop pairs with an empty side instead of refusing the data."""
    max_words: int = Field(1000, ge=1)
    """text: a longer line, or one of more than twenty times as many characters, is taken for a mistake."""
    seed: Seed = 1
    """Of the built-in tasks: which data set is generated."""
    limit: int | None = Field(None, ge=1)
    """Train on the first so many examples only, to try things out."""

    @model_validator(mode="after")
    def files(self) -> Self:
        if self.task == "text":
            for split in ("train", "valid", "test"):
                self.require_files(split)
        if self.task in ("dataset", "text") and (self.columns or self.task == "dataset"):
            least, n = 1 + self.source, len(self.columns)
            if n < least:
                shape = (
                    "the column of the sources and at least one of references" if self.source else "at least one column"
                )
                raise ValueError(f"data.columns names {n} columns; with data.task = {self.task!r} it names {shape}")
        return self

    def require_files(self, split: str) -> None:
        """A table, or a file for each side; for validation and test none, where they are drawn from train."""
        names: tuple[str, ...] = vars(self)[split]
        drawn = dict(zip(("valid", "test"), self.held_out, strict=True)).get(split, 0)
        if drawn and names:
            raise ValueError(f"data.{split} names files, and data.held_out draws {drawn} examples for it; choose one")
        if drawn:
            return
        tables = [name for name in names if kind_of(Path(name))]
        if tables and not self.columns:
            raise ValueError(f'{tables[0]!r} is a table; name its columns, such as data.columns = ["source", "target"]')
        if self.columns and (len(names) != 1 or not tables):
            raise ValueError(
                f"data.{split} names {len(names)} files; with data.columns it names one .tsv, .csv or .jsonl"
            )
        if not self.columns and len(names) < 1 + self.source:
            shape = "a source file and at least one reference file" if self.source else "at least one file"
            missing = f"data.{split} names {len(names)} files; with data.task = 'text' it names {shape}"
            draw = "; or set data.held_out, which draws from the training text"
            raise ValueError(missing + (draw if split != "train" and not names else ""))


class TextConfig(Section):
    """Raw text: how it becomes the words of the model, and the model's words text again. Without any of these settings,
    words are what spaces separate, in and out."""

    normalise: Literal["NFC", "NFKC"] | None = None
    """Normalise Unicode and drop control characters. NFC keeps what one sees; NFKC also makes one of look-alikes."""
    languages: Names = ()
    """Split off punctuation by Moses' rules for the languages of source and target, such as ["de", "en"]; one is for
    both. What the model writes is put back together."""
    case: Literal["keep", "lower", "true"] = "keep"
    """lower: lower case, also in what the model writes. true: the first word of a sentence as it is inside of others;
    what the model writes begins with a capital."""
    subwords: int | None = Field(None, ge=8, le=1_000_000)
    """Split rare words: so many sub-words are learnt from the training text of each side (sentencepiece; needs the
    extra text)."""
    models: Names = ()
    """In place of that, models of sentencepiece: of the source and of the target, or one for both; in data.folder."""

    @property
    def raw(self) -> bool:
        """Whether anything is done with the text."""
        return self != TextConfig()

    @model_validator(mode="after")
    def each_side(self) -> Self:
        for name in ("languages", "models"):
            if len(vars(self)[name]) > 2:
                raise ValueError(
                    f"text.{name} names {len(vars(self)[name])}; it names one for the source and one for the target"
                )
        if self.subwords is not None and self.models:
            raise ValueError("text.subwords learns what text.models has already; leave one of them out")
        return self


class RewardConfig(Section):
    name: str = "bleu"
    """bleu and rouge2 as in the released code; bleu_best bleu_mean rouge1 rouge1_f rouge2_f rouge_l chrf chrf++ cider
    edit exact length; sacrebleu, sacrebleu_chrf and sacrebleu_chrf++ of the text that people read; the path of a Python
    function, 'module:function'; or a sum, '0.5*bleu + 0.5*rouge_l'."""
    eos: bool = False
    """Count the end of a sentence as a word, so that a model is rewarded for ending where the references do. Python
    functions get it as the word "</s>", or with on = "words" as its id."""
    against: Literal["references", "candidates"] = "references"
    """What sampled sentences are compared with: references; or, without these, the other sentences that were sampled
    for the same source, as minimum Bayes risk decoding does."""
    control: Control | None = None
    """Train on what the reward does not say, to see what is gained without it: the reward 1 for every sentence; or the
    rewards of the sentences for a source, or of a batch, shuffled. Validation is not changed."""
    on: Literal["text", "words"] = "text"
    """What a Python function is given: strings, or lists of word ids."""
    python: str | None = None
    """The Python of another environment, such as "/envs/comet/bin/python", that Python functions run in."""
    workers: int = Field(0, ge=0, le=1024)
    """Processes that a Python function runs in, at the same time as the scoring pass. 0: in this one, after it."""
    seconds: float | None = Field(None, gt=0, le=1_000_000)
    """How long one call of a Python function may take before the run stops. Default: as long as it likes."""


class TrainingConfig(Section):
    epochs: int | None = Field(None, ge=1, le=100_000)
    """Passes over the data. Default: what the schedule of s has, for every algorithm alike."""
    batch_size: int = Field(32, ge=1)
    """Sentences in a batch."""
    optimizer: Literal["sgd", "adam"] = "adam"
    """What updates the model."""
    lr: float = Field(1e-3, gt=0)
    """Learning rate."""
    rl_lr: float | None = Field(None, gt=0)
    """Learning rate once the model's samples are rewarded, with a fresh optimiser, from the best model so far.
    Default: nothing changes then."""
    rl_dropout: bool = False
    """Whether dropout stays on then. Off, the words are drawn from the very distribution that is scored (Eq. 11)."""
    decay: float = Field(1.0, ge=1)
    """Divide the rate by this when validation perplexity does not improve by 0.01 % (released: 1.2). rl_lr stays."""
    min_lr: float = Field(1e-4, ge=0)
    """With decay above 1, or with patience: stop when the rate falls below this."""
    patience: int | None = Field(None, ge=1)
    """Go back to the best model, with half the rate and a fresh optimiser, after so many epochs with REINFORCE that did
    not beat it; end the run after five such returns to one model. Default: never."""
    nonfinite: Literal["stop", "skip", "rollback"] = "stop"
    """Where a loss or gradient is not finite: stop; leave its batch out; or go back as with patience."""
    clip: float = Field(10.0, gt=0)
    """Gradients are re-scaled when their norm is above this."""
    baseline_lr: float = Field(1e-2, gt=0)
    """Learning rate of the expected-reward regressor, which has an Adam of its own."""
    start: str | None = None
    """The folder of a run whose best model this one starts from."""
    save_minutes: float = Field(0.5, gt=0)
    """A checkpoint is written after so many minutes, or after twenty times as long as writing one takes; also after the
    first epoch, at the end, and when the run is stopped."""
    keep: int = Field(1, ge=1, le=1000)
    """How many checkpoints before the last are kept."""
    threads: int | None = Field(None, ge=1, le=1024)
    """CPU threads. Default: measured for a second when the run begins, and as then when it resumes."""
    examples: int = Field(4, ge=0)
    """How many validation sentences are written down each epoch."""
    device: str = "auto"
    """A device of torch, such as cpu; auto takes an accelerator if there is one."""
    fast: bool = True
    """Fused kernels, and on a CUDA device each step as one captured program; false: plain torch, to compare."""
    precision: Literal["float32", "tf32", "bfloat16"] = "tf32"
    """How matrices are multiplied: tf32 and bfloat16 are faster on a CUDA device. Losses and rewards are float32."""


class EvaluationConfig(Section):
    metrics: Names = ()
    """Scores to report, each as reward.name has it; the first selects the best model. Default: reward.name; with [text]
    also sacrebleu and sacrebleu_chrf, which score what a person reads."""
    unit: Literal["words", "pieces"] = "words"
    """What rewards and scores count. Where the vocabulary marks pieces of words (BPE's @@, sentencepiece's ▁,
    byte-level BPE's Ġ), they are merged into words first, or counted as they are."""
    batch_size: int = Field(256, ge=1)
    """Sentences decoded together."""
    unk: bool = True
    """Whether the model may write UNK, in validation and in every later search; its samples in training always may."""
