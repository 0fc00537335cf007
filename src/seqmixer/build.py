"""Config to objects: the only file that knows concrete names, and so the table of contents of seqmixer."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from seqmixer import schedules
from seqmixer.algorithms import E2E, Algorithm, Dad, LinearBaseline, Mixer, Reinforce, StepBaseline, Xent
from seqmixer.config import AlgorithmConfig, DataConfig, ModelConfig, RewardConfig
from seqmixer.data import (
    Split,
    Task,
    Vocab,
    VocabLimits,
    Vocabs,
    captions_task,
    read_captions,
    read_features,
    read_pairs,
    text_task,
    toy,
)
from seqmixer.decoding import greedy, sample
from seqmixer.errors import ConfigError
from seqmixer.models import (
    AttentiveEncoder,
    ElmanCell,
    Encoder,
    GRUCell,
    ImageEncoder,
    LSTMCell,
    NoEncoder,
    Recurrent,
    initialise,
)
from seqmixer.rewards import BLEU, ROUGE2, Metric, checked, from_path, on_text, on_words, rouge2_recall, sentence_bleu
from seqmixer.types import Reward


@dataclass(frozen=True)
class Dimensions:
    """What a model must know of its task."""

    length: int  # T
    target_vocab: int  # V
    source_vocab: int | None  # None: no source text
    positions: int | None  # the longest source text seen in training
    features: int | None  # D; None: no image

    @classmethod
    def of(cls, task: Task) -> "Dimensions":
        text = task.source_vocab is not None
        return cls(
            length=task.length,
            target_vocab=len(task.target_vocab),
            source_vocab=len(task.source_vocab) if task.source_vocab else None,
            positions=max(len(source) for source in task.train.sources) if text else None,
            features=task.features,
        )


def build_task(config: DataConfig, vocabs: Vocabs | None = None) -> Task:
    """The data, encoded with `vocabs` if given (those of a saved run)."""
    folder = Path(config.folder)
    source_limits = VocabLimits(config.source_min_count, config.source_max_size)
    target_limits = VocabLimits(config.target_min_count, config.target_max_size)
    match config.task:
        case "toy-translation":
            task = toy.translation(config.seed)
        case "toy-summarization":
            task = toy.summarization(config.seed)
        case "toy-captioning":
            task = toy.captioning(config.seed)
        case "text":
            train, valid, test = (
                read_pairs(
                    folder / files[0] if config.source else None,
                    [folder / name for name in files[config.source :]],
                    config.skip_empty,
                    config.max_words,
                )
                for files in (config.train, config.valid, config.test)
            )
            task = text_task(
                "text",
                train,
                valid,
                test,
                length=config.length,
                source_limits=source_limits,
                target_limits=target_limits,
                vocabs=vocabs,
            )
        case "captions":
            task = captions_task(
                "captions",
                read_captions(folder / config.captions),
                read_features(folder / config.features),
                length=config.length,
                min_count=config.target_min_count,
                max_size=config.target_max_size,
                vocabs=vocabs,
            )
        case _:
            assert_never(config.task)
    return task if config.limit is None else replace(task, train=first(task.train, config.limit))


def first(split: Split, n: int) -> Split:
    return Split(split.sources[:n], split.references[:n], split.meta[:n])


def build_model(config: ModelConfig, dimensions: Dimensions) -> Recurrent:
    encoder: Encoder
    released = config.reading == "released"
    if dimensions.features is not None:
        encoder = ImageEncoder(dimensions.features, config.hidden)
    elif dimensions.source_vocab is not None and dimensions.positions is not None:
        encoder = AttentiveEncoder(
            dimensions.source_vocab, config.hidden, dimensions.positions, config.window, sum_positions=released
        )
    else:
        encoder = NoEncoder()
    match config.name:
        case "elman":
            cell: type[ElmanCell] | type[LSTMCell] | type[GRUCell] = ElmanCell
        case "lstm":
            cell = LSTMCell
        case "gru":
            cell = GRUCell
        case _:
            assert_never(config.name)
    model = Recurrent(
        cell,
        encoder,
        dimensions.target_vocab,
        config.hidden,
        layers=config.layers,
        dropout=config.dropout,
        released=released,
    )
    initialise(model, config.init)
    return model


def build_reward(config: RewardConfig, vocab: Vocab) -> Reward:
    match config.name:
        case "bleu":
            return sentence_bleu
        case "rouge2":
            return rouge2_recall
        case path if ":" in path or "." in path:
            function = from_path(path)
            reward = on_text(function, vocab.decode) if config.on == "text" else on_words(function)
            return checked(reward, path, vocab.decode)
        case other:
            raise ConfigError(
                f"reward.name = {other!r} is unknown; known are bleu, rouge2 and the path of a Python function, "
                "'module:function'"
            )


def build_metric(name: str) -> Metric:
    return {"bleu": BLEU, "rouge2": ROUGE2}[name]


def build_algorithm(config: AlgorithmConfig, reward: Reward, features: int, length: int) -> Algorithm:
    forced = forced_words(config, length)
    match config.baseline:
        case "linear":
            baseline: LinearBaseline | StepBaseline = LinearBaseline(features)
        case "step":
            baseline = StepBaseline(features, length)
        case _:
            assert_never(config.baseline)
    match config.name:
        case "xent":
            return Xent()
        case "dad":
            annealing = {
                "linear": schedules.linear,
                "exponential": schedules.exponential,
                "inverse-sigmoid": schedules.inverse_sigmoid,
            }[config.annealing]
            truth = schedules.truth_probability(
                annealing, config.annealing_k, config.xent_epochs, len(forced), config.truth_floor
            )
            return Dad(truth, choose=sample if config.feed == "sample" else greedy)
        case "e2e":
            return E2E(forced, config.k)
        case "reinforce":
            return Reinforce(reward, baseline)
        case "mixer":
            return Mixer(
                reward,
                baseline,
                length,
                forced,
                xent_weight=config.xent_weight,
                reinforce_weight=config.reinforce_weight,
                overlap=config.overlap,
            )
        case _:
            assert_never(config.name)


def forced_words(config: AlgorithmConfig, length: int) -> list[int]:
    return schedules.forced_words(length, config.delta, config.xent_epochs, config.mixed_epochs, config.whole)
