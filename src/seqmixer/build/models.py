"""[model] to a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from seqmixer.config import HuggingFaceSettings, ModelSettings, RecurrentSettings, TransformerSettings
from seqmixer.data import LONGEST, Task
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
from seqmixer.storage import pretrained

Cell = ElmanCell | LSTMCell | GRUCell
CELLS: dict[str, type[Cell]] = {"elman": ElmanCell, "lstm": LSTMCell, "gru": GRUCell}

Model = Recurrent | Transformer | EncoderDecoder | Decoder
Size = Annotated[int, Field(ge=1, lt=2**63)]


@dataclass(frozen=True)
class Dimensions:
    """The sizes that a model takes from its task."""

    length: Annotated[int, Field(ge=1, le=LONGEST)]  # T
    target_vocab: Size  # V
    source_vocab: Size | None  # None: no source text
    positions: Size | None  # the longest source text seen in training
    features: Size | None  # D; None: no image

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


def build_model(config: ModelSettings, dimensions: Dimensions, run: Path | None = None) -> Model:
    """A model with random or pretrained weights. With `run`, weights come from there: only the shape must be right."""
    match config:
        case HuggingFaceSettings():
            return pretrained.model(config, run)
        case RecurrentSettings():
            model: Recurrent | Transformer = recurrent(config, dimensions)
        case TransformerSettings():
            model = transformer(config, dimensions)
        case _:
            raise TypeError(f"no model has settings of type {type(config).__name__}")
    if config.init is not None:
        initialise(model, config.init)
    return model


def recurrent(config: RecurrentSettings, dimensions: Dimensions) -> Recurrent:
    hidden, released = config.hidden, config.variant == "released"
    encoder: Encoder = NoEncoder()
    if dimensions.features is not None:
        encoder = ImageEncoder(dimensions.features, hidden)
    elif dimensions.source_vocab is not None and dimensions.positions is not None:
        encoder = AttentiveEncoder(dimensions.source_vocab, hidden, dimensions.positions, config.window, released)
    return Recurrent(
        CELLS[config.name],
        encoder,
        dimensions.target_vocab,
        hidden,
        layers=config.layers,
        dropout=config.dropout,
        released=released,
    )


def transformer(config: TransformerSettings, dimensions: Dimensions) -> Transformer:
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
