"""Multi30k, task 1: descriptions of images in two languages, from the raw text."""

from pathlib import Path

from seqmixer.data.prepare.cleaning import ANY, clean
from seqmixer.data.prepare.corpus import TextCorpus
from seqmixer.data.prepare.moses import tokenised
from seqmixer.data.prepare.reading import find, read_columns

FILES = {
    "train": ("train",),
    "valid": ("val",),
    "test": ("test_2016_flickr", "test2016", "test"),
}  # by release


def multi30k(folder: Path, source: str = "de", target: str = "en") -> TextCorpus:
    """Tokenise and lower-case the three splits; the test is that of 2016."""
    splits, dropped = {}, {}
    for split, names in FILES.items():
        paths = [find(folder, *(f"{name}.{language}" for name in names)) for language in (source, target)]
        columns = zip((source, target), read_columns(paths), strict=True)
        sides = [tokenised(lines, language, f"{split}, {language}") for language, lines in columns]
        splits[split], dropped[split] = clean(zip(*sides, strict=True), ANY)
    return TextCorpus("multi30k", (source, target), splits, dropped, published={})
