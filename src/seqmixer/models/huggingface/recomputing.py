"""Gradient checkpointing: layers are computed again in the backward pass instead of keeping their activations.

transformers does so in train mode only. Where samples are rewarded the model is scored in eval mode, without dropout,
and needs the memory most; so here it depends on whether a gradient is wanted, and on nothing else.
"""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Recomputed(nn.Module):
    """Mixed into the class of a layer."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = super().__call__
        if not torch.is_grad_enabled():
            return call(*args, **kwargs)
        return checkpoint(call, *args, use_reentrant=False, preserve_rng_state=self.training, **kwargs)


def recompute_layers(network: nn.Module) -> None:
    """Checkpoint every layer that transformers would."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    for module in network.modules():
        if isinstance(module, GradientCheckpointingLayer):
            kind = type(module)
            module.__class__ = type(kind.__name__, (Recomputed, kind), {})


def recomputes(network: nn.Module) -> bool:
    """Whether its layers are checkpointed."""
    return any(isinstance(module, Recomputed) for module in network.modules())
