"""Losses of the candidates of a source against one another.

All take (B, k): the score s of each candidate, such as its log p, with gradient; its reward r, a constant; and
`mask`, true on those that count: at least one of each source. They return one value for each source, (B,).

Where all rewards of a source are equal the gradient is 0, and no result depends on the order of the candidates: those
that share the highest reward are best together, by the sum of their probabilities, the highest or the mean score.
"""

import torch
from torch import Tensor, inf
from torch.nn.functional import logsigmoid


def expected_risk(s: Tensor, r: Tensor, mask: Tensor, alpha: float) -> Tensor:
    """Minimum risk training, Shen et al. (2016), (13) and (14); the expected risk (4) of Edunov et al. (2018).

    L = - 1/alpha sum_i Q(i) (r_i - mean r),   Q(i) = p(i)^alpha / sum_j p(j)^alpha
    dL = - sum_i Q(i) (r_i - sum_j Q(j) r_j) d log p(i)

    The mean is a constant without a gradient. Divided by alpha, which the papers do not, the gradient has a scale that
    does not depend on alpha. With all sentences as candidates and alpha = 1 it is the gradient of the expected reward;
    as alpha falls to 0, the policy gradient of candidates that count alike, each against the mean of all.
    """
    mean = (r * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    return -((alpha * s).masked_fill(~mask, -inf).softmax(-1) * (r - mean)).sum(-1) / alpha


def softmax_margin(s: Tensor, r: Tensor, mask: Tensor, margin: float) -> Tensor:
    """Gimpel & Smith (2010); Edunov et al. (2018), (7).

    L = - s(u*) + log sum_u exp(s(u) + margin (r(u*) - r(u))),   u* the best by reward, the pseudo-reference
    """
    best, highest = leading(r, mask)
    return total(s + margin * (highest - r), mask) - total(s, best)


def sequence_nll(s: Tensor, r: Tensor, mask: Tensor) -> Tensor:
    """Sequence negative log-likelihood, Edunov et al. (2018), (3): of the best by reward, among the candidates.

    L = - s(u*) + log sum_u exp s(u)
    """
    return softmax_margin(s, r, mask, margin=0.0)


def max_margin(s: Tensor, r: Tensor, mask: Tensor, margin: float) -> Tensor:
    """Taskar et al. (2003), Tsochantaridis et al. (2005), with margins scaled by rewards: softmax-margin's maximum.

    L = max_u (s(u) + margin (r(u*) - r(u))) - s(u*)

    The candidate that misses its margin by most counts. In (5) of Edunov et al. (2018) it is the one that scores
    highest, which makes samples of the model less likely for being likely: it unlearns to write.
    """
    best, highest = leading(r, mask)
    return (s + margin * (highest - r)).masked_fill(~mask, -inf).amax(-1) - s.masked_fill(~best, -inf).amax(-1)


def ranking(s: Tensor, r: Tensor, mask: Tensor, rank_margin: float) -> Tensor:
    """BRIO's contrastive loss, Liu et al. (2022), (8): candidates are to score in the order of their rewards.

    L = mean over pairs with r_i > r_j of max(0, s_j - s_i + (rank_j - rank_i) rank_margin)

    A rank is the number of candidates with a higher reward. The paper sums the pairs.
    """
    better = (r.unsqueeze(-1) > r.unsqueeze(-2)) & mask.unsqueeze(-1) & mask.unsqueeze(-2)  # (B, i, j)
    rank = better.sum(-2)  # (B, k)
    short = rank_margin * (rank.unsqueeze(-2) - rank.unsqueeze(-1)) + s.unsqueeze(-2) - s.unsqueeze(-1)  # (B, i, j)
    return torch.where(better, short, 0).clamp(min=0).sum((-1, -2)) / better.sum((-1, -2)).clamp(min=1)


def preference(s: Tensor, r: Tensor, mask: Tensor, beta: float) -> Tensor:
    """DPO, Rafailov et al. (2023), (7), of the best and the worst by reward; s is log p - log p_ref.

    L = - 1/beta log sigmoid(beta (s(best) - s(worst)))

    Divided by beta, which the paper does not, the gradient has a scale that does not depend on beta.
    """
    best, worst = leading(r, mask)[0], leading(-r, mask)[0]
    return -logsigmoid(beta * (mean(s, best) - mean(s, worst))) / beta


def contrastive_preference(s: Tensor, r: Tensor, mask: Tensor, beta: float) -> Tensor:
    """CPO, Xu et al. (2024), Sec. 3: DPO without a reference model, and the likelihood of the best.

    L = - log sigmoid(beta (s(best) - s(worst))) - s(best)
    """
    return beta * preference(s, r, mask, beta) + best_of_n(s, r, mask)


def best_of_n(s: Tensor, r: Tensor, mask: Tensor) -> Tensor:
    """Fine-tuning on the best of n, as RAFT of Dong et al. (2023):  L = - s(best), where one is better than others."""
    best, _ = leading(r, mask)
    return torch.where((best == mask).all(-1), 0, -mean(s, best))


def leading(r: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The candidates with the highest reward, and that reward.  -> (B, k), (B, 1)"""
    highest = r.masked_fill(~mask, -inf).amax(-1, keepdim=True)
    return (r == highest) & mask, highest


def total(s: Tensor, mask: Tensor) -> Tensor:
    """log sum exp s where the mask is true.  -> (B,)"""
    return s.masked_fill(~mask, -inf).logsumexp(-1)


def mean(s: Tensor, mask: Tensor) -> Tensor:
    """Of s where the mask is true.  -> (B,)"""
    return torch.where(mask, s, 0).sum(-1) / mask.sum(-1)
