"""How sentences are found: greedy search, a beam, samples, or the sample that agrees most with the rest."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from seqmixer.decoding import fast
from seqmixer.decoding.beam import Hypotheses
from seqmixer.decoding.generate import free, greedy, sample, score
from seqmixer.errors import ConfigError
from seqmixer.rewards import Metric, consensus
from seqmixer.types import NEVER, UNK, Choose, Rollout, SequenceModel


@dataclass(frozen=True)
class Search:
    """A search for the best sentences. With neither beam nor MBR each word is chosen by `choose`."""

    beam: int = 1
    nbest: int = 1  # how many hypotheses of the beam are given
    length_penalty: float = 0.0  # of the beam
    choose: Choose = greedy  # greedy, sample or a sampler
    unk: bool = True  # whether UNK may be written
    mbr: int = 0  # minimum Bayes risk: so many sentences are sampled, that of the highest mean utility is given
    utility: Metric | None = None  # of MBR, its reward
    seed: int = 1  # of MBR: each batch begins with it

    def __post_init__(self) -> None:
        if self.nbest > self.beam:
            raise ConfigError(f"asked for the best {self.nbest} of a beam of {self.beam}; raise --beam to {self.nbest}")
        if self.beam > 1 and self.choose is not greedy:
            raise ConfigError(f"asked for samples and for a beam of {self.beam}; choose one of the two")
        if self.mbr and self.beam > 1:
            raise ConfigError(f"asked for MBR and for a beam of {self.beam}; choose one of the two")
        if self.mbr == 1 or self.mbr < 0:
            raise ConfigError(
                f"asked for MBR among {self.mbr} samples; each is compared with others: ask for 2 or more"
            )
        if self.mbr and self.utility is None:
            raise ConfigError("MBR needs a utility: the metric that samples are compared by")

    @property
    def signature(self) -> str:
        """How the sentences were found, as a part of the signature of their score."""
        parts = [f"beam:{self.beam}"]
        if self.beam > 1 and self.length_penalty:
            parts = [*parts, f"lp:{self.length_penalty:g}"]
        if self.utility:
            parts = [f"mbr:{self.mbr}", f"utility:{self.utility.name}", f"seed:{self.seed}"]
        return "|".join([*parts, *(() if self.unk else ["no-unk"])])

    def best(self, model: SequenceModel, source: Tensor, length: int) -> Tensor:
        """The best sentence for each source.  -> (B, T)"""
        if self.beam > 1:
            return self.beamed(model, source, length).words[:, 0]
        if self.utility:
            return self.agreed(model, source, length, self.utility)
        return self.chosen(model, source, length)

    def hypotheses(self, model: SequenceModel, source: Tensor, length: int) -> Hypotheses:
        """The best sentences for each source, with log p."""
        if self.beam > 1:
            return self.beamed(model, source, length)
        words = self.best(model, source, length)
        return Hypotheses(words.unsqueeze(1), score(model, source, words).unsqueeze(1))

    def beamed(self, model: SequenceModel, source: Tensor, length: int) -> Hypotheses:
        return fast.beam_search(model, source, length, self.beam, self.length_penalty, self.unk)

    def chosen(self, model: SequenceModel, source: Tensor, length: int, k: int = 1) -> Tensor:
        """k sentences for each source, word by word.  -> (Bk, T)"""
        given, keep = free(source.repeat_interleave(k, 0), length)
        return fast.generate(model, source, given, keep, self.choose if self.unk else without_unk(self.choose))

    def agreed(self, model: SequenceModel, source: Tensor, length: int, utility: Metric) -> Tensor:
        """The sample with the highest mean utility to the other samples, the first of several such.  -> (B, T)"""
        sampled = replace(self, choose=sample) if self.choose is greedy else self
        with seeded(self.seed, source.device):
            words = sampled.chosen(model, source, length, self.mbr)  # (B n, T)
        rollout = Rollout(words, words.unsqueeze(1), source=source.repeat_interleave(self.mbr, 0), k=self.mbr)
        best = consensus(utility.reward)(rollout).view(-1, self.mbr).argmax(-1)  # (B,)
        return words.view(-1, self.mbr, length)[torch.arange(len(best), device=best.device), best]


GREEDY = Search()


@lru_cache
def without_unk(choose: Choose) -> Choose:
    """The same choice among the words without UNK. One function for each, so that it is captured once."""

    def known(logits: Tensor) -> Tensor:
        logits = logits.clone()  # the model may keep what it returned
        logits[:, UNK] = NEVER
        return choose(logits)

    return known


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from a seed for a while; the random numbers of others are not touched."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type=device.type):
        torch.manual_seed(seed)
        yield
