"""Rewards of plain text for other trainers: the same counts, in the signature of TRL's reward functions."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count, zip_longest
from typing import Any

import torch
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seqmixer.errors import ConfigError, RewardError, unknown
from seqmixer.rewards.characters import CharacterTable
from seqmixer.rewards.chrf import chrf_metric
from seqmixer.rewards.cider import DocumentFrequencies, cider_metric
from seqmixer.rewards.ending import with_end, with_ends
from seqmixer.rewards.metric import METRICS, Metric
from seqmixer.rewards.readable import READABLE
from seqmixer.rewards.weighted import BUILT_IN, parse, summed_metric
from seqmixer.types import EOS, PAD, UNK, Rollout

TOKENIZE: dict[str, Callable[[str], str]] = {"none": str, "13a": Tokenizer13a()}  # what spaces part; as mteval-v13a
Ids = defaultdict[str, int]


def reward_function(
    name: str,
    *,
    tokenize: str = "none",
    references: str = "references",
    eos: bool = False,
    documents: Iterable[Sequence[str]] | None = None,
) -> Callable[..., list[float]]:
    """A metric as a function of strings: reward(completions, references=[...]) -> one number for each, mostly 0 to 1.

    It has the signature that TRL asks of `reward_funcs`, counts a batch at once, and gives exactly what a run of
    seqmixer with this `reward.name` is rewarded with, where the same words are known.

    Args:
        name: a built-in metric, or a weighted sum: "bleu", "chrf", "0.5*bleu + 0.5*rouge_l".
        tokenize: how text becomes words: "none", by white space, or "13a", sacreBLEU's for raw text.
        references: the column of the data set that has the references, a string or several for each completion.
        eos: count the end of a sentence as a word, as `reward.eos` does.
        documents: for cider, the references of the training data, some for each source.

    >>> reward = reward_function("rouge2_f")
    >>> reward(["the cat sat down"], references=["the cat sat"])
    [0.800000011920929]
    """
    if tokenize not in TOKENIZE:
        raise unknown("tokenize", tokenize, TOKENIZE)
    split = TOKENIZE[tokenize]
    terms = parse(name)
    known = BUILT_IN.keys() - READABLE.keys()  # these are "bleu" with tokenize="13a", and "chrf"
    for _, part in terms:
        if part not in known:
            raise unknown("reward", part, known)
    seen = word_ids()
    counted = [[encoded(split(text).split(), seen) for text in several] for several in documents or ()]
    frequencies = DocumentFrequencies.build(with_ends(counted) if eos else counted) if counted else None
    if frequencies is None and any(part == "cider" for _, part in terms):
        raise ConfigError("cider counts in how many documents n-grams are; give documents=[[reference, ...], ...]")

    def metric(part: str, ids: Ids) -> Metric:
        return with_end(counting(part, ids)) if eos else counting(part, ids)

    def counting(part: str, ids: Ids) -> Metric:
        match part:
            case "cider":
                assert frequencies is not None
                return cider_metric(frequencies)
            case "chrf" | "chrf++":
                return chrf_metric(CharacterTable.build(["<pad>", "<s>", "</s>", "<unk>", *ids]), part)
            case _:
                return METRICS[part]

    def reward(completions: Sequence[Any], prompts: Sequence[Any] | None = None, **columns: Any) -> list[float]:
        if references not in columns:
            there = ", ".join(sorted(columns)) or "none"
            raise RewardError(
                f"reward {name!r} reads the column {references!r}, got the columns: {there}; name yours, references="
            )
        ids = word_ids(seen)  # the words of other batches are not kept
        written = [split(as_text(completion)).split() for completion in completions]
        wanted = [[split(text).split() for text in as_list(value)] for value in columns[references]]
        if len(wanted) != len(written) or not all(wanted):
            raise RewardError(f"reward {name!r}: {len(written)} completions need as many references, got {len(wanted)}")
        rollout = as_rollout(written, wanted, ids)
        return summed_metric(name, lambda part: metric(part, ids)).reward(rollout).tolist()

    reward.__name__ = name  # what TRL's log calls it
    return reward


def as_text(completion: Any) -> str:
    """A completion as text: a string, or the messages of a conversation."""
    return completion if isinstance(completion, str) else " ".join(message["content"] for message in completion)


def as_list(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def word_ids(known: dict[str, int] | None = None) -> Ids:
    """An id for each word: those that are `known`, and the next free one for any other that is asked for."""
    known = known or {}
    return defaultdict(count(max(known.values(), default=UNK) + 1).__next__, known)


def encoded(words: Iterable[str], ids: Ids) -> list[int]:
    return [*(ids[word] for word in words), EOS]


def as_rollout(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]], ids: Ids) -> Rollout:
    """Words as ids: (B, T), and (B, R, L) with all PAD where a sentence has fewer references than others."""
    words = padded(hypotheses, ids)  # (B, T)
    streams = zip_longest(*references)  # R of them
    others = padded([sentence for stream in streams for sentence in stream], ids)  # (R B, L)
    return Rollout(words, others.unflatten(0, (-1, len(words))).transpose(0, 1))


def padded(sentences: Sequence[Sequence[str] | None], ids: Ids) -> Tensor:
    """All sentences, one a row; what is missing is all PAD."""
    tensors = [torch.tensor([PAD] if words is None else encoded(words, ids)) for words in sentences]
    return pad_sequence(tensors, batch_first=True, padding_value=PAD)
