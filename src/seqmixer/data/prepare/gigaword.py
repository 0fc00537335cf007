"""Gigaword headlines from the `sumdata` layout of Rush et al. (2015), in the sizes of the paper (Sec. 4.1).

The text is tokenised and has its digits as # already. The paper's 22,259 test pairs are not the 1,951 of Giga/, which
others report on; so valid and test are both drawn from the validation files, and Giga/ is kept as a set of its own.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from seqmixer.data.prepare.cleaning import ANY, clean
from seqmixer.data.prepare.corpus import Pair, TextCorpus
from seqmixer.data.prepare.reading import find, read_columns
from seqmixer.data.prepare.sampling import draw

PUBLISHED = {"train": 179_414, "valid": 22_568, "test": 22_259}
FILES = {
    "train": ("train/train.article.txt", "train/train.title.txt"),
    "held out": ("train/valid.article.filter.txt", "train/valid.title.filter.txt"),
    "giga": ("Giga/input.txt", "Giga/task1_ref0.txt"),
}


def gigaword(folder: Path, sizes: Mapping[str, int] = PUBLISHED, seed: int = 1) -> TextCorpus:
    """Draw train from the training files, valid and test from the validation files, and keep Giga/ whole."""
    kept, dropped = {}, {}
    for part, names in FILES.items():
        kept[part], dropped[part] = clean(pairs(folder, names), ANY)
    train = draw(len(kept["train"]), {"train": sizes["train"]}, seed, f"pairs of {FILES['train'][0]}")
    held_out = {split: sizes[split] for split in ("valid", "test")}
    samples = draw(len(kept["held out"]), held_out, seed, f"pairs of {FILES['held out'][0]}")
    return TextCorpus(
        name="gigaword",
        suffixes=("src", "tgt"),
        splits={
            "train": [kept["train"][i] for i in train["train"]],
            **{split: [kept["held out"][i] for i in sample] for split, sample in samples.items()},
            "giga": kept["giga"],
        },
        dropped=dropped,
        published={**PUBLISHED, "giga": 1_951},
    )


def pairs(folder: Path, names: tuple[str, str]) -> list[Pair]:
    articles, titles = read_columns([find(folder, name) for name in names])
    return [(normal(article), normal(title)) for article, title in zip(articles, titles, strict=True)]


def normal(line: str) -> str:
    """Lower case; the unknown words of Giga/, written UNK there, as everywhere else.

    >>> normal("Japan 's UNK  corp. said")
    "japan 's <unk> corp. said"
    """
    return " ".join(re.sub(r"\bUNK\b", "<unk>", line).lower().split())
