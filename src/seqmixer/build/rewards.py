"""[reward] and evaluation.metric to functions of sentences."""

from functools import partial
from pathlib import Path

from seqmixer.config import Config
from seqmixer.data import Task
from seqmixer.errors import ConfigError, unknown
from seqmixer.rewards import (
    METRICS,
    CharacterTable,
    DocumentFrequencies,
    Merges,
    Metric,
    as_reward,
    best_sentence_bleu,
    checked,
    chrf_metric,
    cider_d,
    cider_metric,
    detect,
    from_path,
    metric_on_whole_words,
    on_text,
    on_whole_words,
    on_words,
    parse,
    rouge2_recall,
    sentence_bleu,
    weighted,
    with_end,
)
from seqmixer.types import Reward

NAMES = [*METRICS, "cider", "chrf"]  # of metrics; each is a reward, too
RELEASED = {"bleu": sentence_bleu, "bleu_best": best_sentence_bleu, "rouge2": rouge2_recall}  # rules of their own


def build_reward(config: Config, task: Task, folder: Path | None = None) -> Reward:
    """What training pays: a reward, or a weighted sum of some. `folder` is where what it counts beforehand is kept."""
    terms = [(weight, named_reward(name, config, task, folder)) for weight, name in parse(config.reward.name)]
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else weighted(terms)


def build_metric(config: Config, task: Task, folder: Path | None = None) -> Metric:
    """What is reported, and picks the best model."""
    if config.evaluation.metric not in NAMES:
        raise unknown("evaluation.metric", config.evaluation.metric, NAMES)
    return named_metric(config.evaluation.metric, config, task, folder)


def named_reward(name: str, config: Config, task: Task, folder: Path | None) -> Reward:
    merges = pieces(config, task)
    if name in METRICS:
        reward = RELEASED.get(name) or as_reward(METRICS[name])
        if config.reward.eos:
            reward = with_end(reward)
        return on_whole_words(reward, merges) if merges else reward
    python = ":" in name or "." in name
    if config.reward.eos and (python or name in NAMES):
        known = ", ".join(METRICS)
        raise ConfigError(f"reward.eos = true is for rewards that count words ({known}), not for {name!r}")
    match name:
        case "cider":
            return cider_d(document_frequencies(task, merges, folder))
        case path if python:
            function, decode = from_path(path), task.target_vocab.decode
            made = partial(on_text, decode=decode) if config.reward.on == "text" else on_words
            return checked(made(function, workers=config.reward.workers, seconds=config.reward.seconds), path, decode)
        case other:
            return as_reward(named_metric(other, config, task, folder))


def named_metric(name: str, config: Config, task: Task, folder: Path | None) -> Metric:
    merges = pieces(config, task)
    match name:
        case "cider":
            return cider_metric(document_frequencies(task, merges, folder))
        case "chrf":
            return chrf_metric(merges.characters if merges else CharacterTable.build(task.target_vocab.words))
        case other if other in METRICS:
            return metric_on_whole_words(METRICS[other], merges) if merges else METRICS[other]
        case other:
            raise unknown("reward", other, [*NAMES, "module:function"])


def pieces(config: Config, task: Task) -> Merges | None:
    """How pieces of words are merged before they are counted; None where words are whole, or pieces are counted."""
    style = detect(task.target_vocab.words) if config.evaluation.unit == "words" else None
    return Merges.of(task.target_vocab.words, style) if style else None


def document_frequencies(task: Task, merges: Merges | None, folder: Path | None) -> DocumentFrequencies:
    """CIDEr-D's, of the training references; kept in the run folder if there is one."""
    if merges:
        raise ConfigError("cider counts the words of the vocabulary, which are pieces; set evaluation.unit = 'pieces'")
    if folder is None:
        return DocumentFrequencies.build(task.train.references)
    return DocumentFrequencies.cached(folder / "cider.safetensors", task.train.references)
