"""Raw text: a pipeline of steps makes words of it, and text of words again, the same in training, scoring and use."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from seqmixer import files
from seqmixer.bars import watched
from seqmixer.data.steps import Lower, Moses, Normal, SentencePieces, TextStep, TrueCase
from seqmixer.data.vocab import Vocab, VocabLimits

MANY = 2000  # lines that take long enough for a progress bar
CASE, PIECES = ".case", ".pieces"  # what a step has learnt, beside the file of the vocabulary


@dataclass(frozen=True)
class Pipeline:
    """Steps from raw text to words with a space between, and back to text that a person would write."""

    steps: tuple[TextStep, ...] = ()

    def encode(self, text: str) -> str:
        for step in self.steps:
            text = step.encode(text)
        return text

    def decode(self, text: str) -> str:
        for step in reversed(self.steps):
            text = step.decode(text)
        return text

    def save(self, path: Path) -> None:
        """Keep what was learnt beside `path`, the file of the vocabulary."""
        for step in self.steps:
            if isinstance(step, TrueCase):
                files.write(path.with_suffix(CASE), "".join(f"{word}\n" for word in sorted(step.words)))
            if isinstance(step, SentencePieces):
                with files.replacing(path.with_suffix(PIECES)) as new:
                    new.write_bytes(step.model)


@dataclass(frozen=True)
class Preprocessing:
    """What is done with the text of one side, the sources or the targets: the settings of a pipeline."""

    normalise: Literal["NFC", "NFKC"] | None = None
    language: str | None = None  # of Moses' tokeniser
    case: Literal["keep", "lower", "true"] = "keep"
    subwords: int | None = None  # how many are learnt
    model: Path | None = None  # or the sentencepiece model that has them

    def learn(self, lines: Sequence[str], label: str) -> tuple[Pipeline, Sequence[str]]:
        """The pipeline, each step learnt from what those before it make of the training text; and its words."""
        steps: list[TextStep] = []
        for make in self.makers():
            steps.append(make(lines))
            lines = encoded(steps[-1:], lines, label)
        return Pipeline(tuple(steps)), lines

    def load(self, path: Path) -> Pipeline:
        """The pipeline that was saved beside `path`."""
        return Pipeline(tuple(make(()) for make in self.makers(path)))

    def makers(self, saved: Path | None = None) -> Iterator[Callable[[Sequence[str]], TextStep]]:
        """For each step, what makes it of the training text, or of what was saved."""
        if form := self.normalise:
            yield lambda lines: Normal(form)
        if language := self.language:
            yield lambda lines: Moses(language)
        if self.case == "lower":
            yield lambda lines: Lower()
        if self.case == "true":
            yield lambda lines: TrueCase.load(saved.with_suffix(CASE)) if saved else TrueCase.learn(lines)
        if self.model or self.subwords:
            model, size = saved.with_suffix(PIECES) if saved else self.model, self.subwords or 0
            yield lambda lines: SentencePieces.load(model) if model else SentencePieces.learn(lines, size)


def encoded(steps: Iterable[TextStep], lines: Sequence[str], label: str) -> list[str]:
    """Lines after some steps."""
    run = Pipeline(tuple(steps))
    return [run.encode(line) for line in watch(lines, f"{label}: {', '.join(step.name for step in run.steps)}")]


def watch(lines: Sequence[str], label: str) -> Iterable[str]:
    """The lines, with a progress bar if they are many."""
    return watched(lines, label) if len(lines) >= MANY else lines


@dataclass(frozen=True)
class ReadableVocab(Vocab):
    """A vocabulary that reads raw text, and writes text for people."""

    pipeline: Pipeline = Pipeline()
    read: dict[str, str] = field(
        default_factory=dict, repr=False, compare=False
    )  # the text that it is learnt from: used once

    @property
    def signature(self) -> str:
        named = [step.name for step in self.pipeline.steps if not isinstance(step, SentencePieces)]  # these are merged
        return f"text:{'+'.join(named)}" if named else ""

    def words_of(self, text: str) -> list[str]:
        return self.pipeline.encode(text).split()

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        encode, read = self.pipeline.encode, self.read
        return super().encode_all([read.pop(text, "") or encode(text) for text in watch(texts, "reading text")])

    def decode(self, ids: Iterable[int]) -> str:
        return self.pipeline.decode(super().decode(ids))

    def save(self, path: Path) -> None:
        self.pipeline.save(path)  # first: a run folder with a vocabulary has all of it
        super().save(path)


def learn_vocab(side: Preprocessing, texts: Sequence[str], limits: VocabLimits, label: str) -> ReadableVocab:
    """The vocabulary of the training text of one side; every sub-word is in it, for words that are still to come."""
    pipeline, lines = side.learn(texts, label)
    pieces = (piece for step in pipeline.steps if isinstance(step, SentencePieces) for piece in step.pieces)
    words = Vocab.build(chain(lines, pieces), limits.min_count, limits.max_size).words
    return ReadableVocab(words, pipeline, dict(zip(texts, lines, strict=True)))


def load_vocab(side: Preprocessing, path: Path) -> ReadableVocab:
    """What `save` wrote."""
    return ReadableVocab(Vocab.load(path).words, side.load(path))
