"""Pieces of words, merged into whole words before they are counted, on the device and without strings.

The same word can be written in different pieces ("un@@ able" and "una@@ ble"), so merged words are compared by their
characters. Their ids say only which words of one example, hypothesis and references, are equal; all n-gram scores can
count them. Scores that look words up in tables of their own, as CIDEr-D and chrF do, cannot; chrF, which ignores
spaces, needs no merging, only the characters of the pieces: `chrf_metric(merges.characters)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqmixer.errors import DataError
from seqmixer.rewards import ngrams
from seqmixer.rewards.characters import CharacterTable
from seqmixer.rewards.metric import Metric
from seqmixer.rewards.ngrams import ranks, together
from seqmixer.rewards.starting import combined
from seqmixer.types import EOS, PAD, UNK, Reward, Rollout

SHARE = 0.01  # of a vocabulary must be marked: plain text has a stray mark here and there
BITS = 63  # of an int64 that is not negative


class Style(Enum):
    """How a vocabulary marks its pieces."""

    BPE = "@@"  # at the end of a piece that the next one continues: subword-nmt, fastBPE
    SENTENCEPIECE = "▁"  # at the beginning of a piece that begins a word
    BYTES = "Ġ"  # the same in byte-level BPE (GPT-2, BART, Llama 3), whose characters stand for bytes


def detect(words: Sequence[str]) -> Style | None:
    """How this vocabulary marks pieces; None: there are no pieces.

    >>> detect(["<pad>", "<s>", "</s>", "<unk>", "un@@", "believ@@", "able"])
    <Style.BPE: '@@'>
    """
    rest = words[UNK + 1 :]
    marked = {
        Style.BPE: sum(word.endswith(Style.BPE.value) for word in rest),
        Style.SENTENCEPIECE: sum(word.startswith(Style.SENTENCEPIECE.value) for word in rest),
        Style.BYTES: sum(word.startswith(Style.BYTES.value) for word in rest),
    }
    style = max(marked, key=lambda style: marked[style])
    return style if marked[style] > SHARE * len(rest) else None


@dataclass(frozen=True)
class Merges:
    """Which pieces of a vocabulary belong together, and what they spell."""

    characters: CharacterTable  # of the pieces without their marks
    follows: Tensor  # (V,) true for a piece that continues the one before it
    continues: Tensor  # (V,) true for a piece that the next one continues

    @classmethod
    def of(cls, words: Sequence[str], style: Style) -> "Merges":
        """From the pieces of a vocabulary and the way they are marked."""
        mark, start = style.value, UNK + 1
        if style is Style.BPE:
            follows = [False] * len(words)
            continues = [i >= start and word.endswith(mark) for i, word in enumerate(words)]
            spelt = [word.removesuffix(mark) for word in words]
        else:
            follows = [i >= UNK and not word.startswith(mark) for i, word in enumerate(words)]
            continues = [False] * len(words)
            spelt = [word.lstrip(mark) for word in words]
            if style is Style.SENTENCEPIECE:
                _refuse_several_words(spelt[start:], words[start:])
        return cls(CharacterTable.build(spelt), torch.tensor(follows), torch.tensor(continues))

    def to(self, device: torch.device) -> "Merges":
        return Merges(self.characters.to(device), self.follows.to(device), self.continues.to(device))


def whole_words(words: Tensor, references: Tensor, merges: Merges) -> tuple[Tensor, Tensor]:
    """Hypotheses and references of whole words.  (B, T), (B, R, L) -> (B, T), (B, R, L)

    EOS and PAD stay what they are; a word with an unknown piece is UNK; other ids are equal where the words of one
    example are, and mean nothing beyond it. Pieces that spell nothing are dropped. The merges must be on the device of
    the words.

    >>> merges = Merges.of(["<pad>", "<s>", "</s>", "<unk>", "un@@", "una@@", "able", "ble"], Style.BPE)
    >>> whole_words(torch.tensor([[4, 6, 6, 2]]), torch.tensor([[[5, 7, 3, 2]]]), merges)
    (tensor([[6, 7, 2, 0]]), tensor([[[6, 3, 2, 0]]]))
    """
    pieces = together(words, references)  # (B, 1 + R, P)
    inside = ngrams.inside(pieces)
    run = _runs(pieces, merges)  # (B, 1 + R, P) which word of the sentence the piece belongs to
    characters = merges.characters.characters.of(pieces)  # (B, 1 + R, P, C)
    unknown = _summed_at((pieces == UNK) & inside, run, run) > 0  # (B, 1 + R, P) for each run
    ids = _spelt(characters, run, merges.characters.characters.kinds)  # (B, 1 + R, P) for each run; 0: of nothing
    word = torch.where(unknown, UNK, torch.where(ids > 0, UNK + ids, PAD))
    place = ((word != PAD).cumsum(-1) - 1).clamp(min=0)  # closes the gaps
    merged = torch.zeros_like(word).scatter_add(-1, place, word)
    end = (merged != PAD).sum(-1, keepdim=True)  # (B, 1 + R, 1)
    steps = torch.arange(pieces.shape[-1], device=pieces.device)
    ended = (pieces == EOS).any(-1, keepdim=True)  # (B, 1 + R, 1) false for a cropped or missing sentence
    merged = torch.where((steps == end) & ended, EOS, merged)
    return merged[:, 0, : words.shape[1]], merged[:, 1:, : references.shape[2]]


def on_whole_words(reward: Reward, merges: Merges) -> Reward:
    """The same reward, or statistics, of whole words. The sequence is scored with its forced pieces."""
    on = cache(merges.to)  # one copy for each device

    def merged(rollout: Rollout) -> Tensor:
        words, references = whole_words(rollout.words, rollout.references, on(rollout.words.device))
        return reward(replace(rollout, words=words, references=references, start=0))

    return combined(merged, [reward])


def metric_on_whole_words(metric: Metric, merges: Merges) -> Metric:
    """The same metric, on whole words; its signature says so."""
    return replace(
        metric,
        statistics=on_whole_words(metric.statistics, merges),
        sentence=on_whole_words(metric.reward, merges),
        signature=f"{metric.signature}|pieces:merged",
    )


def _refuse_several_words(spelt: Sequence[str], words: Sequence[str]) -> None:
    mark = Style.SENTENCEPIECE.value
    for inside, word in zip(spelt, words, strict=True):
        if mark in inside:
            raise DataError(
                f"piece {word!r} has {mark!r} after its beginning, so it holds more than one word, which cannot be "
                "merged; train sentencepiece with split_by_whitespace=true and treat_whitespace_as_suffix=false"
            )


def _runs(pieces: Tensor, merges: Merges) -> Tensor:
    """The number of each piece's word in its sentence, from 0.  (..., P) -> (..., P)"""
    known = torch.where(pieces < 0, UNK, pieces)
    joined = merges.follows[known][..., 1:] | merges.continues[known][..., :-1]
    return pad((~joined).cumsum(-1), (1, 0))


