"""What a preparation returns: the splits of a corpus as text, and what was dropped on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from seqmixer.data.captions import Captioned
from seqmixer.errors import DataError

Pair = tuple[str, str]  # a source and its target; words with one space between them
Dropped = Mapping[str, int]  # how many were dropped, by reason


@dataclass(frozen=True)
class TextCorpus:
    """Parallel text in splits: train, valid, test, and any further test set."""

    name: str
    suffixes: Pair  # of the source's and the target's files
    splits: Mapping[str, Sequence[Pair]]
    dropped: Mapping[str, Dropped]  # by split, or by the file that the splits are drawn from
    published: Mapping[str, int]  # what the paper gives as the size of a split

    def __post_init__(self) -> None:
        for split, pairs in self.splits.items():
            if not pairs:
                raise DataError(f"{self.name}: no pairs are left for {split}; dropped: {losses(self.dropped)}")


def losses(dropped: Mapping[str, Dropped]) -> str:
    """What was dropped, in words.

    >>> losses({"train": {"empty": 3, "too long": 1200}, "test": {}})
    '3 empty and 1,200 too long of train, nothing of test'
    """
    parts = {part: " and ".join(f"{count:,} {reason}" for reason, count in dropped[part].items()) for part in dropped}
    return ", ".join(f"{lost or 'nothing'} of {part}" for part, lost in parts.items())


@dataclass(frozen=True)
class CaptionCorpus:
    """Images with captions in splits, and the features of exactly these images."""

    name: str
    images: Sequence[Captioned]
    features: Tensor  # (n, D)
    quantised: bool  # whether they were kept as bytes, and shall be
    dropped: Mapping[str, Dropped]
    published: Mapping[str, int]
