"""SLCA-GRPO: one advantage per segment, each from its own reward only (arXiv 2609.29050)."""

from __future__ import annotations

import torch
from torch import Tensor

from slca_lightning.functional.advantages.base import AdvantageInputs, estimator, present_in, spread


@estimator(
    "slca",
    required=("reward_tool", "reward_summary"),
    optional=("reward_total", "omission", "tool_valid", "summary_valid"),
)
def slca(inputs: AdvantageInputs, *, weight_tool: float = 1.0, weight_summary: float = 1.0) -> Tensor:
    """Return segment-locked advantages.

    For each segment s ∈ {tool, summary}, over the members of a group that have the segment and a valid reward for it:
    Aₛ = λₛ · (Rₛ − mean(Rₛ)) / (std(Rₛ) + ε). Tool tokens get A_tool, summary tokens A_summary, all others exactly 0.
    So ∂A(tool tokens)/∂R_summary = 0 and ∂A(summary tokens)/∂R_tool = 0, bit for bit. The weights λ go on after the
    normalisation; before it they would cancel.

    Omission guard: a rollout whose ``omission`` flag is set (the task needs a call, none was attempted) is compared by
    R_tool = 0 and R_summary = ``reward_total`` (the penalty, −0.5). A negative total alone fires nothing.

    Degenerate cases: fewer than two members with the segment, or tied rewards: that segment's advantages are 0 in this
    group. A rollout without policy tokens gets 0 everywhere and enters no statistic.

    Args:
        inputs: ``reward_tool``, ``reward_summary``, and optionally ``omission`` (0/1), ``reward_total`` (needed where
            an omission flag is set), ``tool_valid``, ``summary_valid`` (0/1; default 1), each (B,).
        weight_tool: λ_tool.
        weight_summary: λ_summary.

    Returns:
        (B, T) float64.

    Raises:
        ConfigError: where a reward that is used is NaN or infinite, or a flag is neither 0 nor 1.
    """
    omitted = inputs.flag("omission", default=False)
    has_tool = present_in(inputs.tool_mask) & inputs.flag("tool_valid", default=True)
    has_summary = present_in(inputs.summary_mask) & inputs.flag("summary_valid", default=True)
    # `reward` gives 0 outside of the rollouts it is asked for: R_tool of an omission is 0 by that.
    reward_tool = inputs.reward("reward_tool", used=has_tool & ~omitted)
    reward_summary = inputs.reward("reward_summary", used=has_summary & ~omitted)
    if omitted.any():
        penalty = inputs.reward("reward_total", used=has_summary & omitted)
        reward_summary = torch.where(omitted, penalty, reward_summary)
    advantage_tool = weight_tool * inputs.normalize(reward_tool, has_tool)
    advantage_summary = weight_summary * inputs.normalize(reward_summary, has_summary)
    return spread(advantage_tool, inputs.tool_mask) + spread(advantage_summary, inputs.summary_mask)
