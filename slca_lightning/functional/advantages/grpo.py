"""GRPO: one advantage per rollout, on all of its tokens (arXiv 2402.03300)."""

from __future__ import annotations

from torch import Tensor

from slca_lightning.functional.advantages.base import AdvantageInputs, estimator, spread


@estimator("grpo", required=("reward_total",), optional=("valid",), needs_segments=False)
def grpo(inputs: AdvantageInputs) -> Tensor:
    """Return the group-relative advantage of the total reward on every policy token.

    A = (R − mean(R)) / (std(R) + ε) over the members of a group with a valid reward; without std normalisation
    (Dr.GRPO, arXiv 2503.20783) A = R − mean(R). The reward is the whole rollout's, so a valid member counts even if the
    policy sampled no token in it; ``valid`` is the way to leave one out. With R = R_tool + R_summary each
    segment's tokens move with the other segment's reward; this is the baseline that ``slca`` is compared with.

    Degenerate cases: fewer than two such members, or tied rewards: 0. Tokens the policy did not sample: 0.

    Args:
        inputs: ``reward_total``, and optionally ``valid`` (0/1; default 1), each (B,).

    Returns:
        (B, T) float64.

    Raises:
        ConfigError: where a valid reward is NaN or infinite, or a flag is neither 0 nor 1.
    """
    present = inputs.flag("valid", default=True)
    return spread(inputs.normalize(inputs.reward("reward_total", used=present), present), inputs.policy_mask)
