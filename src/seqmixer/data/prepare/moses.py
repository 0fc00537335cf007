"""Moses' tokeniser by sacremoses, and lower case: what the paper's translation data went through (Sec. 4.2)."""

from collections.abc import Iterable
from functools import cache

from seqmixer.data.prepare.watching import watched
from seqmixer.errors import DataError


def tokenised(lines: Iterable[str], language: str, label: str) -> list[str]:
    """Lines as lower-case words with one space between them, special characters escaped as Moses does.

    >>> tokenised(["It's 3,000 cats & dogs."], "en", "a line")
    ['it &apos;s 3,000 cats &amp; dogs .']
    """
    from sacremoses import MosesTokenizer

    require_known(language)
    tokenizer = MosesTokenizer(lang=language)
    return [" ".join(tokenizer.tokenize(line)).lower() for line in watched(list(lines), label)]


def require_known(language: str) -> None:
    """Moses reads languages that it has no abbreviations for as English; better to know."""
    if language not in languages():
        raise DataError(f"no Moses rules for the language {language!r}; known: {', '.join(languages())}")


@cache
def languages() -> tuple[str, ...]:
    from sacremoses.corpus import NonbreakingPrefixes

    return tuple(sorted(set(NonbreakingPrefixes().available_langs.values())))
