"""The characters of words as tensors, for chrF, and to tell whether pieces spell the same word."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import punctuation

import torch
from torch import Tensor

from seqmixer.rewards import ngrams
from seqmixer.types import UNK

OPAQUE = "\0"  # what UNK is made of: one character that no word has


@dataclass(frozen=True)
class Units:
    """What each word of a vocabulary is made of, as ids from 1.

    >>> units = Units.build([[], [], [], ["?"], ["a", "b"], ["b"]])
    >>> units.table
    tensor([[0, 0],
            [0, 0],
            [0, 0],
            [1, 0],
            [2, 3],
            [3, 0]], dtype=torch.int32)
    >>> units.spell(torch.tensor([[4, 5, 2]]), unknown=0)
    tensor([[2, 3, 3, 0, 0, 0]])
    """

    table: Tensor  # (V, C) int32, 0 after the last unit of the word; C is that of the longest word
    kinds: int  # ids are at most this

    @classmethod
    def build(cls, words: Sequence[Sequence[str]]) -> "Units":
        """From the units of each word."""
        ids = {unit: i for i, unit in enumerate(dict.fromkeys(unit for units in words for unit in units), 1)}
        longest = max([1, *map(len, words)])
        rows = [[ids[unit] for unit in units] + [0] * (longest - len(units)) for units in words]
        return cls(torch.tensor(rows, dtype=torch.int32), len(ids))

    def to(self, device: torch.device) -> "Units":
        return Units(self.table.to(device), self.kinds)

    def of(self, words: Tensor) -> Tensor:
        """The units of each word before EOS.  (..., T) -> (..., T, C)

        An id below 0 is one more word, with the units of UNK.
        """
        known = torch.where(words < 0, UNK, words)
        return self.table[known].long() * ngrams.inside(words).unsqueeze(-1)

    def spell(self, words: Tensor, unknown: int) -> Tensor:
        """The units of a sentence without gaps, 0 after the last; those of UNK are all different.

        (..., T) -> (..., T * C)

        Args:
            unknown: added to the ids of the units of UNK, to keep those of several sentences apart.
        """
        apart = self.kinds + 1 + unknown + torch.arange(words.shape[-1], device=words.device)  # (T,)
        units = self.of(words)  # (..., T, C)
        units = torch.where((words == UNK).unsqueeze(-1) & (units > 0), apart.unsqueeze(-1), units).flatten(-2)
        slot = ((units > 0).cumsum(-1) - 1).clamp(min=0)  # (..., T * C)
        return torch.zeros_like(units).scatter_add(-1, slot, units)  # what is no unit adds 0


@dataclass(frozen=True)
class CharacterTable:
    """The characters of each word of a vocabulary, and its words apart from their punctuation (for chrF++)."""

    characters: Units
    tokens: Units

    @classmethod
    def build(cls, words: Sequence[str]) -> "CharacterTable":
        """From the words of a vocabulary; its first four are PAD, BOS and EOS, which have no characters, and UNK."""
        rest = words[UNK + 1 :]
        specials: list[list[str]] = [[], [], [], [OPAQUE]]
        return cls(
            Units.build([*specials, *(list("".join(word.split())) for word in rest)]),
            Units.build([*specials, *(list(_tokens(word)) for word in rest)]),
        )

    def to(self, device: torch.device) -> "CharacterTable":
        return CharacterTable(self.characters.to(device), self.tokens.to(device))


def _tokens(word: str) -> Iterable[str]:
    """Punctuation at the end of a word, or else at its beginning, stands alone, as sacreBLEU has it."""
    for part in word.split():
        if len(part) > 1 and part[-1] in punctuation:
            yield from (part[:-1], part[-1])
        elif len(part) > 1 and part[0] in punctuation:
            yield from (part[0], part[1:])
        else:
            yield part
