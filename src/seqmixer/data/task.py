"""What every reader of data returns: three splits of encoded sentences and the vocabularies that encoded them."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from seqmixer.data.vocab import Vocab
from seqmixer.types import Meta


@dataclass(frozen=True)
class Split:
    """Encoded sentences, uncropped: the batches crop them at T."""

    sources: Sequence[list[int]] | Tensor  # n lists of word ids that end in EOS; or (n, D) image features
    references: Sequence[list[list[int]]]  # n lists of at least one reference, each ending in EOS
    meta: Sequence[Meta]  # n: "source" and "references" as text

    def __len__(self) -> int:
        return len(self.references)


@dataclass(frozen=True)
class Task:
    """A data set ready to train on."""

    name: str
    train: Split
    valid: Split
    test: Split
    source_vocab: Vocab | None  # None where the context is an image, or nothing
    target_vocab: Vocab
    length: int  # T: how many words, EOS included, a target may have before it is cropped

    @property
    def features(self) -> int | None:
        """D, the number of image features; None where the context is text, or nothing."""
        sources = self.train.sources
        return sources.shape[1] if isinstance(sources, Tensor) else None