def _spelt(characters: Tensor, run: Tensor, kinds: int) -> Tensor:
    """Ids from 1 of what each run spells, equal where that is; 0 for a run of no characters.

    A word is cut into chunks of as many characters as fit a number, from its beginning. Chunks get ids by their rank
    among all of the example, then pairs of chunks, then pairs of pairs, until the longest word is covered.

    (B, S, P, C), (B, S, P) -> (B, S, P)
    """
    chunks, first, several, longest = _chunks(characters, run, kinds)
    real = chunks > 0  # (B, S, Q)
    owner = _summed_at(several > 0, first, chunks).cumsum(-1)  # (B, S, Q) the word of each chunk
    size = chunks[0].numel() + 1  # above all ids
    ids = _ranked(chunks) * real  # (B, S, Q)
    span = 1  # chunks that an id speaks for, from its own on
    while span < longest:
        same = pad(owner, (0, span))[..., span:] == owner
        following = pad(ids, (0, span))[..., span:] * same  # 0 past the end of the word
        ids = _ranked(ids * size + following) * real
        span *= 2
    return ids.gather(-1, first) * (several > 0)


def _chunks(characters: Tensor, run: Tensor, kinds: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """The chunks of a sentence's words one after the other, each a number; for each run its first chunk and how many.

    (B, S, P, C), (B, S, P) -> (B, S, Q), (B, S, P), (B, S, P), and the most that a word can have
    """
    pieces, most = characters.shape[-2:]
    bits = kinds.bit_length()
    per = BITS // bits  # characters in a chunk
    counts = (characters > 0).sum(-1)  # (B, S, P) characters of each piece
    length = _summed_at(counts, run, run)  # (B, S, P) of each run
    several = (length + per - 1) // per  # (B, S, P) chunks of each run
    first = several.cumsum(-1) - several
    before = (counts.cumsum(-1) - counts) - (length.cumsum(-1) - length).gather(-1, run)  # (B, S, P) in the same word
    offset = before.unsqueeze(-1) + torch.arange(most, device=run.device)  # (B, S, P, C) in the word
    slots = pieces * most // per + pieces + 1  # Q: a word fills all its chunks but one
    slot = (first.gather(-1, run).unsqueeze(-1) + offset // per).clamp(max=slots - 1)  # (B, S, P, C)
    shifted = characters << bits * (per - 1 - offset % per)
    empty = run.new_zeros(*run.shape[:-1], slots)  # (B, S, Q)
    chunks = empty.scatter_add(-1, slot.flatten(-2), shifted.flatten(-2))  # what is no character adds 0
    return chunks, first, several, -(-pieces * most // per)


def _summed_at(values: Tensor, places: Tensor, like: Tensor) -> Tensor:
    """The sum of the values at each place.  (..., P), (..., P), (..., Q) -> (..., Q)"""
    return torch.zeros_like(like).scatter_add(-1, places, values.to(like))


def _ranked(keys: Tensor) -> Tensor:
    """Ranks from 1 over all the sentences of an example.  (B, S, Q) -> (B, S, Q)"""
    return ranks(keys.flatten(1)).view(keys.shape) + 1
