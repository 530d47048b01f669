"""Estimators of KL(policy ‖ reference) from one sampled token (Schulman, "Approximating KL divergence", 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from slca_lightning.errors import ConfigError
from slca_lightning.functional._checks import check_same_shape, known_list

KNOWN_KL_KINDS = ("k1", "k2", "k3")


def kl_divergence(logprobs: Tensor, reference_logprobs: Tensor, kind: str = "k3") -> Tensor:
    """Estimate KL(policy ‖ reference) at each token, in nats.

    With d = log π_ref − log π of a token that π sampled:

    - k1 = −d: unbiased, of either sign, high variance;
    - k2 = d² / 2: biased, ≥ 0; its *gradient* is unbiased on policy, which k3's is not;
    - k3 = exp(d) − d − 1: unbiased, ≥ 0, low variance.

    As a loss, the gradients with respect to log π are 1, −d and 1 − exp(d). That of k1 knows nothing of the
    reference: use k1 inside the reward, not as a loss. For tokens sampled by an older policy all three are biased.

    Args:
        logprobs: log-probabilities of the sampled tokens under the policy, any shape.
        reference_logprobs: those under the frozen reference, same shape; no gradient flows.
        kind: ``k1``, ``k2`` or ``k3``.

    Returns:
        The estimate per token, same shape. Exactly 0 where both agree.

    Raises:
        ConfigError: for an unknown kind or shapes that differ.
    """
    if kind not in KNOWN_KL_KINDS:
        raise ConfigError(f"unknown KL estimator {kind!r}; known: {known_list(KNOWN_KL_KINDS)}")
    check_same_shape(logprobs=logprobs, reference_logprobs=reference_logprobs)
    difference = reference_logprobs.detach() - logprobs
    if kind == "k1":
        return -difference
    if kind == "k2":
        return difference.square() / 2
    # expm1 and not exp(d) - 1: early in training d is tiny, and the result, of order d², would drown in rounding.
    return torch.expm1(difference) - difference
