"""The keys and values of transformers' caches as nested tuples of tensors, so that a search can reorder their rows."""

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import Cache

Layers = tuple[tuple[Tensor, Tensor], ...]  # k and v of each layer: (B, heads, words so far, d); empty before the first


def as_cache(layers: Layers) -> "Cache":
    """A cache that grows by concatenation: what is in `layers` stays as it is."""
    from transformers import Cache

    return Cache([growing_layer()(*each) for each in layers]) if layers else Cache(None, growing_layer())


def as_layers(cache: "Cache") -> Layers:
    return tuple((layer.keys, layer.values) for layer in cache.layers)


@cache
def growing_layer() -> Any:
    """The class of a layer: as DynamicLayer, but nothing is copied before the first word or when it is made."""
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):  # type: ignore[misc]
        def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
            super().__init__()
            self.keys, self.values, self.is_initialized = keys, values, keys is not None

        def update(self, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            if self.keys is not None and self.values is not None:
                k, v = torch.cat([self.keys, k], -2), torch.cat([self.values, v], -2)
            self.keys, self.values, self.is_initialized = k, v, True
            return k, v

    return GrowingLayer
