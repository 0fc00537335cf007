"""Config to objects: the only file that knows concrete names, and so the table of contents of seqmixer."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import assert_never

from seqmixer import pretrained, schedules
from seqmixer.algorithms import E2E, Algorithm, Dad, LinearBaseline, Mixer, Reinforce, StepBaseline, Xent
from seqmixer.config import AlgorithmConfig, Config, DataConfig, ModelConfig
from seqmixer.data import (
    Pairs,
    Split,
    Task,
    VocabLimits,
    Vocabs,
    captions_task,
    collector_paused,
    read_captions,
    read_columns,
    read_features,
    read_pairs,
    recoded,
    text_task,
    toy,
)
from seqmixer.decoding import fast, greedy, sample
from seqmixer.errors import ConfigError, unknown
from seqmixer.models import (
    AttentiveEncoder,
    Blueprint,
    Decoder,
    ElmanCell,
    Encoder,
    EncoderDecoder,
    GRUCell,
    ImageEncoder,
    ImageMemory,
    LSTMCell,
    Memory,
    NoEncoder,
    Recurrent,
    TextMemory,
    Transformer,
    initialise,
)
from seqmixer.rewards import (
    METRICS,
    CharacterTable,
    DocumentFrequencies,
    Merges,
    Metric,
    as_reward,
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
)
from seqmixer.types import Reward

Model = Recurrent | Transformer | EncoderDecoder | Decoder


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


@collector_paused()
def build_task(config: DataConfig, vocabs: Vocabs | None = None) -> Task:
    """The data, encoded with `vocabs` if given (those of a saved run, or of a pretrained model)."""
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
        case "text" | "dataset":
            task = text_task(
                config.task,
                *(read_split(config, i) for i in range(3)),
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
    if vocabs is not None and vocabs != (task.source_vocab, task.target_vocab):
        task = recoded(task, vocabs, config.length)  # a built-in task in the words of a pretrained model
    return task if config.limit is None else replace(task, train=first(task.train, config.limit))


def read_split(config: DataConfig, i: int) -> Pairs:
    """The text of the i-th of train, valid and test: files, or columns of a dataset."""
    folder, given = Path(config.folder), int(config.source)
    if config.task == "dataset":
        source, path = config.columns[0] if given else None, folder / config.dataset
        return read_columns(path, config.splits[i], source, config.columns[given:], config.skip_empty)
    files = [folder / name for name in (config.train, config.valid, config.test)[i]]
    return read_pairs(files[0] if given else None, files[given:], config.skip_empty, config.max_words)


def first(split: Split, n: int) -> Split:
    return Split(split.sources[:n], split.references[:n], split.meta[:n])


def build_model(config: ModelConfig, dimensions: Dimensions, run: Path | None = None) -> Model:
    """A model with random or pretrained weights. With `run`, weights come from there: only the shape must be right."""
    match config.name:
        case "huggingface":
            return pretrained.model(config, run)
        case "elman":
            model: Recurrent | Transformer = recurrent(ElmanCell, config, dimensions)
        case "lstm":
            model = recurrent(LSTMCell, config, dimensions)
        case "gru":
            model = recurrent(GRUCell, config, dimensions)
        case "transformer":
            model = transformer(config, dimensions)
        case _:
            assert_never(config.name)
    initialise(model, config.init)
    return model


def recurrent(
    cell: type[ElmanCell] | type[LSTMCell] | type[GRUCell], config: ModelConfig, dimensions: Dimensions
) -> Recurrent:
    hidden, released = config.hidden, config.reading == "released"
    encoder: Encoder = NoEncoder()
    if dimensions.features is not None:
        encoder = ImageEncoder(dimensions.features, hidden)
    elif dimensions.source_vocab is not None and dimensions.positions is not None:
        encoder = AttentiveEncoder(dimensions.source_vocab, hidden, dimensions.positions, config.window, released)
    return Recurrent(
        cell,
        encoder,
        dimensions.target_vocab,
        hidden,
        layers=config.layers,
        dropout=config.dropout,
        released=released,
    )


def transformer(config: ModelConfig, dimensions: Dimensions) -> Transformer:
    blueprint = Blueprint(
        hidden=config.hidden,
        heads=config.heads,
        feedforward=config.feedforward or 4 * config.hidden,
        layers=config.layers,
        dropout=config.dropout,
        rotary=config.positions == "rotary",
    )
    memory: Memory | None = None
    if dimensions.features is not None:
        memory = ImageMemory(blueprint, dimensions.features)
    elif dimensions.source_vocab is not None and dimensions.positions is not None:
        memory = TextMemory(blueprint, dimensions.source_vocab, dimensions.positions)
    return Transformer(blueprint, memory, dimensions.target_vocab, dimensions.length)


def build_reward(config: Config, task: Task, folder: Path | None = None) -> Reward:
    """What training pays: a reward, or a weighted sum of some. `folder` is where what it counts beforehand is kept."""
    terms = [(weight, named_reward(name, config, task, folder)) for weight, name in parse(config.reward.name)]
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else weighted(terms)


def build_metric(config: Config, task: Task, folder: Path | None = None) -> Metric:
    """What is reported, and picks the best model."""
    return named_metric(config.evaluation.metric, config, task, folder)


def named_reward(name: str, config: Config, task: Task, folder: Path | None) -> Reward:
    merges = pieces(config, task)
    match name:
        case "bleu":
            return on_whole_words(sentence_bleu, merges) if merges else sentence_bleu
        case "rouge2":
            return on_whole_words(rouge2_recall, merges) if merges else rouge2_recall
        case "cider":
            return cider_d(document_frequencies(task, merges, folder))
        case path if ":" in path or "." in path:
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
            raise unknown("reward or metric", other, [*METRICS, "cider", "chrf", "module:function"])


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
            return Dad(truth, choose=sample if config.feed == "sample" else greedy, generate=fast.generate)
        case "e2e":
            return E2E(forced, config.k)
        case "reinforce":
            return Reinforce(reward, baseline, generate=fast.generate)
        case "mixer":
            return Mixer(
                reward,
                baseline,
                length,
                forced,
                xent_weight=config.xent_weight,
                reinforce_weight=config.reinforce_weight,
                overlap=config.overlap,
                generate=fast.generate,
            )
        case _:
            assert_never(config.name)


def forced_words(config: AlgorithmConfig, length: int) -> list[int]:
    return schedules.forced_words(length, config.delta, config.xent_epochs, config.mixed_epochs, config.whole)
