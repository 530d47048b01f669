"""The clipped policy objective, per token, and the sums that make a loss of it.

The denominator is the caller's: under accumulation or on several ranks it is the number of policy tokens of the whole
update, fixed before the backward pass, so nothing here divides by a micro-batch's count unless asked to.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slca_lightning.errors import ConfigError
from slca_lightning.functional._checks import check_same_shape


@dataclass(frozen=True, slots=True)
class ClippedObjective:
    """The clipped objective of each token; all of the shape of the log-probabilities."""

    loss: Tensor
    """To be minimised: the negated clipped objective."""
    ratio: Tensor
    """π(token) / π_old(token), above 0, with gradient."""
    clipped: Tensor
    """bool: True where the clip is active, that is where the token has no gradient."""


def ppo_clip(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2
) -> ClippedObjective:
    """Compute the clipped objective of PPO (arXiv 1707.06347) for each token.

    r = exp(log π − log π_old); loss = −min(r · A, clip(r, 1 − clip_low, 1 + clip_high) · A). Unequal bounds are
    "clip-higher" (DAPO, arXiv 2503.14476). At r = 1 the loss is −A and its gradient that of −A · log π. Where A = 0 the
    loss is 0.

    Args:
        logprobs: log-probabilities of the tokens under the policy, any shape; these carry the gradient. Finite
            everywhere: mask the result with :func:`masked_sum`, but keep infinities out of ``exp``, whose gradient
            they would spoil.
        old_logprobs: those under the policy that the ratio is taken against; same shape, no gradient flows.
        advantages: same shape; cast to the type of ``logprobs``; no gradient flows.
        clip_low: how far the ratio may fall below 1, in [0, 1].
        clip_high: how far it may rise above 1, at least 0.

    Raises:
        ConfigError: where shapes differ or a bound is out of range.
    """
    check_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    if not (0.0 <= clip_low <= 1.0 and clip_high >= 0.0):
        raise ConfigError(f"clip_low must be in [0, 1] and clip_high at least 0, got {clip_low} and {clip_high}")
    ratio = (logprobs - old_logprobs.detach()).exp()
    advantages = advantages.detach().to(ratio.dtype)
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages)
    with torch.no_grad():
        too_high = (advantages > 0) & (ratio > 1.0 + clip_high)
        too_low = (advantages < 0) & (ratio < 1.0 - clip_low)
    return ClippedObjective(loss=loss, ratio=ratio, clipped=too_high | too_low)


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum ``values`` where ``mask`` is True, as a scalar; NaN or infinity elsewhere leaves sum and gradient alone.

    Args:
        values: any shape.
        mask: the same shape, bool or zeros and ones.

    Raises:
        ConfigError: where shapes differ.
    """
    check_same_shape(values=values, mask=mask)
    # Not values * mask: NaN · 0 is NaN.
    return torch.where(mask.bool(), values, 0.0).sum()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average ``values`` where ``mask`` is True, as a scalar; 0 (with zero gradient) where it is True nowhere.

    Args:
        values: any shape.
        mask: the same shape, bool or zeros and ones.

    Raises:
        ConfigError: where shapes differ.
    """
    return masked_sum(values, mask) / mask.bool().sum().clamp_min(1)
