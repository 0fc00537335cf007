"""What a model does with a source: greedy search, beam and samples, the probability of each word, the attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import torch
from torch import Tensor

from seqmixer.data import Split, in_order
from seqmixer.data.captions import plain
from seqmixer.decoding import beam_search, deployed, free, generate, greedy, read, sampler, shift, without_unk
from seqmixer.errors import ConfigError, DataError
from seqmixer.evaluation import device_of
from seqmixer.runs import Run
from seqmixer.runs.inference import chunks
from seqmixer.types import EOS, PAD, UNK, Batch, Reward, Rollout


@dataclass(frozen=True)
class Searches:
    """The searches beside greedy search."""

    beam: int = 1  # hypotheses of the beam search; 1: none
    length_penalty: float = 0.0
    samples: int = 0
    temperature: float = 1.0
    attention: bool = True

    def __post_init__(self) -> None:
        for name, value, least in (("beam", self.beam, 1), ("samples", self.samples, 0)):
            if value < least:
                raise ConfigError(f"{name} = {value}; the least is {least}")
        if self.temperature < 0.01:
            raise ConfigError(f"temperature = {self.temperature:g}; the least is 0.01")


GREEDY = Searches()


@dataclass(frozen=True)
class Hypothesis:
    """One sentence of the model."""

    text: str
    words: list[str]  # of the model, the end of the sentence included where the model wrote it
    probabilities: list[float]  # of each word after those before it
    log_prob: float  # of the sentence
    attention: list[list[float]] | None = None  # to each word of the source, a row for each word
    reward: float | None = None  # against the reference, if there is one


@dataclass(frozen=True)
class Explanation:
    """What a model does with one source."""

    source: str
    words: list[str]  # the source as the model reads it, its end included; empty where it is no text
    unknown: list[bool]  # of each word of the source: not in the vocabulary, all such words are one to the model
    greedy: Hypothesis
    beam: list[Hypothesis]  # best first
    samples: list[Hypothesis]


def explain(
    run: Run,
    sources: Sequence[str] | Tensor,
    searches: Searches = GREEDY,
    references: Sequence[str | None] | None = None,
    reward: Reward | None = None,
) -> list[Explanation]:
    """What the model of a run does with lines of text, or with image features (n, D), in one batch.

    With a `reward`, each sentence is compared with the reference of its source, where that has one.
    """
    ((names, split),) = chunks(run, sources, len(sources))
    if run.source_vocab and not all(name.strip() for name in names):
        raise DataError("the source is empty; give it at least one word")
    wanted = references or [None] * len(names)
    (batch,) = in_order(compared(run, names, split, wanted), len(names), run.dimensions.length)
    batch = batch.to(device_of(run.model))
    words = searched(run, batch.source, searches)  # (B, K, T)
    K = words.shape[1]
    flat = words.flatten(0, 1)  # (B K, T)
    log_p, attention = followed(run, batch.source, flat, searches.attention)
    rewards = rewarded(batch, words, wanted, reward)
    explained = []
    for i, (name, ids) in enumerate(zip(names, split.sources, strict=True)):
        read_words, unknown = words_read(run, name, ids)
        found = [
            hypothesis(
                run,
                flat[row],
                log_p[row],
                None if attention is None else attention[row, :, : len(ids)],
                rewards.get(row),
            )
            for row in range(i * K, (i + 1) * K)
            if flat[row, 0] != PAD  # a small vocabulary may not have as many sentences as asked for
        ]
        first, others = found[0], found[1:]
        drawn = len(others) - searches.samples
        explained.append(Explanation(name, read_words, unknown, first, others[:drawn], others[drawn:]))
    return explained


def explain_one(run: Run, source: str | Tensor, reference: str | None, searches: Searches) -> Explanation:
    """With a reference, each sentence has the reward of the run's first metric."""
    reward = None if reference is None else run.metrics(run.task())[0].reward
    sources = [source] if isinstance(source, str) else source.unsqueeze(0)  # (1, D)
    return explain(run, sources, searches, [reference], reward)[0]


