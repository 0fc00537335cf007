"""IWSLT 2014 German-English from de-en.tgz, prepared as the paper's released code does it (Sec. 4.2)."""

import re
from pathlib import Path

from seqmixer.data.files import split_lines
from seqmixer.data.prepare.cleaning import ANY, Limits, clean
from seqmixer.data.prepare.corpus import Pair, TextCorpus
from seqmixer.data.prepare.moses import tokenised
from seqmixer.data.prepare.reading import aligned, read_named

LANGUAGES = ("de", "en")
TRAIN = "train.tags.de-en"
TEST = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")  # 6,750 pairs, in this order
LIMITS = Limits(max_words=50, ratio=1.5)
EVERY = 23  # of the cleaned training pairs, every 23rd is for validation
PUBLISHED = {"train": 153_000, "valid": 6_969, "test": 6_750}


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
        published=PUBLISHED,
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
