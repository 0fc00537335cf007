"""Losses of the candidates of a source against one another.

All take (B, k): the score s of each candidate, such as its log p, with gradient; its reward r, a constant; and
`mask`, true on those that count: at least one of each source. They return one value for each source, (B,).
"""

from torch import Tensor, inf


def expected_risk(log_p: Tensor, r: Tensor, mask: Tensor, alpha: float) -> Tensor:
    """Minimum risk training, Shen et al. (2016), (13) and (14); the expected risk (4) of Edunov et al. (2018).

    L = - 1/alpha sum_i Q(i) (r_i - mean r),   Q(i) = p(i)^alpha / sum_j p(j)^alpha
    dL = - sum_i Q(i) (r_i - sum_j Q(j) r_j) d log p(i)

    The mean is a constant without a gradient. Divided by alpha, which the papers do not, the gradient has a scale that
    does not depend on alpha. With all sentences as candidates and alpha = 1 it is the gradient of the expected reward;
    as alpha falls to 0, the policy gradient of candidates that count alike, each against the mean of all.
    """
    mean = (r * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    return -((alpha * log_p).masked_fill(~mask, -inf).softmax(-1) * (r - mean)).sum(-1) / alpha
