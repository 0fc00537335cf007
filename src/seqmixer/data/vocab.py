"""Vocabularies: words to ids and back, kept as a text file with one word a line."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from seqmixer import files
from seqmixer.data.files import read_utf8, split_lines
from seqmixer.errors import DataError
from seqmixer.types import BOS, EOS, PAD, UNK

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")  # in the order of PAD, BOS, EOS, UNK
LONGEST_WORD = 1000  # characters: some scores keep a table of those of all words


@dataclass(frozen=True)
class VocabLimits:
    """Which words of the training text a vocabulary keeps; the rest is read as UNK."""

    min_count: int = 1  # a word is kept if it is there at least this often
    max_size: int | None = None  # and among this many most frequent words, the specials not counted


class KnownWords(dict[str, int]):
    """The ids of words; any other word is UNK. Faster than asking with a default, and text has millions of words."""

    def __missing__(self, word: str) -> int:
        return UNK


class Vocabulary(ABC):
    """Text to ids and back. A word's id is its place in `words`; the first four are PAD, BOS, EOS, UNK."""

    words: tuple[str, ...]

    @abstractmethod
    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each sentence."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The sentence up to the first EOS or PAD, without BOS."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Keep it in a file, or in a folder of files."""

    def encode(self, text: str) -> list[int]:
        """The ids of one sentence."""
        return self.encode_all([text])[0]

    @property
    def signature(self) -> str:
        """What is done with text before its words are looked up, in the signatures of scores that count words."""
        return ""

    def words_of(self, text: str) -> list[str]:
        """The words of one sentence before they are looked up."""
        return text.split()

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class Vocab(Vocabulary):
    """The words a model knows. A word's id is its place in `words`; words are what white space separates.

    >>> vocab = Vocab.build(["the cat saw the dog"])
    >>> vocab.words
    ('<pad>', '<s>', '</s>', '<unk>', 'the', 'cat', 'dog', 'saw')
    >>> vocab.encode("the dog ran")
    [4, 6, 3, 2]
    >>> vocab.decode([4, 6, 3, 2])
    'the dog <unk>'
    """

    words: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Vocab({len(self):,} words)"

    def __post_init__(self) -> None:
        if self.words[: len(SPECIALS)] != SPECIALS:
            raise DataError(f"a vocabulary starts with {', '.join(SPECIALS)}; got {', '.join(self.words[:4])}")

    @classmethod
    def build(cls, sentences: Iterable[str], min_count: int = 1, max_size: int | None = None) -> "Vocab":
        """Count words and keep the most frequent, ties in alphabetical order. See VocabLimits."""
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence.split())
        known = (word for word, count in counts.items() if count >= min_count and len(word) <= LONGEST_WORD)
        kept = [word for word in known if word not in SPECIALS]
        kept.sort(key=lambda word: (-counts[word], word))
        return cls(SPECIALS + tuple(kept[:max_size]))

    @classmethod
    def load(cls, path: Path) -> "Vocab":
        """Read what `save` wrote."""
        lines = split_lines(read_utf8(path))
        for i, special in enumerate(SPECIALS):
            got = repr(lines[i]) if i < len(lines) else "the end of the file"
            if got != repr(special):
                raise DataError(
                    f"{path}:{i + 1}: expected {special!r}, got {got}; "
                    f"a vocabulary file starts with {', '.join(SPECIALS)}, one a line"
                )
        first: dict[str, int] = {}
        for number, word in enumerate(lines, 1):
            if not word:
                raise DataError(f"{path}:{number}: empty line; a vocabulary file has one word a line")
            if word.split() != [word]:
                raise DataError(f"{path}:{number}: white space in {word!r}; a vocabulary file has one word a line")
            if word in first:
                raise DataError(f"{path}:{number}: {word!r} again, first on line {first[word]}; drop one of them")
            first[word] = number
        return cls(tuple(lines))

    def save(self, path: Path) -> None:
        """Write the file completely or leave the one before: half a vocabulary would be read as a smaller one."""
        files.write(path, "".join(f"{word}\n" for word in self.words))

    @cached_property
    def ids(self) -> KnownWords:
        """The id of a word of text. "<pad>", "<s>" and "</s>" in a text are no padding or ends: they are unknown."""
        return KnownWords((word, max(i, UNK)) for i, word in enumerate(self.words))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each sentence, EOS at the end."""
        known = self.ids.__getitem__
        return [[*map(known, text.split()), EOS] for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.words[i] for i in spoken(ids))


def spoken(ids: Iterable[int]) -> list[int]:
    """The ids before the first EOS or PAD, without BOS."""
    return [i for i in takewhile(lambda i: i not in (EOS, PAD), ids) if i != BOS]
