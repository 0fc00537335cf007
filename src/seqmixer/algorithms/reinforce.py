"""REINFORCE (Sec. 3.2.1): sample a sentence, make its words more likely if its reward beat the expected one."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from seqmixer.algorithms.algorithm import Algorithm, Stage
from seqmixer.algorithms.measures import measures
from seqmixer.decoding import generate, sample, shift
from seqmixer.losses import baseline_error, policy_gradient
from seqmixer.rewards import begin
from seqmixer.types import PAD, Batch, Generate, Loss, Reward, Rollout, SequenceModel


class LinearBaseline(nn.Module):
    """rbar_t: the reward expected at step t, a linear regressor of the hidden state (Sec. 3.2.1).

    "In order to prevent feedback loops, we do not backpropagate this error through the recurrent network." The state is
    brought to length 1 first: a step of the regressor's Adam then moves rbar as far whatever the size of the model.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))
        self.bias = nn.Parameter(torch.tensor(0.01))  # as released

    def forward(self, h: Tensor) -> Tensor:
        return normalize(h.detach(), dim=-1) @ self.weight + self.bias  # (B, T, H) x (H,) -> (B, T)


class StepBaseline(nn.Module):
    """The released baseline: a linear regressor of its own for each step."""

    def __init__(self, features: int, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length, features))
        self.bias = nn.Parameter(torch.full((length,), 0.01))

    def forward(self, h: Tensor) -> Tensor:
        return (normalize(h.detach(), dim=-1) * self.weight).sum(-1) + self.bias  # (B, T, H) x (T, H) -> (B, T)


class Reinforce(Algorithm):
    """Eqs. 9-11 on whole sentences. From a random model it does not train (Sec. 4.4): start from an XENT one."""

    def __init__(self, reward: Reward, baseline: nn.Module, generate: Generate = generate, kl: float = 0.0) -> None:
        super().__init__(reward, generate, kl)
        self.baseline = baseline

    def loss(self, model: SequenceModel, batch: Batch, stage: Stage, dial: Tensor) -> Loss:
        assert self.reward is not None
        nothing = torch.zeros_like(batch.mask)  # (B, T)
        words = self.generate(model, batch.source, batch.target, nothing, sample)  # w^g: (B, T)
        free = words != PAD  # (B, T) true up to and including EOS
        pending = begin(self.reward, Rollout(words, batch.references, 0, batch.source, batch.meta))

        h = model.unroll(shift(words), model.encode(batch.source))  # (B, T, H)
        log_p = model.log_prob(h, words)  # (B, T)
        drift, kl = self.drift(batch.source, words, log_p, free)  # (B, T)
        r = pending()  # (B,)
        r_bar = self.baseline(h)  # (B, T)

        reinforce = policy_gradient(log_p, r.unsqueeze(-1) - drift - r_bar, free)
        value = (reinforce + baseline_error(r_bar, r, free)) / len(batch)
        return Loss(value, measures(log_p, words, free, r, r_bar, batch) | kl)

    def stage(self, epoch: int) -> Stage:
        return Stage("REINFORCE", sampled=True, program="reinforce")
