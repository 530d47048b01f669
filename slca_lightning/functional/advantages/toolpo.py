"""ToolPO: a bonus for tool tokens on top of the outcome's advantage (DeepAgent, arXiv 2510.21618)."""

from __future__ import annotations

from torch import Tensor

from slca_lightning.functional.advantages.base import AdvantageInputs, estimator, present_in, spread


@estimator("toolpo", required=("reward_success", "reward_action"), optional=("success_valid", "action_valid"))
def toolpo(inputs: AdvantageInputs, *, action_weight: float = 1.0) -> Tensor:
    """Return the outcome's advantage on all policy tokens plus the action's on tool tokens.

    A(summary token) = A_success and A(tool token) = A_success + w · A_action, where A = (R − mean(R)) / (std(R) + ε);
    A_success over the members of a group with a valid outcome, which is the whole rollout's, A_action over those with a
    tool segment and a valid action reward. Tool tokens still move with the outcome: the segments are not locked.

    Degenerate cases: fewer than two such members, or tied rewards: that term is 0. Tokens the policy did not sample: 0.

    Args:
        inputs: ``reward_success`` (the binary outcome), ``reward_action`` (correct calls / gold calls), and optionally
            ``success_valid``, ``action_valid`` (0/1; default 1), each (B,).
        action_weight: w.

    Returns:
        (B, T) float64.

    Raises:
        ConfigError: where a valid reward is NaN or infinite, or a flag is neither 0 nor 1.
    """
    valid = inputs.flag("success_valid", default=True)
    has_tool = present_in(inputs.tool_mask) & inputs.flag("action_valid", default=True)
    success = inputs.normalize(inputs.reward("reward_success", used=valid), valid)
    action = inputs.normalize(inputs.reward("reward_action", used=has_tool), has_tool)
    return spread(success, inputs.policy_mask) + spread(action_weight * action, inputs.tool_mask)
