"""The steps from raw text to words, each with its way back: Unicode, Moses' tokens, case, sub-words."""

import io
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqmixer.data.files import read_bytes, read_utf8, split_lines
from seqmixer.data.vocab import SPECIALS
from seqmixer.errors import CONTROL, DataError, missing_extra, unknown
from seqmixer.types import UNK

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

ENOUGH = 1_000_000  # lines to learn sub-words from
LONG = 4096  # bytes of a line that none are learnt from


class TextStep(ABC):
    """One step, and its inverse as far as there is one. Between steps, text is one line."""

    @property
    def name(self) -> str:
        """For the progress bar, and for the signatures of scores that count the words which it makes."""
        return type(self).__name__.lower()

    @abstractmethod
    def encode(self, text: str) -> str:
        """Towards the words of the model."""

    def decode(self, text: str) -> str:
        """Towards what a person reads."""
        return text


@dataclass(frozen=True)
class Normal(TextStep):
    """Unicode normalisation. Control characters go, and white space of any kind is one space.

    >>> Normal("NFKC").encode("ﬁne\\x1b \\u00a0 ½")
    'fine 1⁄2'
    """

    form: Literal["NFC", "NFKC"]

    @property
    def name(self) -> str:
        return self.form

    def encode(self, text: str) -> str:
        return CONTROL.sub("", " ".join(unicodedata.normalize(self.form, text).split()))


@dataclass(frozen=True)
class Moses(TextStep):
    """Moses' tokeniser and detokeniser (sacremoses), without its escapes such as &apos;.

    >>> moses = Moses("en")
    >>> moses.encode("It's 3,000 cats & dogs.")
    "It 's 3,000 cats & dogs ."
    >>> moses.decode("It 's 3,000 cats & dogs .")
    "It's 3,000 cats & dogs."
    """

    language: str

    @property
    def name(self) -> str:
        return f"moses-{self.language}"

    def __post_init__(self) -> None:
        if self.language not in languages():
            raise unknown("language of Moses' tokeniser", self.language, languages())

    def encode(self, text: str) -> str:
        return str(self.tokenizer.tokenize(text, return_str=True, escape=False))

    def decode(self, text: str) -> str:
        return str(self.detokenizer.detokenize(text.split(), unescape=False))

    @cached_property
    def tokenizer(self) -> Any:
        from sacremoses import MosesTokenizer

        made = MosesTokenizer(lang=self.language)
        made.islower = frozenset(made.IsLower).issuperset  # it makes these sets again for each word with a full stop
        made.isanyalpha = lambda text, letters=frozenset(made.IsAlpha): not letters.isdisjoint(text)
        return made

    @cached_property
    def detokenizer(self) -> Any:
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(lang=self.language)


@dataclass(frozen=True)
class Lower(TextStep):
    """Lower case, for good."""

    def encode(self, text: str) -> str:
        return text.lower()


@dataclass(frozen=True)
class TrueCase(TextStep):
    """The first word of a sentence has the case that it has inside of sentences. Back: a capital at the beginning.

    >>> case = TrueCase.learn(["The cat saw the dog", "A dog", "Anna saw Anna and a cat"])
    >>> case.encode("A dog saw Anna"), case.encode("Anna saw a dog"), case.decode("a dog saw Anna")
    ('a dog saw Anna', 'Anna saw a dog', 'A dog saw Anna')
    """

    words: frozenset[str] = field(repr=False)  # which begin with a small letter, more often than with a capital

    @classmethod
    def learn(cls, lines: Iterable[str]) -> "TrueCase":
        inside = Counter(word for line in lines for word in rest_of(line.split()))
        small = (word for word in inside if capital(word) != word)
        return cls(frozenset(word for word in small if inside[word] > inside[capital(word)]))

    @classmethod
    def load(cls, path: Path) -> "TrueCase":
        return cls(frozenset(split_lines(read_utf8(path))))

    def encode(self, text: str) -> str:
        words = text.split()
        i = len(words) - len(rest_of(words)) - 1
        if words and (small := words[i][:1].lower() + words[i][1:]) in self.words:
            words[i] = small
        return " ".join(words)

    def decode(self, text: str) -> str:
        words = text.split()
        i = len(words) - len(rest_of(words)) - 1
        if words:
            words[i] = capital(words[i])
        return " ".join(words)


def rest_of(words: Sequence[str]) -> Sequence[str]:
    """What follows the first word with a letter; before it may be quotation marks."""
    first = next((i for i, word in enumerate(words) if any(map(str.isalpha, word))), len(words) - 1)
    return words[first + 1 :]


def capital(word: str) -> str:
    """
    >>> capital("the"), capital("McDonald"), capital("ßa")
    ('The', 'McDonald', 'ßa')
    """
    first = word[:1].upper()
    return first + word[1:] if len(first) == 1 else word


@dataclass(frozen=True)
class SentencePieces(TextStep):
    """Sub-words of sentencepiece (extra `text`); one that begins a word begins with ▁."""

    model: bytes = field(repr=False)

    @classmethod
    def learn(cls, lines: Sequence[str], size: int) -> "SentencePieces":
        """Byte-pair encoding: always the same for the same text. Every character of the text is a piece."""
        model = io.BytesIO()
        try:
            sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=islice(lines, ENOUGH),
                model_writer=model,
                model_type="bpe",
                vocab_size=size,
                hard_vocab_limit=False,
                character_coverage=1.0,
                normalization_rule_name="identity",
                max_sentence_length=LONG,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            letters = len({letter for line in islice(lines, ENOUGH) for letter in line})
            if size > letters + len(SPECIALS):
                raise DataError(f"sentencepiece cannot learn {size} sub-words from this text: {error}") from None
            what = f"text.subwords = {size} is too small for the {letters} different characters of the training text"
            raise DataError(f"{what}; raise it, or remove it") from None
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: Path) -> "SentencePieces":
        step = cls(read_bytes(path))
        try:
            _ = step.processor
        except RuntimeError:
            raise DataError(f"{path}: not a model of sentencepiece") from None
        return step

    @cached_property
    def processor(self) -> "SentencePieceProcessor":
        return sentencepiece().SentencePieceProcessor(model_proto=self.model)

    @property
    def pieces(self) -> list[str]:
        """All but those for UNK, BOS and EOS."""
        model = self.processor
        every = range(model.get_piece_size())
        return [model.id_to_piece(i) for i in every if not (model.is_unknown(i) or model.is_control(i))]

    def encode(self, text: str) -> str:
        return " ".join(self.processor.encode(text, out_type=str))

    def decode(self, text: str) -> str:
        known = (self.processor.decode(part.split()) for part in text.split(SPECIALS[UNK]))
        return f" {SPECIALS[UNK]} ".join(known).strip()


def sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise missing_extra("text.subwords and text.models need sentencepiece", "text") from None
    return sentencepiece


@cache
def languages() -> tuple[str, ...]:
    """Those that Moses has rules for; it reads any other as English."""
    from sacremoses.corpus import NonbreakingPrefixes

    return tuple(sorted(set(NonbreakingPrefixes().available_langs.values())))
