"""[reward] and evaluation.metrics to functions of sentences."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from seqmixer.config import Config
from seqmixer.data import Task
from seqmixer.errors import ConfigError, unknown
from seqmixer.functions import Elsewhere, is_path
from seqmixer.rewards import (
    BUILT_IN,
    CONTROLS,
    METRICS,
    READABLE,
    CharacterTable,
    DocumentFrequencies,
    Merges,
    Metric,
    chrf_metric,
    cider_metric,
    consensus,
    detect,
    from_path,
    mean_of,
    metric_on_whole_words,
    on_text,
    on_words,
    readable_metric,
    summed_metric,
    with_end,
    with_ends,
)
from seqmixer.types import Reward


class Metrics:
    """The metrics that a config can name, and its reward: built-ins, Python functions and weighted sums.

    A Python function is imported once, and has its worker processes once, whether it rewards, validates or both.
    `folder` is where document frequencies are kept.
    """

    def __init__(self, config: Config, task: Task, folder: Path | None = None) -> None:
        self.config, self.task, self.folder = config, task, folder
        self.functions: dict[tuple[str, bool], Metric] = {}  # by path, and whether the end is a word

    @cached_property
    def reward(self) -> Reward:
        """The training reward."""
        settings = self.config.reward
        reward = self.named(settings.name, "reward", settings.eos).reward
        reward = consensus(reward) if settings.against == "candidates" else reward
        return reward if settings.control is None else CONTROLS[settings.control](reward)

    @cached_property
    def chosen(self) -> list[Metric]:
        """The metrics of validation; the first selects the best model."""
        return self.every(self.config.metrics)

    def every(self, names: Sequence[str]) -> list[Metric]:
        return [self.named(name) for name in dict.fromkeys(names)]

    def named(self, text: str, where: str = "evaluation.metrics", eos: bool = False) -> Metric:
        """A metric, or a weighted sum of some. With `eos`, its reward counts the end of a sentence as a word."""
        return summed_metric(text, lambda name: self.part(name, where, eos))

    def part(self, name: str, where: str, eos: bool) -> Metric:
        if is_path(name):
            return self.function(name, eos)
        metric = self.built_in(name, where, eos)
        if name in READABLE:
            return metric
        metric = with_end(metric) if eos else metric
        metric = metric_on_whole_words(metric, self.merges) if self.merges and name in METRICS else metric
        how = self.task.target_vocab.signature
        return replace(metric, signature=f"{metric.signature}|{how}") if how else metric

    def built_in(self, name: str, where: str, eos: bool) -> Metric:
        match name:
            case "cider":
                return cider_metric(self.frequencies_with_ends if eos else self.frequencies)
            case "chrf":
                return chrf_metric(self.merges.characters if self.merges else self.characters)
            case "chrf++":
                self.require_words(name)
                return chrf_metric(self.characters, name)
            case _ if name in READABLE:
                if eos:
                    why = f"reward.eos is for words, and {name} counts text, which has no </s>"
                    raise ConfigError(f"{why}; remove it")
                return readable_metric(name, self.task.target_vocab.decode)
            case _ if name in METRICS:
                return METRICS[name]
            case _:
                raise unknown(where, name, [*BUILT_IN, "module:function"])

    def function(self, path: str, eos: bool = False) -> Metric:
        """A function of the user's, on strings or on word ids."""
        if (path, eos) not in self.functions:
            settings = self.config.reward
            made = partial(on_text, decode=self.task.target_vocab.decode) if settings.on == "text" else on_words
            function = from_path(path) if settings.python is None else Elsewhere(settings.python, path)
            workers = settings.workers or int(settings.python is not None)
            reward = made(function, workers=workers, seconds=settings.seconds, eos=eos)
            self.functions[path, eos] = mean_of(path, reward)
        return self.functions[path, eos]

    @cached_property
    def merges(self) -> Merges | None:
        """How pieces are merged into words before these are counted; None: there are no pieces, or they are counted."""
        words = self.task.target_vocab.words
        style = detect(words) if self.config.evaluation.unit == "words" else None
        return Merges.of(words, style) if style else None

    @cached_property
    def characters(self) -> CharacterTable:
        return CharacterTable.build(self.task.target_vocab.words)

    @cached_property
    def frequencies(self) -> DocumentFrequencies:
        """CIDEr-D's, of the training references; kept in the run folder if there is one."""
        return self.counted("cider.safetensors", self.task.train.references)

    @cached_property
    def frequencies_with_ends(self) -> DocumentFrequencies:
        return self.counted("cider-eos.safetensors", with_ends(self.task.train.references))

    def counted(self, file: str, references: Sequence[Sequence[Sequence[int]]]) -> DocumentFrequencies:
        self.require_words("cider")
        if self.folder is None:
            return DocumentFrequencies.build(references)
        return DocumentFrequencies.cached(self.folder / file, references)

    def require_words(self, name: str) -> None:
        if self.merges:
            raise ConfigError(
                f"{name} counts the words of the vocabulary, which are pieces; set evaluation.unit = 'pieces'"
            )
