"""Parallel text from its official files: IWSLT14 and Gigaword as the paper has them, Multi30k, and any two files.

IWSLT 2014 German-English comes as de-en.tgz, and is prepared as the paper's released code does it (Sec. 4.2).

Gigaword headlines come in the `sumdata` layout of Rush et al. (2015), tokenised and with digits as # already; the sizes
are the paper's (Sec. 4.1). Its 22,259 test pairs are not the 1,951 of Giga/, which others report on; so valid and test
are both drawn from the validation files, and Giga/ is kept as a set of its own.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from seqmixer.data.cards import listed
from seqmixer.data.files import split_lines
from seqmixer.data.prepare.corpus import ANY, Limits, Pair, TextCorpus, clean, draw, tokenised
from seqmixer.data.prepare.reading import aligned, find, read_columns, read_named

LANGUAGES = ("de", "en")
TRAIN = "train.tags.de-en"
TEST = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")  # 6,750 pairs, in this order
LIMITS = Limits(max_words=50, ratio=1.5)
EVERY = 23  # of the cleaned training pairs, every 23rd is for validation
IWSLT14_SIZES = {"train": 153_000, "valid": 6_969, "test": 6_750}


def iwslt14(place: Path) -> TextCorpus:
    """Read de-en.tgz, or the folder de-en that it unpacks to."""
    names = [f"{TRAIN}.{language}" for language in LANGUAGES]
    names += [f"IWSLT14.{part}.de-en.{language}.xml" for part in TEST for language in LANGUAGES]
    texts = read_named(place, "de-en.tgz", "de-en", names)

    tagged = [(f"{place}: {TRAIN}.{language}", untagged(texts[f"{TRAIN}.{language}"])) for language in LANGUAGES]
    pairs, dropped = clean(words(tagged, "training text"), LIMITS)
    segments = [
        [(f"{place}: {name}", segmented(texts[name])) for name in (f"IWSLT14.{part}.de-en.{x}.xml" for x in LANGUAGES)]
        for part in TEST
    ]
    test, dropped_test = clean([pair for columns in segments for pair in words(columns, "test text")], ANY)
    return TextCorpus(
        name="iwslt14",
        suffixes=LANGUAGES,
        splits={
            "train": [pair for number, pair in enumerate(pairs, 1) if number % EVERY],
            "valid": pairs[EVERY - 1 :: EVERY],
            "test": test,
        },
        dropped={"train and valid": dropped, "test": dropped_test},
        published=IWSLT14_SIZES,
    )


def untagged(text: str) -> list[str]:
    """The sentences of train.tags: lines about the talk go, its title and description stay as sentences."""
    lines = [line for line in split_lines(text) if not re.search("<url>|<talkid>|<keywords>", line)]
    return [re.sub("</?(?:title|description)>", "", line) for line in lines]


def segmented(text: str) -> list[str]:
    """The sentences of an .xml file, one `<seg>` a line. Their curly apostrophes become straight ones.

    >>> segmented('<doc>\\n<seg id="1"> We’re here. </seg>\\n</doc>')
    ["We're here."]
    """
    lines = [line for line in split_lines(text) if "<seg id" in line]
    return [re.sub(r'<seg id="[0-9]*">\s*|\s*</seg>\s*', "", line).replace("’", "'") for line in lines]


def words(columns: list[tuple[str, list[str]]], label: str) -> list[Pair]:
    """Aligned German and English lines as pairs of tokenised sentences."""
    sides = zip(LANGUAGES, aligned(columns), strict=True)
    german, english = (tokenised(lines, language, f"{label}, {language}") for language, lines in sides)
    return list(zip(german, english, strict=True))


GIGAWORD_SIZES = {"train": 179_414, "valid": 22_568, "test": 22_259}
GIGAWORD = {
    "train": ("train/train.article.txt", "train/train.title.txt"),
    "held out": ("train/valid.article.filter.txt", "train/valid.title.filter.txt"),
    "giga": ("Giga/input.txt", "Giga/task1_ref0.txt"),
}


def gigaword(folder: Path, sizes: Mapping[str, int] = GIGAWORD_SIZES, seed: int = 1) -> TextCorpus:
    """Draw train from the training files, valid and test from the validation files, and keep all of Giga/."""
    kept, dropped = {}, {}
    for part, names in GIGAWORD.items():
        kept[part], dropped[part] = clean(headlines(folder, names), ANY)
    train = draw(len(kept["train"]), {"train": sizes["train"]}, seed, f"pairs of {GIGAWORD['train'][0]}")
    held_out = {split: sizes[split] for split in ("valid", "test")}
    samples = draw(len(kept["held out"]), held_out, seed, f"pairs of {GIGAWORD['held out'][0]}")
    return TextCorpus(
        name="gigaword",
        suffixes=("src", "tgt"),
        splits={
            "train": [kept["train"][i] for i in train["train"]],
            **{split: [kept["held out"][i] for i in sample] for split, sample in samples.items()},
            "giga": kept["giga"],
        },
        dropped=dropped,
        published={**GIGAWORD_SIZES, "giga": 1_951},
    )


def headlines(folder: Path, names: tuple[str, str]) -> list[Pair]:
    articles, titles = read_columns([find(folder, name) for name in names])
    return [(normal(article), normal(title)) for article, title in zip(articles, titles, strict=True)]


def normal(line: str) -> str:
    """Lower case; the unknown words of Giga/, written UNK there, as everywhere else.

    >>> normal("Japan 's UNK  corp. said")
    "japan 's <unk> corp. said"
    """
    return " ".join(re.sub(r"\bUNK\b", "<unk>", line).lower().split())


MULTI30K = {
    "train": ("train",),
    "valid": ("val",),
    "test": ("test_2016_flickr", "test2016", "test"),
}  # by release


def multi30k(folder: Path, source: str = "de", target: str = "en") -> TextCorpus:
    """Tokenise and lower-case the three splits; the test is that of 2016."""
    splits, dropped = {}, {}
    for split, names in MULTI30K.items():
        paths = [find(folder, *(f"{name}.{language}" for name in names)) for language in (source, target)]
        columns = zip((source, target), read_columns(paths), strict=True)
        sides = [tokenised(lines, language, f"{split}, {language}") for language, lines in columns]
        splits[split], dropped[split] = clean(zip(*sides, strict=True), ANY)
    return TextCorpus("multi30k", (source, target), splits, dropped, published={})


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
