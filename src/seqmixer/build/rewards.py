"""[reward] and evaluation.metric to functions of sentences."""

from functools import partial
from pathlib import Path

from seqmixer.config import Config, RewardConfig
from seqmixer.data import Task
from seqmixer.errors import ConfigError, unknown
from seqmixer.functions import is_path
from seqmixer.rewards import (
    METRICS,
    CharacterTable,
    DocumentFrequencies,
    Merges,
    Metric,
    as_reward,
    best_sentence_bleu,
    chrf_metric,
    chrf_plus_plus_metric,
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

NAMES = [*METRICS, "cider", "chrf", "chrf++"]  # of metrics; each is a reward, too
RELEASED = {"bleu": sentence_bleu, "bleu_best": best_sentence_bleu, "rouge2": rouge2_recall}  # rules of their own


def build_reward(config: Config, task: Task, folder: Path | None = None) -> Reward:
    """What training pays: a reward, or a weighted sum of some. `folder` is where what it counts beforehand is kept."""
    terms = parse(config.reward.name)
    uncounted = [name for _, name in terms if is_path(name) or (name in NAMES and name not in METRICS)]
    if config.reward.eos and uncounted:
        known = ", ".join(METRICS)
        raise ConfigError(f"reward.eos = true is for rewards that count words ({known}), not for {uncounted[0]!r}")
    paid = [(weight, named_reward(name, config, task, folder)) for weight, name in terms]
    return paid[0][1] if len(paid) == 1 and paid[0][0] == 1 else weighted(paid)


def build_metric(config: Config, task: Task, folder: Path | None = None) -> Metric:
    """What is reported, and picks the best model."""
    if config.evaluation.metric not in NAMES:
        raise unknown("evaluation.metric", config.evaluation.metric, NAMES)
    return named_metric(config.evaluation.metric, config, task, folder)


def named_reward(name: str, config: Config, task: Task, folder: Path | None) -> Reward:
    merges = pieces(config, task)
    if is_path(name):
        return python_reward(name, config.reward, task)
    if name not in METRICS:  # CIDEr-D, chrF, or unknown
        return as_reward(named_metric(name, config, task, folder))
    reward = RELEASED.get(name) or as_reward(METRICS[name])
    reward = with_end(reward) if config.reward.eos else reward
    return on_whole_words(reward, merges) if merges else reward


def python_reward(path: str, config: RewardConfig, task: Task) -> Reward:
    """A function of the user's, on strings or on word ids."""
    made = partial(on_text, decode=task.target_vocab.decode) if config.on == "text" else on_words
    return made(from_path(path), workers=config.workers, seconds=config.seconds)


def named_metric(name: str, config: Config, task: Task, folder: Path | None) -> Metric:
    merges = pieces(config, task)
    match name:
        case "cider":
            return cider_metric(document_frequencies(task, merges, folder))
        case "chrf":
            return chrf_metric(merges.characters if merges else CharacterTable.build(task.target_vocab.words))
        case "chrf++":
            require_words(name, merges)
            return chrf_plus_plus_metric(CharacterTable.build(task.target_vocab.words))
        case other if other in METRICS:
            return metric_on_whole_words(METRICS[other], merges) if merges else METRICS[other]
        case other:
            raise unknown("reward", other, [*NAMES, "module:function"])


def pieces(config: Config, task: Task) -> Merges | None:
    """How pieces of words are merged before they are counted; None where words are whole, or pieces are counted."""
    style = detect(task.target_vocab.words) if config.evaluation.unit == "words" else None
    return Merges.of(task.target_vocab.words, style) if style else None


def require_words(name: str, merges: Merges | None) -> None:
    if merges:
        raise ConfigError(
            f"{name} counts the words of the vocabulary, which are pieces; set evaluation.unit = 'pieces'"
        )


def document_frequencies(task: Task, merges: Merges | None, folder: Path | None) -> DocumentFrequencies:
    """CIDEr-D's, of the training references; kept in the run folder if there is one."""
    require_words("cider", merges)
    if folder is None:
        return DocumentFrequencies.build(task.train.references)
    return DocumentFrequencies.cached(folder / "cider.safetensors", task.train.references)
