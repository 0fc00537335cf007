"""The searches of a model, each captured as one program."""

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from seqmixer.decoding.beam import Hypotheses
from seqmixer.decoding.beam import beam_search as plain_beam_search
from seqmixer.decoding.generate import generate as plain_generate
from seqmixer.kernels import Programs
from seqmixer.types import Choose, SequenceModel

_programs: WeakKeyDictionary[SequenceModel, Programs] = WeakKeyDictionary()


def programs(model: SequenceModel) -> Programs:
    """The captured searches of a model. They read its weights in place, so that they see every update."""
    return _programs.setdefault(model, Programs())


@torch.no_grad()
def generate(model: SequenceModel, source: Tensor, given: Tensor, keep: Tensor, choose: Choose) -> Tensor:
    """`generate.generate`, as one program.  -> (B, T)"""

    def run(source: Tensor, given: Tensor, keep: Tensor) -> Tensor:
        return plain_generate(model, source, given, keep, choose)

    words: Tensor = programs(model)(choose, run, source, given, keep)
    return words.clone()


@torch.no_grad()
def beam_search(
    model: SequenceModel,
    source: Tensor,
    length: int,
    beam: int,
    length_penalty: float = 0.0,
    unk: bool = True,
    *,
    given: Tensor | None = None,
    keep: Tensor | None = None,
    stochastic: bool = False,
) -> Hypotheses:
    """`beam.beam_search`, as one program."""

    def run(source: Tensor, given: Tensor | None = None, keep: Tensor | None = None) -> Hypotheses:
        return plain_beam_search(
            model, source, length, beam, length_penalty, unk, given=given, keep=keep, stochastic=stochastic
        )

    inputs = (source,) if given is None or keep is None else (source, given, keep)
    found: Hypotheses = programs(model)(("beam", length, beam, length_penalty, unk, stochastic), run, *inputs)
    return Hypotheses(found.words.clone(), found.log_prob.clone())
