"""What all advantage estimators share: their inputs and the statistics of a group.

Shapes: B rollouts, T response tokens. Per-rollout numbers are float64 on the CPU, where sums have a fixed order: with
atomics on a GPU two equal runs could differ in the last bit, and the lock between segments is promised bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from slca_lightning.errors import ConfigError
from slca_lightning.functional.advantages._registry import EstimatorSpec, estimator, estimator_inputs, known_estimators

__all__ = [
    "EPSILON",
    "TIE_TOLERANCE",
    "AdvantageInputs",
    "EstimatorSpec",
    "estimator",
    "estimator_inputs",
    "group_normalize",
    "known_estimators",
    "present_in",
    "spread",
]

EPSILON = 1e-6
"""Added to the standard deviation, so that nearly equal rewards are not blown up."""

TIE_TOLERANCE = 1e-8
"""Rewards that differ by no more than this count as equal: what is left is rounding, not a signal."""


@dataclass(frozen=True, slots=True)
class AdvantageInputs:
    """What an estimator is given. All checks of shape have been made."""

    policy_mask: Tensor
    """(B, T) bool: True where the policy sampled the token."""
    group_index: Tensor
    """(B,) int64 on the CPU: equal for rollouts of one group, from 0."""
    columns: Mapping[str, Tensor]
    """Per-rollout inputs by name, each (B,) float64 on the CPU; may hold NaN where nothing was scored."""
    normalize_std: bool
    """Whether advantages are divided by their group's standard deviation (Dr.GRPO does not)."""
    segments: tuple[Tensor, Tensor] | None = None
    """``(tool_mask, summary_mask)``, each (B, T) bool; None for an estimator that needs none."""

    @property
    def tool_mask(self) -> Tensor:
        """(B, T) bool: the tokens of the tool segment."""
        return self._need_segments()[0]

    @property
    def summary_mask(self) -> Tensor:
        """(B, T) bool: the tokens of the summary segment."""
        return self._need_segments()[1]

    def _need_segments(self) -> tuple[Tensor, Tensor]:
        assert self.segments is not None, "register the estimator with needs_segments=True"
        return self.segments

    def reward(self, name: str, used: Tensor) -> Tensor:
        """Return a reward (B,) that is 0 outside ``used``; raise ConfigError where a used value is not finite."""
        if name not in self.columns:
            raise ConfigError(f"the reward {name!r} is needed here but was not passed")
        values = self.columns[name]
        broken = (used & ~values.isfinite()).nonzero()
        if broken.numel():
            index = int(broken[0])
            raise ConfigError(
                f"{name}[{index}] is {float(values[index])} although it is marked valid ({broken.shape[0]} rollouts "
                "like it); mark failed rewards invalid instead, they then leave all statistics"
            )
        return torch.where(used, values, 0.0)

    def flag(self, name: str, default: bool | None = None) -> Tensor:
        """Return a flag (B,) bool, or ``default`` everywhere if it was not passed."""
        if name not in self.columns and default is not None:
            return torch.full(self.group_index.shape, default)
        values = self.columns[name]
        wrong = ((values != 0) & (values != 1)).nonzero()
        if wrong.numel():
            index = int(wrong[0])
            raise ConfigError(f"{name}[{index}] is {float(values[index])}; a flag is 0 or 1")
        return values != 0

    def normalize(self, rewards: Tensor, present: Tensor) -> Tensor:
        """Return :func:`group_normalize` of ``rewards`` (B,) over the members in ``present`` (B,)."""
        return group_normalize(rewards, present, self.group_index, self.normalize_std)


def present_in(mask: Tensor) -> Tensor:
    """Return which rollouts have a token in ``mask`` (B, T), as (B,) bool on the CPU."""
    return mask.any(dim=1).cpu()


def spread(values: Tensor, mask: Tensor) -> Tensor:
    """Write ``values`` (B,) on the tokens of ``mask`` (B, T) and exact 0 elsewhere; (B, T) float64."""
    # Adding 0.0 turns -0.0 (a negative advantage under weight 0) into 0.0.
    return torch.where(mask, values.to(mask.device)[:, None] + 0.0, 0.0)


def group_normalize(rewards: Tensor, present: Tensor, group_index: Tensor, normalize_std: bool = True) -> Tensor:
    """Compare each reward with those of its group.

    Aᵢ = (Rᵢ − mean(R)) / (std(R) + ε) over the n present members of i's group, with the unbiased standard deviation
    and ε = 1e-6 (arXiv 2402.03300); Aᵢ = Rᵢ − mean(R) without std normalisation (arXiv 2503.20783). In float64.

    Exactly 0: members that are not present, groups with n < 2, groups whose rewards differ by at most 1e-8 (in float32
    seven equal rewards can leave a "std" of 1e-8 and an advantage of 0.9). Rewards of members that are not present
    are never read, so they may be NaN. The result does not depend on the order of the rollouts, to the last bit.

    Args:
        rewards: (B,).
        present: (B,) bool; True for the members that take part.
        group_index: (B,) int64, from 0; rollouts of one group need not be neighbours.
        normalize_std: divide by the standard deviation.

    Returns:
        (B,) float64 on the CPU.

    Raises:
        ConfigError: where the three do not have one shape (B,).
    """
    if not (rewards.ndim == 1 and rewards.shape == present.shape == group_index.shape):
        shapes = [tuple(tensor.shape) for tensor in (rewards, present, group_index)]
        raise ConfigError(f"rewards, present and group_index must have one shape (B,), got {shapes}")
    if not rewards.numel():
        return torch.zeros(0, dtype=torch.float64)
    present, group_index = present.bool().cpu(), group_index.cpu()
    values = torch.where(present, rewards.detach().to("cpu", torch.float64), 0.0)
    # Sums run in ascending order of the rewards, which makes them independent of the order of the rollouts.
    order = values.argsort(stable=True)
    values, here, group = values[order], present[order], group_index[order]

    num_groups = int(group.max()) + 1
    zeros = torch.zeros(num_groups, dtype=torch.float64)
    count = zeros.index_add(0, group, here.double())
    mean = zeros.index_add(0, group, values) / count.clamp_min(1)
    highest = (zeros - torch.inf).scatter_reduce(0, group, torch.where(here, values, -torch.inf), "amax")
    lowest = (zeros + torch.inf).scatter_reduce(0, group, torch.where(here, values, torch.inf), "amin")
    without_signal = (count < 2) | (highest - lowest <= TIE_TOLERANCE)

    advantages = torch.where(here, values - mean[group], 0.0)
    if normalize_std:
        variance = zeros.index_add(0, group, advantages.square()) / (count - 1).clamp_min(1)
        advantages = advantages / (variance.sqrt() + EPSILON)[group]
    advantages = torch.where(here & ~without_signal[group], advantages, 0.0)
    return torch.empty_like(advantages).index_copy_(0, order, advantages)
