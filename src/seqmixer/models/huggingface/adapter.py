"""What encoder-decoders and decoders of transformers have in common: word ids, embeddings, outputs, tied weights."""

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seqmixer.errors import ConfigError, DataError
from seqmixer.kernels import fused, linear_log_prob
from seqmixer.models.huggingface.recomputing import recomputes
from seqmixer.types import BOS, EOS, NEVER, UNK, SequenceModel

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

WINDOWS = ("sliding_window", "attention_chunk_size")  # settings of networks whose attention has a window
BIAS = "final_logits_bias"  # the buffer that BART, Marian and their like add to their logits


class Adapter(SequenceModel):
    """A network of transformers behind the contract of seqmixer, with seqmixer's word ids.

    The words of the task are the network's own tokens in another order: PAD, BOS, EOS and UNK first, then the rest.
    Where a tokenizer has no padding or no unknown word, these share the id of EOS; neither is written, and what is
    padding is masked.
    """

    fresh_logits = True
    ids: Tensor
    never: Tensor
    possible: Tensor

    def __init__(self, network: "PreTrainedModel", ids: Sequence[int], begin: int, dtype: torch.dtype) -> None:
        """
        Args:
            network: with its language-model head, on any device.
            ids: the network's id of each word of seqmixer, (V,).
            begin: the network's id of BOS.
            dtype: compute in bfloat16 if this is it; the weights stay what they are.
        """
        super().__init__()
        self.network = network
        self.dtype = torch.float32
        self.features: int = self.output.weight.shape[1]  # H, the size of what `step` returns as h
        self.bias = next((name for name, _ in network.named_buffers() if name.endswith(BIAS)), None)
        own = [*ids[:BOS], begin, *ids[BOS + 1 :]]
        require_rows(network, max(own))
        self.register_buffer("ids", torch.tensor(own, device=network.device), persistent=False)  # (V,)
        self.has_unk = ids[UNK] != ids[EOS]
        self.window = window_of(network.config)
        word = torch.arange(len(own), device=network.device)
        self.register_buffer("possible", (word >= EOS) & ((word != UNK) | self.has_unk), persistent=False)  # (V,)
        never = torch.full((len(self.output.weight),), NEVER, device=network.device)
        of_words = torch.where(self.possible, 0.0, NEVER)
        never = never.scatter_reduce(0, self.ids, of_words, "amax")  # a row may have several words
        self.register_buffer("never", never, persistent=False)  # (rows of M_o,)
        self.register_state_dict_post_hook(drop_tied)
        self.register_load_state_dict_pre_hook(restore_tied)
        self.eval()  # as transformers leaves what it loads
        self.scale = self.fitting_scale()
        self.dtype = dtype

    @property
    def output(self) -> nn.Linear:
        """M_o."""
        return self.network.get_output_embeddings()

    @abstractmethod
    def example(self) -> tuple[Tensor, Tensor]:
        """The last hidden states of some words, and the logits that the network itself gives them."""

    def fitting_scale(self) -> float:
        """What h is multiplied with before the output layer: 1, or T5's 1 / sqrt(H) where input and output are tied.

        Found by an example, because it is written in another place for each family, and because a network that does
        something else with its logits must not be trained on wrong ones.
        """
        with torch.no_grad():
            h, own = self.example()
        for scale in (1.0, self.features**-0.5):
            if torch.allclose(self.own_logits(h * scale), own, rtol=1e-3, atol=1e-3 * float(own.abs().max())):
                return scale
        kind = self.network.config.model_type
        raise ConfigError(
            f"model.path: a {kind} model makes its logits otherwise than M_o h + bias; seqmixer cannot use it. T5, "
            "BART, Marian, NLLB, GPT-2, Llama and their like work"
        )

    def own_logits(self, h: Tensor) -> Tensor:
        """The network's own logits, in its own order, in single precision or better."""
        with self.computing(h):
            o = wide(self.output(h.to(self.output.weight.dtype)))
        return o if self.bias is None else o + self.network.get_buffer(self.bias)

    def embed(self, words: Tensor) -> Tensor:
        return self.network.get_decoder().get_input_embeddings()(self.ids[words])

    def logits(self, h: Tensor) -> Tensor:
        o = self.own_logits(h * self.scale).index_select(-1, self.ids)  # (..., H) -> (..., V)
        if not self.has_unk:
            o[..., UNK] = NEVER  # else EOS would count twice
        return o

    def log_prob(self, h: Tensor, words: Tensor) -> Tensor:
        """The logarithm of the softmax over the network's own rows, where only words have a probability."""
        if not fused():
            return super().log_prob(h, words)
        bias = self.never.to(self.output.weight.dtype)
        if self.output.bias is not None:
            bias = bias + self.output.bias
        if self.bias is not None:
            bias = bias + self.network.get_buffer(self.bias).flatten()
        with self.computing(h):
            flat = linear_log_prob((h * self.scale).flatten(0, -2), self.output.weight, bias, self.ids[words].flatten())
        return torch.where(self.possible[words], flat.view_as(words), NEVER)

    def mask(self, visible: Tensor) -> Tensor:
        """True where a word may look, (B, 1, T, n), in the form that the network's attention takes.

        A mask of four dimensions is taken as it is. From one of two, transformers makes its own, and synchronises with
        the GPU to see whether it needs any.
        """
        if self.network.config._attn_implementation != "eager":
            return visible
        zero = torch.zeros(visible.shape, dtype=self.output.weight.dtype, device=visible.device)
        return zero.masked_fill(~visible, torch.finfo(zero.dtype).min)

    def precision(self) -> AbstractContextManager[Any]:
        return self.computing(self.ids)

    def computing(self, like: Tensor) -> torch.autocast:
        return torch.autocast(like.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16)

    def require_positions(self, count: int) -> None:
        limit = positions_of(self.network.config)
        if limit is not None and count > limit:
            raise DataError(
                f"{count} tokens, but the model has positions for {limit}; crop the sources with data.source_length"
            )

    def require_cache(self) -> None:
        """A step with a gradient would write the cache of a checkpointed layer twice."""
        if torch.is_grad_enabled() and recomputes(self.network):
            raise ConfigError(
                "model.checkpointing = true and an algorithm that steps through the words with gradient (E2E); choose "
                "another algorithm, or set model.checkpointing = false"
            )