def compared(run: Run, names: Sequence[str], split: Split, references: Sequence[str | None]) -> Split:
    """The same sources with these references."""
    read = plain if run.dimensions.features and not run.config.text.raw else str
    texts = [read(text or "") for text in references]
    meta = [{"source": name, "references": [text]} for name, text in zip(names, texts, strict=True)]
    return Split(split.sources, [[ids] for ids in run.target_vocab.encode_all(texts)], meta)


def searched(run: Run, source: Tensor, searches: Searches) -> Tensor:
    """Greedy search, then the beam, then the samples.  -> (B, K, T)

    Not by the captured programs of `fast`: each size of a batch would be one more of them.
    """
    T, unk = run.dimensions.length, run.config.evaluation.unk
    best, drawing = (c if unk else without_unk(c) for c in (greedy, sampler(searches.temperature, None)))
    found = [generate(run.model, source, *free(source, T), best).unsqueeze(1)]
    if searches.beam > 1:
        hypotheses = beam_search(run.model, source, T, searches.beam, searches.length_penalty, unk)
        found.append(hypotheses.words.masked_fill(hypotheses.log_prob.isinf().unsqueeze(-1), PAD))
    if searches.samples:
        given, keep = free(source.repeat_interleave(searches.samples, 0), T)
        drawn = generate(run.model, source, given, keep, drawing)
        found.append(drawn.view(len(source), searches.samples, T))
    return torch.cat(found, 1)


def rewarded(batch: Batch, words: Tensor, references: Sequence[str | None], reward: Reward | None) -> dict[int, float]:
    """The reward of each row of words (B K, T) whose source has a reference."""
    K = words.shape[1]
    rows = [i * K + k for i, text in enumerate(references) if text for k in range(K)]
    if reward is None or not rows:
        return {}
    every, at = batch.repeat(K).rollout(words.flatten(0, 1)), torch.tensor(rows, device=words.device)
    chosen = Rollout(
        every.words[at],
        every.references[at],
        0,
        batch.source.repeat_interleave(K, 0)[at],
        [every.meta[row] for row in rows],
    )
    return dict(zip(rows, reward(chosen).tolist(), strict=True))


@torch.no_grad()
def followed(run: Run, source: Tensor, words: Tensor, attentive: bool) -> tuple[Tensor, Tensor | None]:
    """log p of each word of k sentences for each source, and the attention.  -> (B k, T), (B k, T, N)"""
    model = run.model
    with deployed(model):
        context = read(model, source, len(words))
        inputs = shift(words)
        log_p = model.log_prob(model.unroll(inputs, context), words)
        return log_p, model.attention(inputs, context) if attentive else None


def words_read(run: Run, source: str, ids: list[int] | Tensor) -> tuple[list[str], list[bool]]:
    """The words of a source, and which of them are unknown: by the text where each of its words is one id."""
    if run.source_vocab is None or isinstance(ids, Tensor):
        return [], []
    written = [*run.source_vocab.words_of(source), run.source_vocab.words[EOS]]
    names = written if len(written) == len(ids) else [run.source_vocab.words[i] for i in ids]
    return names, [i == UNK for i in ids]


def unknown_words(run: Run, source: str) -> list[str]:
    """The words of a line that are not in the vocabulary, each once."""
    (((name,), split),) = chunks(run, [source], 1)
    return list(dict.fromkeys(compress(*words_read(run, name, split.sources[0]))))


def hypothesis(run: Run, words: Tensor, log_p: Tensor, attention: Tensor | None, reward: float | None) -> Hypothesis:
    """(T,), (T,), (T, N)"""
    length = int((words != PAD).sum())
    ids, log_p = words[:length].tolist(), log_p[:length].double()
    return Hypothesis(
        text=run.target_vocab.decode(ids),
        words=[run.target_vocab.words[i] for i in ids],
        probabilities=log_p.exp().tolist(),
        log_prob=float(log_p.sum()),
        attention=None if attention is None else attention[:length].tolist(),
        reward=reward,
    )
