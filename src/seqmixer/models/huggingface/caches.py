"""The keys and values of transformers' caches as nested tuples of tensors, so that a search can reorder their rows."""

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from transformers import DynamicCache

Layers = tuple[tuple[Tensor, Tensor], ...]  # k and v of each layer: (B, heads, words so far, d); empty before the first


def as_cache(layers: Layers) -> "DynamicCache":
    """A cache that grows by concatenation: what is in `layers` stays as it is."""
    from transformers import DynamicCache

    return DynamicCache(layers)


def as_layers(cache: "DynamicCache") -> Layers:
    return tuple((layer.keys, layer.values) for layer in cache.layers)
