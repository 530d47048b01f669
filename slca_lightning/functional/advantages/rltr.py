"""RLTR: only tool tokens learn, from the completeness of the tool use (arXiv 2508.19598)."""

from __future__ import annotations

import torch
from torch import Tensor

from slca_lightning.functional.advantages.base import AdvantageInputs, estimator, present_in, spread


@estimator("rltr", required=("completeness", "repeat_penalty", "error_penalty", "format_valid"), optional=("valid",))
def rltr(inputs: AdvantageInputs, *, format_penalty: float = -1.0) -> Tensor:
    """Return advantages of the tool tokens; summary tokens get 0.

    R = R_completeness + R_repeat + R_error, or −1 where the format is broken; A = (R − mean(R)) / (std(R) + ε) over the
    members of a group that have a tool segment and a valid reward. The penalties are passed as they are added, that
    is as numbers ≤ 0.

    Degenerate cases: fewer than two such members, or tied rewards: 0. Summary tokens and tokens the policy did not
    sample: 0.

    Args:
        inputs: ``completeness`` (share of checks passed, in [0, 1]), ``repeat_penalty``, ``error_penalty``,
            ``format_valid`` (0/1), and optionally ``valid`` (0/1; default 1), each (B,).
        format_penalty: the reward of a rollout with a broken format.

    Returns:
        (B, T) float64.

    Raises:
        ConfigError: where a reward that is used is NaN or infinite, or a flag is neither 0 nor 1.
    """
    has_tool = present_in(inputs.tool_mask) & inputs.flag("valid", default=True)
    format_valid = inputs.flag("format_valid")
    used = has_tool & format_valid
    total = sum(
        (inputs.reward(name, used) for name in ("completeness", "repeat_penalty", "error_penalty")),
        start=torch.zeros(used.shape, dtype=torch.float64),
    )
    rewards = torch.where(format_valid, total, format_penalty)
    return spread(inputs.normalize(rewards, has_tool), inputs.tool_mask)