def wide(x: Tensor) -> Tensor:
    """At least single precision, whatever the network computes in: losses and baselines are computed from it."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def causal_mask(T: int, n: int, device: torch.device) -> Tensor:
    """True where each of the last T of n words may look: at itself and back.  (T, n)"""
    return torch.ones(T, n, dtype=torch.bool, device=device).tril(n - T)


def positions_of(config: "PretrainedConfig") -> int | None:
    """The longest sequence that a network has positions for; None where it is not limited."""
    name = config.attribute_map.get("max_position_embeddings", "max_position_embeddings")
    return config.to_dict().get(name)


def window_of(config: "PretrainedConfig") -> float:
    """How many words a word can look back; infinite where the attention has no window."""
    return min((size for name in WINDOWS if (size := getattr(config, name, None))), default=math.inf)


def require_rows(network: "PreTrainedModel", largest: int) -> None:
    rows = network.get_input_embeddings().weight.shape[0]
    if largest >= rows:
        raise ConfigError(
            f"model.path: the tokenizer has the id {largest}, but the model has only {rows} embeddings; "
            "call resize_token_embeddings(len(tokenizer)) on it and save it again"
        )


def tied_names(module: nn.Module) -> Mapping[str, str]:
    """Names of tied weights, each with the first name of the same weight."""
    first: dict[int, str] = {}
    names = [
        (name, first.setdefault(id(weight), name)) for name, weight in module.named_parameters(remove_duplicate=False)
    ]
    return {name: kept for name, kept in names if name != kept}


def untie(module: nn.Module, tied: Collection[str]) -> None:
    """Give every tied weight that is not in `tied` a copy of its own."""
    for name in tied_names(module).keys() - set(tied):
        owner, _, leaf = name.rpartition(".")
        weight = module.get_parameter(name)
        module.get_submodule(owner).register_parameter(leaf, nn.Parameter(weight.detach().clone()))


def drop_tied(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Save tied weights once."""
    for name in tied_names(module):
        del state[prefix + name]


def restore_tied(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Load tied weights by all their names."""
    for name, kept in tied_names(module).items():
        if prefix + kept in state:
            state[prefix + name] = state[prefix + kept]
