"""Decoders of transformers: GPT-2, Llama and their like. The source is a prompt, which the target continues."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqmixer.models.huggingface.adapter import Adapter, causal_mask, wide
from seqmixer.models.huggingface.caches import as_cache, as_layers
from seqmixer.types import BOS, EOS, PAD, Context, State

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel


class Decoder(Adapter):
    """No word stands between the prompt and the target: where other models are fed BOS, the prompt's last word is fed.

    A context is (prompt, real): (B, N) words, padded on the left, so that all targets begin in one place, and (B, N)
    true where it is no padding. A state is (begins, seen, layers): (B,) true before the first word, (B, n) true where
    the cached words are no padding, and their keys and values in every layer.
    """

    def __init__(self, network: "PreTrainedModel", ids: Sequence[int], dtype: torch.dtype = torch.float32) -> None:
        super().__init__(network, ids, ids[BOS], dtype)

    def example(self) -> tuple[Tensor, Tensor]:
        words = self.ids.new_tensor([[BOS, EOS, EOS]])  # any words do
        real = torch.ones_like(words, dtype=torch.bool)
        own = self.network(input_ids=self.ids[words], attention_mask=real.long())
        return self.decode(self.embed(words), real, None), own.logits

    def encode(self, source: Tensor) -> Context:
        if source.shape[1] == 0:
            source = source.new_full((len(source), 1), BOS)  # something must stand before the first word
        self.require_positions(source.shape[1])
        prompt = left_padded(source)  # (B, N)
        return prompt, prompt != PAD

    def start(self, context: Context) -> State:
        prompt, real = context
        begins = torch.ones_like(real[:, 0])  # (B,)
        if prompt.shape[1] == 1:
            return begins, real[:, :-1], ()
        self.require_cache()
        cache = as_cache(())
        self.decode(self.embed(prompt[:, :-1]), real[:, :-1], cache)
        return begins, real[:, :-1], as_layers(cache)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        begins, seen, layers = state
        prompt, real = context
        self.require_cache()
        x = torch.where(begins.unsqueeze(-1), self.embed(prompt[:, -1]), x)  # (B, E)
        seen = torch.cat([seen, real[:, -1:]], 1)  # (B, n + 1): the last word of a prompt is real, and so are all after
        cache = as_cache(layers)
        h = self.decode(x.unsqueeze(1), seen, cache).squeeze(1)  # (B, H)
        return h, (torch.zeros_like(begins), seen, as_layers(cache))

    def unroll(self, words: Tensor, context: Context) -> Tensor:
        prompt, real = context
        x = self.embed(torch.cat([prompt, words[:, 1:]], 1))  # (B, N + T - 1, E): without BOS
        seen = torch.cat([real, real[:, -1:].expand(-1, words.shape[1] - 1)], 1)  # (B, N + T - 1)
        return self.decode(x, seen, None)[:, prompt.shape[1] - 1 :]  # (B, T, H)

    def decode(self, x: Tensor, seen: Tensor, cache: "Cache | None") -> Tensor:
        """(B, T, E) -> (B, T, H); `seen` (B, n) says which of all words are real, the T of x being the last of them."""
        T, n = x.shape[1], seen.shape[1]
        places = (seen.long().cumsum(-1) - 1).clamp(min=0)[:, -T:]  # (B, T) padding has no place of its own
        causal = causal_mask(T, n, x.device)
        itself = causal.triu(n - T)  # padding looks at itself, since it has to look at something
        visible = seen[:, None, None] & causal | itself  # (B, 1, T, n)
        with self.computing(x):
            decoded = self.network.get_decoder()(
                inputs_embeds=x.to(self.output.weight.dtype),
                attention_mask=self.mask(visible) if n <= self.window else seen.long(),
                position_ids=places,
                past_key_values=cache,
                use_cache=cache is not None,
            )
        return wide(decoded.last_hidden_state)


def left_padded(source: Tensor) -> Tensor:
    """Rows that end in PAD, turned so that they begin with it.  (B, N) -> (B, N)

    >>> left_padded(torch.tensor([[4, 5, 6], [7, 0, 0]]))
    tensor([[4, 5, 6],
            [0, 0, 7]])
    """
    steps = torch.arange(source.shape[1], device=source.device)  # (N,)
    lengths = (source != PAD).sum(-1, keepdim=True)  # (B, 1)
    return source.gather(1, (steps + lengths) % source.shape[1])
