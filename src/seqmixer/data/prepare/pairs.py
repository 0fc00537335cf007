"""Any pair of aligned files: cleaned, and cut into splits by seed."""

from pathlib import Path

from seqmixer.data.cards import listed
from seqmixer.data.prepare.cleaning import Limits, clean
from seqmixer.data.prepare.corpus import TextCorpus
from seqmixer.data.prepare.moses import tokenised
from seqmixer.data.prepare.reading import read_columns
from seqmixer.data.prepare.sampling import draw


def pairs(
    source: Path,
    target: Path,
    *,
    languages: tuple[str, str] | None,
    limits: Limits,
    valid: int,
    test: int,
    seed: int = 1,
) -> TextCorpus:
    """Clean two aligned files, draw so many pairs for valid and test, and keep the rest for training.

    `languages` are those of Moses' tokeniser, after which all is lower case; None: the words are kept as they are.
    """
    columns = read_columns([source, target])
    if languages is None:
        sides = [[" ".join(line.split()) for line in lines] for lines in columns]
    else:
        sides = [tokenised(lines, name, name) for name, lines in zip(languages, columns, strict=True)]
    kept, dropped = clean(zip(*sides, strict=True), limits)
    where = f"pairs of {source} and {target}" + (f" (after {listed(dropped)} were dropped)" if dropped else "")
    samples = draw(len(kept), {"valid": valid, "test": test}, seed, where)
    held_out = {*samples["valid"], *samples["test"]}
    return TextCorpus(
        name="pairs",
        suffixes=("src", "tgt") if languages is None or languages[0] == languages[1] else languages,
        splits={
            "train": [pair for i, pair in enumerate(kept) if i not in held_out],
            **{split: [kept[i] for i in sample] for split, sample in samples.items()},
        },
        dropped={"all": dropped},
        published={},
    )
