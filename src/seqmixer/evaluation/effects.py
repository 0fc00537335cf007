"""Side effects of training on a metric: repetition, length, unfinished ends of the sentences that a model wrote."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqmixer.data import Table
from seqmixer.decoding import deployed, shift
from seqmixer.losses import entropy
from seqmixer.rewards.ngrams import inside, ranks
from seqmixer.types import EOS, PAD, UNK, SequenceModel, tally

STEPS = 1024  # whose scores of all words are held at a time
LONGEST = 4  # words of an n-gram that repeats the one before it
SELDOM = 0.01  # of the times that references have a word: if it is their last one less often, no sentence ends so


def effects(words: Tensor, table: Table, hesitation: Tensor) -> dict[str, float]:
    """The side effects in the sentences (n, T) for a split. Each name is a row of docs/log.md.

    Args:
        hesitation: (2,) the tally of `hesitation`.
    """
    words = words.to(table.references.words.device)
    there = inside(words)  # (n, T)
    written, sentences = there.sum(), len(words)
    measured = {
        "length_ratio": written / expected_words(table, words.shape[1]),
        "cut": ((words != EOS) & (words != PAD))[:, -1].sum() / sentences,
        "unfinished": unfinished(words, table.references.words).sum() / sentences,
        "repetition": repeating(words).sum() / written.clamp(min=1),
        "repeated_4grams": repeated_4grams(words).sum() / sentences,
        "unk": ((words == UNK) & there).sum() / written.clamp(min=1),
        "distinct_1": distinct(words, 1),
        "distinct_2": distinct(words, 2),
        "entropy": hesitation[0] / hesitation[1].clamp(min=1),
    }
    values = torch.stack([value.float() for value in measured.values()]).tolist()
    return dict(zip(measured, values, strict=True))


@torch.no_grad()
def hesitation(model: SequenceModel, source: Tensor, words: Tensor) -> Tensor:
    """The tally of H(p) in nats over the steps at which the model wrote these words (B, T), EOS included.  -> (2,)"""
    with deployed(model):
        h = model.unroll(shift(words), model.encode(source))[words != PAD]  # (steps, H)
        nats = [entropy(model.scores(some).float()).sum() for some in h.split(STEPS)]
    return tally(torch.stack(nats).sum(), torch.tensor(len(h), device=h.device))


def expected_words(table: Table, length: int) -> Tensor:
    """The words of a sentence's references, cropped at T, their mean, summed over sentences.  -> ()"""
    lengths = (table.references.length - 1).clamp(max=length).double()  # without EOS
    return (lengths / table.count.repeat_interleave(table.count)).sum().clamp(min=1)


def unfinished(words: Tensor, references: Tensor) -> Tensor:
    """Which sentences end with a word that hardly ever ends a reference.  (n, T), (F,) -> (n,)

    These are words with (times it is the last + 1) / (times it is there + 1) < 1/100: nothing is said of rare words.
    """
    kinds = int(torch.maximum(words.max(), references.max())) + 1
    places = references.bincount(minlength=kinds)  # (V,)
    ends = references[:-1][references[1:] == EOS].bincount(minlength=kinds)  # (V,)
    open_ended = (ends + 1) / (places + 1) < SELDOM
    last = (words == EOS).int().argmax(-1, keepdim=True) - 1  # (n, 1) -1: without an end, or without words
    return (open_ended[words.gather(-1, last.clamp(min=0))] & (last >= 0)).squeeze(-1)


def repeating(words: Tensor) -> Tensor:
    """Which words are in an n-gram, n up to 4, that repeats the one right before it: "of a of a".  (n, T) -> (n, T)"""
    there, marked = inside(words), torch.zeros_like(words, dtype=torch.bool)
    for n in range(1, min(LONGEST, words.shape[1] // 2) + 1):
        same = (words[:, n:] == words[:, :-n]) & there[:, n:]  # (n, T - n) word t is word t - n
        again = same.unfold(1, n, 1).all(-1)  # (n, T - 2n + 1) and so are the n words from there
        marked[:, n:] |= pad(again, (n - 1, n - 1)).unfold(1, n, 1).any(-1)
    return marked


def repeated_4grams(words: Tensor) -> Tensor:
    """seq-rep-4 (Welleck et al. 2020): 1 - distinct 4-grams / 4-grams of each sentence.  (n, T) -> (n,)"""
    if words.shape[1] < 4:
        return torch.zeros(len(words), device=words.device)
    pairs = ranks(words[:, :-1] * (words.max() + 1) + words[:, 1:])  # (n, T - 1) ids of bigrams
    grams = pairs[:, :-2] * words.shape[1] + pairs[:, 2:]  # (n, T - 3)
    there = inside(words)[:, 3:]
    grams = grams.masked_fill(~there, -1).sort(-1).values
    again = (grams[:, 1:] == grams[:, :-1]) & (grams[:, 1:] >= 0)
    return again.sum(-1) / there.sum(-1).clamp(min=1)


def distinct(words: Tensor, n: int) -> Tensor:
    """distinct-n (Li et al. 2016): different n-grams / n-grams of all sentences together, n = 1 or 2.  (n, T) -> ()"""
    grams, there = words, inside(words)
    if n == 2:
        grams, there = words[:, :-1] * (words.max() + 1) + words[:, 1:], there[:, 1:]
    return torch.tensor(len(grams[there].unique()), device=words.device) / there.sum().clamp(min=1)


def described(measured: Mapping[str, float]) -> str:
    """The side effects in one line.

    >>> described({"length_ratio": 0.984, "cut": 0.0})
    'length_ratio 0.984  cut 0.000'
    """
    return "  ".join(f"{name} {value:.3f}" for name, value in measured.items())
