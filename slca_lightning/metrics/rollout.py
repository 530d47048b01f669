"""Means over rollouts, each over the rollouts it applies to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

SUCCESS_THRESHOLDS = (0.7, 0.8, 0.9, 1.0)
"""Process scores from which on a rollout counts as a success; the paper reports 0.9."""

SUCCESS_SLACK = 1e-9
"""How far below a threshold still counts as reaching it, see :func:`success_at`."""

ROLLOUT_METRICS: tuple[str, ...] = (
    *(f"success@{threshold}" for threshold in SUCCESS_THRESHOLDS),
    *("name_f1", "key", "value", "arg_match", "format", "parallel", "process", "summary", "total"),
    *("joint_success", "exact_calls", "omission", "tool_turns", "calls", "redundant_calls"),
    *("truncation", "failed", "response_tokens"),
)
"""What is reported of every rollout."""


def success_at(process: float, threshold: float) -> float:
    """Return 1.0 where the process score reaches the threshold, else 0.0.

    The score is a sum of weighted parts, and floats do not add up exactly: 0.7 + 0.1 is 0.7999999999999999. Scores that
    differ for a reason differ by far more than the slack of 1e-9 that is granted.

    Raises:
        ValueError: where either is NaN or infinite; a score that does not exist is no missed success.
    """
    if not (math.isfinite(process) and math.isfinite(threshold)):
        raise ValueError(f"process and threshold must be finite, got {process} and {threshold}")
    return float(process >= threshold - SUCCESS_SLACK)


class RolloutMetrics(Metric):
    """Mean of each named value over the rollouts that have it: Σᵢ vᵢ / n, with n the number of values that exist.

    ``update`` takes one rollout at a time. A value of None (not applicable, or failed) leaves both the sum and the
    count alone, as does a name that is not given: neither is a zero. Sums and counts are float64 and add up over ranks,
    so a rank with fewer rollouts weighs less, as it should.

    Args:
        names: what may be updated; the order of the result.
        **kwargs: passed on to :class:`torchmetrics.Metric`.

    Raises:
        ValueError: where a name comes twice, or there is none.

    Example:
        >>> metrics = RolloutMetrics(["process", "summary"])
        >>> metrics.update({"process": 1.0, "summary": None})
        >>> metrics.update({"process": 0.5, "summary": None})
        >>> {name: mean.item() for name, mean in metrics.compute().items()}
        {'process': 0.75}
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = None

    sums: Tensor
    """[len(names)] float64, the sum of each value."""
    counts: Tensor
    """[len(names)] float64, over how many rollouts."""

    def __init__(self, names: Sequence[str] = ROLLOUT_METRICS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"need at least one name and each only once, got {list(names)}")
        self.names = tuple(names)
        self.add_state("sums", torch.zeros(len(self.names), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(self.names), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Mapping[str, float | None]) -> None:
        """Add one rollout.

        Raises:
            ValueError: for an unknown name, or a value that is NaN or infinite; nothing is added then.
        """
        unknown = sorted(set(values) - set(self.names))
        if unknown:
            raise ValueError(f"unknown rollout metric(s) {unknown}; known: {', '.join(self.names)}")
        row = [values.get(name) for name in self.names]
        for name, value in zip(self.names, row, strict=True):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"rollout metric {name!r} is {value}; pass None for a value that does not exist")
        device = self.sums.device
        self.sums += torch.tensor([value or 0.0 for value in row], dtype=torch.float64, device=device)
        self.counts += torch.tensor([value is not None for value in row], dtype=torch.float64, device=device)

    def compute(self) -> dict[str, Tensor]:
        """Return the mean of each name (0-d float64) that at least one rollout had a value for."""
        counts = self.counts.tolist()  # one transfer from the device, not one for each name
        return {name: self.sums[i] / self.counts[i] for i, name in enumerate(self.names) if counts[i] > 0}
