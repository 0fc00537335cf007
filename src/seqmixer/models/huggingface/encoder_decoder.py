"""Encoder-decoders of transformers: T5, mT5, BART, mBART, Marian, NLLB, Pegasus and their like."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqmixer.errors import ConfigError
from seqmixer.models.huggingface.adapter import Adapter, causal_mask, wide
from seqmixer.models.huggingface.caches import as_cache, as_layers
from seqmixer.types import BOS, EOS, PAD, Context, State

if TYPE_CHECKING:
    from transformers import EncoderDecoderCache, PreTrainedModel


class EncoderDecoder(Adapter):
    """A context is (memory, real): (B, N, H), and (B, N) true where it is no padding.

    A state is the keys and values of every layer, of the words so far and of the memory; empty before the first word.
    """

    def __init__(self, network: "PreTrainedModel", ids: Sequence[int], dtype: torch.dtype = torch.float32) -> None:
        require_one_vocabulary(network)
        super().__init__(network, ids, require_start(network), dtype)

    def example(self) -> tuple[Tensor, Tensor]:
        source, words = self.ids.new_tensor([[EOS]]), self.ids.new_tensor([[BOS, EOS, EOS]])  # any words do
        own = self.network(input_ids=self.ids[source], decoder_input_ids=self.ids[words])
        return self.unroll(words, self.encode(source)), own.logits

    def encode(self, source: Tensor) -> Context:
        if source.shape[1] == 0:
            raise ConfigError(
                "an encoder-decoder reads a source, but the data has none (data.source = false); use a decoder"
            )
        self.require_positions(source.shape[1])
        real = source != PAD  # (B, N)
        with self.computing(source):
            encoded = self.network.get_encoder()(
                input_ids=self.ids[source], attention_mask=self.mask(real[:, None, None])
            )
        return encoded.last_hidden_state, real

    def start(self, context: Context) -> State:
        return (), ()

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        from transformers import EncoderDecoderCache

        self.require_cache()
        cache = EncoderDecoderCache(*(as_cache(layers) for layers in state))
        h = self.decode(x.unsqueeze(1), context, cache).squeeze(1)  # (B, H)
        return h, (as_layers(cache.self_attention_cache), as_layers(cache.cross_attention_cache))

    def unroll(self, words: Tensor, context: Context) -> Tensor:
        return self.decode(self.embed(words), context, None)

    def decode(self, x: Tensor, context: Context, cache: "EncoderDecoderCache | None") -> Tensor:
        """(B, T, E) -> (B, T, H); what is in the cache comes before, and these words are added to it."""
        memory, real = context
        decoder = self.network.get_decoder()
        causal = causal_mask(x.shape[1], (cache.get_seq_length() if cache else 0) + x.shape[1], x.device)
        with self.computing(x):
            decoded = decoder(
                inputs_embeds=x.to(self.output.weight.dtype),
                attention_mask=self.mask(causal[None, None]),
                encoder_hidden_states=memory,
                encoder_attention_mask=self.mask(real[:, None, None]),
                past_key_values=cache,
                use_cache=cache is not None,
            )
        return wide(decoded.last_hidden_state)


def require_one_vocabulary(network: "PreTrainedModel") -> None:
    if not network.config.to_dict().get("share_encoder_decoder_embeddings", True):
        raise ConfigError(
            "model.path: the model has a vocabulary for each side; seqmixer takes those with one for both"
        )


def require_start(network: "PreTrainedModel") -> int:
    start: int | None = network.config.to_dict().get("decoder_start_token_id")
    if start is None:
        raise ConfigError("model.path: config.json has no decoder_start_token_id, the token that decoding begins with")
    return start
