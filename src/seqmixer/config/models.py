"""[model]: the settings of the model that is named."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from seqmixer.settings import OneOf, Section


class ModelSettings(Section):
    """The table [model]."""

    name: str
    """Elman RNN (Eqs. 3-5), LSTM, GRU, a Transformer, or a model of Hugging Face, whose shape is its own."""

    @property
    def pretrained(self) -> str | None:
        """Where pretrained weights come from."""
        return None

    @property
    def described(self) -> str:
        """The model in a few words."""
        raise TypeError(f"{type(self).__name__} does not say what its model is")


class OwnModelSettings(ModelSettings):
    """What the models have that seqmixer trains from random weights."""

    hidden: int = Field(256, ge=1, le=1_000_000)
    """H, the size of the hidden state and of every embedding."""
    layers: int = Field(1, ge=1, le=1000)
    """Recurrent layers, the context enters the first; or layers of the Transformer's decoder, and of its encoder."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """On the inputs of each layer and of the output layer. Transformer: on embeddings, attention weights and what each
    part of a layer adds."""
    init: float | None = Field(None, gt=0)
    """Weights start from N(0, init), biases from 0 (released: 0.05). Default: torch's own, which learn sooner."""

    @property
    def described(self) -> str:
        return f"{self.name}, hidden {self.hidden}"


class RecurrentSettings(OwnModelSettings):
    """[model] with name = "elman", "lstm" or "gru"."""

    name: Literal["elman", "lstm", "gru"] = "lstm"
    window: int = Field(5, ge=1, le=10_001)
    """q of Eq. 12, how many neighbouring source words are averaged; odd."""
    variant: Literal["paper", "released"] = "paper"
    """Attention and output as the paper writes them (Eqs. 12-14), or as the released network has them."""

    @model_validator(mode="after")
    def centred(self) -> Self:
        if self.window % 2 == 0:
            raise ValueError(f"model.window must be odd, so that it has a centre; got {self.window}")
        return self


class TransformerSettings(OwnModelSettings):
    """[model] with name = "transformer"."""

    name: Literal["transformer"] = "transformer"
    heads: int = Field(4, ge=1, le=1000)
    """Transformer: in how many ways each layer attends; hidden is a multiple of twice as many."""
    feedforward: int | None = Field(None, ge=1, le=1_000_000)
    """Transformer: the inner size of the feed-forward parts. Default: four times hidden."""
    positions: Literal["rotary", "learned"] = "rotary"
    """Transformer: a word's place rotates queries and keys, or is a learned vector added to the word."""

    @model_validator(mode="after")
    def divides(self) -> Self:
        if self.hidden % (2 * self.heads):
            got = f"got model.hidden = {self.hidden}, model.heads = {self.heads}"
            raise ValueError(f"model.hidden must be a multiple of twice model.heads; {got}")
        return self


class HuggingFaceSettings(ModelSettings):
    """[model] with name = "huggingface"."""

    name: Literal["huggingface"] = "huggingface"
    path: str
    """Hugging Face: the folder of a model with its tokenizer, as save_pretrained writes it; else a name of the hub."""
    lora_rank: int = Field(0, ge=0, le=65_536)
    """Hugging Face: train only additions of this rank to the linear layers (LoRA); 0 trains all weights."""
    checkpointing: bool = False
    """Hugging Face: compute layers again in the backward pass, which needs less memory and more time."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Hugging Face: what is computed in; weights and updates stay in float32."""

    @model_validator(mode="before")
    @classmethod
    def has_a_path(cls, values: Any) -> Any:
        if isinstance(values, dict) and not values.get("path"):
            raise ValueError(
                "model.path is missing; with model.name = 'huggingface' it names a folder or a model of the hub"
            )
        return values

    @property
    def pretrained(self) -> str:
        return self.path

    @property
    def described(self) -> str:
        return self.path


KINDS: dict[str, type[Section]] = {
    **dict.fromkeys(("lstm", "elman", "gru"), RecurrentSettings),
    "transformer": TransformerSettings,
    "huggingface": HuggingFaceSettings,
}
ModelConfig = Annotated[ModelSettings, OneOf(KINDS, "lstm")]
