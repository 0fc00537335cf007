"""What every reader of data returns: three splits of encoded sentences and the vocabularies that encoded them."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from torch import Tensor

from seqmixer.data.files import collector_paused
from seqmixer.data.vocab import Vocabulary
from seqmixer.types import EOS, UNK, Meta

Row = TypeVar("Row")


class Deferred(Sequence[Row], Generic[Row]):
    """Rows that are made when the first is read: to score a test split, the training text is not encoded."""

    def __init__(self, length: int, make: Callable[[], Sequence[Row]]) -> None:
        self.length, self.make = length, make

    @cached_property
    def rows(self) -> Sequence[Row]:
        with collector_paused():
            return self.make()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: Any) -> Any:
        return self.rows[i]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __eq__(self, other: object) -> bool:
        return self.rows == other


@dataclass(frozen=True)
class Split:
    """Encoded sentences, uncropped: the batches crop them at T."""

    sources: Sequence[list[int]] | Tensor  # n lists of word ids that end in EOS; or (n, D) image features
    references: Sequence[list[list[int]]]  # n lists of at least one reference, each ending in EOS
    meta: Sequence[Meta]  # n: "source" and "references" as text

    def __len__(self) -> int:
        return len(self.references)

    def __repr__(self) -> str:
        return f"Split({len(self):,} examples)"

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same text, references and features in the same order, and for no others."""
        digest = hashlib.sha256()
        for meta in self.meta:
            digest.update(json.dumps([meta["source"], meta["references"]], ensure_ascii=False).encode("utf-8"))
        if isinstance(self.sources, Tensor):
            digest.update(self.sources.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def unknown_shares(self) -> dict[str, float]:
        """The share of UNK among the words of targets, and of sources where they are text; EOS does not count."""
        sides = {"target": [reference for references in self.references for reference in references]}
        if not isinstance(self.sources, Tensor):
            sides["source"] = list(self.sources)
        return {
            side: sum(row.count(UNK) for row in rows) / max(sum(len(row) - row.count(EOS) for row in rows), 1)
            for side, rows in sides.items()
        }


@dataclass(frozen=True)
class Task:
    """A data set ready to train on."""

    name: str
    train: Split
    valid: Split
    test: Split
    source_vocab: Vocabulary | None  # None where the context is an image, or nothing
    target_vocab: Vocabulary
    length: int  # T: how many words, EOS included, a target may have before it is cropped

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(split):,}" for split in self.splits.values())
        return f"Task({self.name!r}: {sizes} examples, {len(self.target_vocab):,} target words, T = {self.length})"

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @property
    def features(self) -> int | None:
        """D, the number of image features; None where the context is text, or nothing."""
        sources = self.train.sources
        return sources.shape[1] if isinstance(sources, Tensor) else None
