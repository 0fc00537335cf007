"""Batched beam search (Algorithm 2) over the six methods of a model, in tensor operations only."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqmixer.decoding.generate import deployed, read
from seqmixer.types import BOS, EOS, PAD, UNK, SequenceModel


@dataclass(frozen=True)
class Hypotheses:
    """The sentences of a search, best first. Unused places have log_prob = -inf."""

    words: Tensor  # (B, K, T)
    log_prob: Tensor  # (B, K) of the sentence, never normalised by its length


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
    """Algorithm 2: the `beam` most likely sentences among those reached through the `beam` best prefixes of each step.

    A finished sentence leaves the beam and is kept; its place goes to another prefix. It counts as finished when its
    EOS is among the `beam` best continuations of its step, so that a beam of 1 is greedy search. Sentences are ranked
    by log p / |w|^length_penalty: 0 ranks by probability, 1 by the mean log-probability of a word.

    Args:
        unk: whether sentences with UNK are among them.
        given: (B, T) words that a sentence begins with, where `keep` (B, T) is true; log p does not count them.
        stochastic: Rank by log p with Gumbel noise instead: the sentences are then a sample without replacement, in
            the order in which they were drawn (Kool et al. 2019, Algorithm 1). `log_prob` is what they are ranked by.
    """
    B, K, T = len(source), beam, length
    with deployed(model):
        context = read(model, source, K * len(source))  # (B*K, ...)
        state = model.start(context)
        word = torch.full((B * K,), BOS, device=source.device)
        log_p = torch.full((B, K), -torch.inf, device=source.device)
        log_p[:, 0] = 0  # one prefix to begin with: the empty one
        value = log_p  # what prefixes are ranked by
        words = torch.full((B, K, T), PAD, device=source.device)
        done = Hypotheses(words.clone(), torch.full_like(log_p, -torch.inf))
        row = torch.arange(B, device=source.device).unsqueeze(-1) * K  # (B, 1) where a sentence's prefixes begin
        itself = torch.arange(2 * K, device=source.device) % K  # the prefix that a kept word continues

        for t in range(T):
            h, state = model.step(model.embed(word), state, context)
            next_log_p = model.scores(h).float().log_softmax(-1).view(B, K, -1)  # (B, K, V)
            next_log_p[:, :, : BOS + 1] = -torch.inf  # PAD and BOS do not even fill a beam
            if not unk:
                next_log_p[:, :, UNK] = -torch.inf
            V = next_log_p.shape[-1]
            longer = log_p.unsqueeze(-1) + next_log_p
            ranked = perturbed(value, longer) if stochastic else longer
            # At most K of the candidates end in EOS, so that among 2K there are K that do not.
            best, index = ranked.view(B, K * V).topk(2 * K)  # (B, 2K)
            prefix, chosen = index // V, index % V
            reached = longer.view(B, K * V).gather(1, index) if stochastic else best
            if given is not None and keep is not None:
                kept = keep[:, t : t + 1]  # (B, 1)
                best, reached = torch.where(kept, twice(value), best), torch.where(kept, twice(log_p), reached)
                prefix, chosen = torch.where(kept, itself, prefix), torch.where(kept, given[:, t : t + 1], chosen)
            candidates = words.gather(1, prefix.unsqueeze(-1).expand(-1, -1, T)).clone()  # (B, 2K, T)
            candidates[:, :, t] = chosen

            ends = chosen == EOS
            ending = best[:, :K].masked_fill(~ends[:, :K], -torch.inf)
            done = top(done, Hypotheses(candidates[:, :K], ending), length_penalty)

            value, going = best.masked_fill(ends, -torch.inf).topk(K)  # (B, K)
            log_p = reached.gather(1, going) if stochastic else value
            words = candidates.gather(1, going.unsqueeze(-1).expand(-1, -1, T))
            state = select(state, (row + prefix.gather(1, going)).flatten())
            word = words[:, :, t].flatten()
    return top(done, Hypotheses(words, value), length_penalty)


def perturbed(value: Tensor, log_p: Tensor) -> Tensor:
    """Gumbel noise around log p (B, K, V), given that for each prefix the highest is its value (B, K).  -> (B, K, V)

    So a prefix has the value of the best sentence that begins with it, and the noise of all sentences is independent:
    the highest K are K draws without replacement (Kool et al. 2019, Sec. 4 and Appendix B.3, by which this is stable).
    """
    drawn = torch.empty_like(log_p).exponential_().clamp(min=torch.finfo(log_p.dtype).tiny)
    noisy = log_p - drawn.log()
    below = noisy - noisy.amax(-1, keepdim=True)  # 0 or less
    value = value.unsqueeze(-1)
    v = value - noisy + torch.where(below > -0.7, (-below.expm1()).log(), (-below.exp()).log1p())
    return (value - v.clamp(min=0) - (-v.abs()).exp().log1p()).masked_fill(log_p == -torch.inf, -torch.inf)


def twice(values: Tensor) -> Tensor:
    """K values in 2K places, nothing in the rest.  (B, K) -> (B, 2K)"""
    return torch.cat([values, torch.full_like(values, -torch.inf)], 1)


def top(a: Hypotheses, b: Hypotheses, length_penalty: float) -> Hypotheses:
    """The best K hypotheses of two lists of K."""
    words = torch.cat([a.words, b.words], 1)  # (B, 2K, T)
    log_prob = torch.cat([a.log_prob, b.log_prob], 1)  # (B, 2K)
    long = (words != PAD).sum(-1).clamp(min=1)
    order = (log_prob / long**length_penalty).topk(a.log_prob.shape[1]).indices  # (B, K)
    return Hypotheses(words.gather(1, order.unsqueeze(-1).expand(-1, -1, words.shape[-1])), log_prob.gather(1, order))


def select(tree: Any, rows: Tensor) -> Any:
    """Rows of every tensor in nested tuples."""
    return tree[rows] if isinstance(tree, Tensor) else tuple(select(branch, rows) for branch in tree)
