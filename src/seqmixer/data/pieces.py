"""The tokens of a pretrained tokenizer as the words of a task. Needs the extra: pip install seqmixer[hf]."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from seqmixer.data.text import Vocabs
from seqmixer.data.vocab import SPECIALS, Vocabulary, spoken
from seqmixer.errors import ConfigError, missing_extra
from seqmixer.files import foreign
from seqmixer.types import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tokens = list[list[int]]  # ids of the tokenizer, or of seqmixer
Tokenize = Callable[["PreTrainedTokenizerBase", Sequence[str], int | None], Tokens]  # the last: where to crop


@dataclass(frozen=True)
class Pieces(Vocabulary):
    """PAD, BOS, EOS and UNK first, then the tokenizer's other tokens in their order. Two are equal if they read alike.

    Special tokens other than the four ("<mask>", "<extra_id_0>", "eng_Latn") are words that spell nothing.
    """

    tokenizer: "PreTrainedTokenizerBase" = field(repr=False, compare=False)
    ids: tuple[int, ...] = field(repr=False)  # the tokenizer's id of each word; shared with EOS where it has none
    words: tuple[str, ...] = field(repr=False)
    tokenize: Tokenize  # what the tokenizer is asked for
    tidy: Callable[[list[int]], list[int]]  # what is done with the words of a sentence
    prefix: str = ""  # stands before each sentence
    suffix: str = ""  # stands after each sentence, also after one that is cropped
    limit: int | None = None  # how many words a sentence may have, before it is cropped

    @cached_property
    def own(self) -> dict[int, int]:
        """The word of each id of the tokenizer."""
        named = {self.ids[PAD]: PAD, self.ids[UNK]: UNK, self.ids[EOS]: EOS}  # where they share an id, EOS it is
        return {token: word for word, token in enumerate(self.ids) if word > UNK} | named

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        own = self.own
        tokens = self.tokenize(self.tokenizer, [self.prefix + text for text in texts], self.limit) if texts else []
        after = self.tokenizer(self.suffix, add_special_tokens=False).input_ids if self.suffix else []
        return [[*self.tidy([own[token] for token in row]), *(own[token] for token in after)] for row in tokens]

    def decode(self, ids: Iterable[int]) -> str:
        """The text up to the first EOS or PAD, put together by the tokenizer; one line with single spaces."""
        text: str = self.tokenizer.decode([self.ids[i] for i in spoken(ids)], skip_special_tokens=True)
        return " ".join(text.split())

    def save(self, path: Path) -> None:
        """A folder that `tokenizer_vocabs` reads, and transformers too."""
        self.tokenizer.save_pretrained(path)


def as_source(words: list[int]) -> list[int]:
    """What an encoder reads, with the ends that its tokenizer puts around it. Padding in a text is no word of it."""
    return [word for word in words if word != PAD]


def as_prompt(words: list[int]) -> list[int]:
    """The prompt of a decoder: it does not end, and is not empty.

    >>> as_prompt([7, 8, EOS]), as_prompt([])
    ([7, 8], [1])
    """
    kept = as_source(words)
    return (kept[:-1] if kept and kept[-1] == EOS else kept) or [BOS]


def as_target(words: list[int]) -> list[int]:
    """A target: it ends once, in EOS.

    >>> as_target([7, EOS, 8]), as_target([7, 8, EOS])
    ([7, 8, 2], [7, 8, 2])
    """
    return [*(word for word in words if word not in (PAD, EOS)), EOS]


def tokenizer_vocabs(
    path: str, *, encoder: bool, source: bool = True, prefix: str = "", suffix: str = "", limit: int | None = None
) -> Vocabs:
    """The vocabularies of the sources and of the targets of a pretrained model.

    Args:
        path: a folder, or a name of the hub.
        encoder: whether the source is read by an encoder; else it is a prompt that the target continues.
        source: whether the data has a source.
        prefix: put before each source.
        suffix: put after each prompt.
        limit: how many tokens a source may have, before the tokenizer crops it.
    """
    if encoder and suffix:
        raise ConfigError(f"data.suffix = {suffix!r} stands between a prompt and its target; {path!r} has an encoder")
    tokenizer = read_tokenizer(path)
    ids = token_ids(tokenizer, path)
    words = spelling(tokenizer, ids)
    sources = Pieces(tokenizer, ids, words, source_tokens, as_source if encoder else as_prompt, prefix, suffix, limit)
    targets = Pieces(tokenizer, ids, words, target_tokens if encoder else continuation_tokens, as_target)
    return sources if source else None, targets


def source_tokens(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], limit: int | None) -> Tokens:
    return tokenizer(texts, truncation=limit is not None, max_length=limit, verbose=False).input_ids


def target_tokens(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], limit: int | None) -> Tokens:
    """Some tokenizers read the two languages differently (Marian), or put a language first (NLLB)."""
    return tokenizer(text_target=texts, truncation=limit is not None, max_length=limit, verbose=False).input_ids


def continuation_tokens(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], limit: int | None) -> Tokens:
    """Text that continues a prompt: nothing is put around it, and its first piece is one that begins a word.

    Byte-level tokenizers have such pieces only after a space; others put one there by themselves.
    """
    if tokenizer.tokenize(" a")[0].startswith("Ġ"):
        texts = [f" {text.lstrip()}" for text in texts]
    cut = limit is not None
    return tokenizer(texts, add_special_tokens=False, truncation=cut, max_length=limit, verbose=False).input_ids


def read_tokenizer(path: str) -> "PreTrainedTokenizerBase":
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise missing_extra("a tokenizer of Hugging Face needs transformers", "hf") from None
    with foreign(path, f"model.path = {path!r} has no tokenizer that can be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        for limit in (None, 8):
            tokenizer.decode(source_tokens(tokenizer, ["a"], limit)[0])  # some errors come only in use
    return tokenizer


def token_ids(tokenizer: "PreTrainedTokenizerBase", path: str) -> tuple[int, ...]:
    """The tokenizer's id of each word: of PAD, BOS, EOS and UNK, then all others in order."""
    end: int | None = tokenizer.eos_token_id
    if end is None:
        raise ConfigError(
            f"model.path = {path!r}: the tokenizer has no eos_token, so that no sentence can end; set one"
        )
    begin, pad, unknown = (
        end if token is None else token
        for token in (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
    )
    rest = sorted(set(tokenizer.get_vocab().values()) - {pad, end, unknown})
    return pad, begin, end, unknown, *rest


def spelling(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> tuple[str, ...]:
    rest = list(ids[UNK + 1 :])
    special = set(tokenizer.all_special_ids)
    tokens: list[str] = tokenizer.convert_ids_to_tokens(rest)
    return SPECIALS + tuple("" if token in special else word for token, word in zip(rest, tokens, strict=True))
