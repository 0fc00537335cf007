"""Networks of transformers from a folder or the hub, and back into a folder: only safetensors, no foreign code."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from seqmixer.errors import ConfigError, missing_extra
from seqmixer.files import foreign
from seqmixer.models.huggingface.adapter import Adapter
from seqmixer.models.huggingface.decoder import Decoder
from seqmixer.models.huggingface.encoder_decoder import EncoderDecoder
from seqmixer.models.huggingface.recomputing import recompute_layers

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Pretrained:
    """Where a network comes from, and how its tokens are called."""

    path: str  # a folder that `save_pretrained` wrote, or a name of the hub
    ids: tuple[int, ...]  # the network's id of each word of seqmixer
    weights: bool = True  # false: only the shape is read, for weights that come from a checkpoint


def load(
    pretrained: Pretrained, *, lora_rank: int = 0, checkpointing: bool = False, dtype: torch.dtype = torch.float32
) -> EncoderDecoder | Decoder:
    """A model that every algorithm can train.

    Args:
        pretrained: what to read.
        lora_rank: train low-rank additions to every linear layer (LoRA) and nothing else; 0 trains all weights.
        checkpointing: compute layers again in the backward pass instead of keeping their activations.
        dtype: float32, or bfloat16 to compute in; weights and updates stay in single precision.
    """
    config = read_config(pretrained.path)
    network = read_network(pretrained, config)
    with blaming(pretrained.path):
        if checkpointing:
            recompute_layers(network)
        if lora_rank:
            network = with_lora(network, lora_rank)
        if config.is_encoder_decoder:
            return EncoderDecoder(network, pretrained.ids, dtype)
        return Decoder(network, pretrained.ids, dtype)


def save(model: Adapter, folder: Path, lora: bool) -> None:
    """Write the network so that transformers loads it by itself; LoRA is merged into its weights for good."""
    network = model.network.merge_and_unload() if lora else model.network
    with quiet():
        network.save_pretrained(folder)


def save_config(path: str, folder: Path) -> None:
    """Copy the config of the network at `path`."""
    read_config(path).save_pretrained(folder)


def read_config(path: str) -> "PretrainedConfig":
    try:
        from transformers import AutoConfig
    except ImportError:
        raise missing_extra("a model of Hugging Face needs transformers", "hf") from None
    with blaming(path):
        return AutoConfig.from_pretrained(path, trust_remote_code=False)


def read_network(pretrained: Pretrained, config: "PretrainedConfig") -> "PreTrainedModel":
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    path = pretrained.path
    with blaming(path):
        if not pretrained.weights:
            return kind.from_config(config, trust_remote_code=False, dtype=torch.float32)
        require_safetensors(Path(path))
        return kind.from_pretrained(
            path, config=config, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
        )


def with_lora(network: "PreTrainedModel", rank: int) -> "PreTrainedModel":
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise missing_extra("model.lora_rank needs peft", "hf") from None
    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fan_in_fan_out")  # GPT-2 keeps its matrices transposed, which peft sees
        return get_peft_model(network, settings)


def require_safetensors(folder: Path) -> None:
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        there = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "no weights at all"
        raise ConfigError(
            f"model.path = {str(folder)!r}: no weights in safetensors, but {there}; seqmixer never unpickles. Load the "
            "model with transformers once and save it with save_pretrained"
        )


@contextmanager
def blaming(path: str) -> Iterator[None]:
    """Errors of transformers about a folder or a name, as one line."""
    with quiet(), foreign(path, f"model.path = {path!r} cannot be loaded"):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of transformers: the run has one of its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
