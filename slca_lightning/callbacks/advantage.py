"""Segment-locked advantages: rewards in, one advantage for every policy token out."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from slca_lightning.errors import ConfigError
from slca_lightning.functional import compute_advantages, estimator_inputs, segment_masks
from slca_lightning.hooks import RolloutCallback
from slca_lightning.rollout.collection import Collection


class SegmentAdvantage(RolloutCallback):
    """Computes the advantages of an epoch's rollouts.

    Args:
        estimator: a registered name: ``slca``, ``grpo``, ``toolpo``, ``rltr`` or your own.
        boundary: how segments are told apart: ``structural`` (a last turn that calls a tool is no summary) or
            ``last_run`` (the paper's rule).
        normalize_std: whether to divide by the group's standard deviation.
        options: further options of the estimator, such as ``weight_tool`` and ``weight_summary`` of ``slca``.

    Raises:
        ConfigError: for an unknown estimator (lists the known ones), boundary or option.
    """

    def __init__(
        self,
        estimator: str = "slca",
        boundary: str = "structural",
        normalize_std: bool = True,
        options: dict[str, float] | None = None,
    ) -> None:
        known = estimator_inputs(estimator).options
        unknown = set(options or {}) - set(known)
        if unknown:
            raise ConfigError(f"{estimator} has no options {sorted(unknown)}; it has {sorted(known)}")
        if boundary not in ("structural", "last_run"):
            raise ConfigError(f"boundary must be 'structural' or 'last_run', got {boundary!r}")
        self.estimator = estimator
        self.boundary = boundary
        self.normalize_std = normalize_std
        self.options: dict[str, Any] = dict(options or {})

    def on_rollouts(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        """Set ``collection.advantages``, and take tokens whose reward failed out of the loss.

        A segment without a valid reward has nothing to learn from. Leaving its tokens in would only make the loss of
        the other tokens smaller. For an estimator of the total, such as ``grpo``, that reward is the total.
        """
        columns = collection.reward_columns()
        collection.advantages = compute_advantages(
            self.estimator,
            policy_mask=collection.policy_mask,
            groups=collection.groups,
            rewards=columns,
            run_has_call=collection.run_has_call,
            boundary=self.boundary,
            normalize_std=self.normalize_std,
            **self.options,
        ).float()
        tool, summary = segment_masks(collection.policy_mask, collection.run_has_call, self.boundary)
        of_total = "valid" in estimator_inputs(self.estimator).inputs
        for mask, flag in ((tool, "tool_valid"), (summary, "summary_valid")):
            valid = torch.tensor(columns["valid" if of_total else flag]) != 0
            collection.loss_mask &= ~mask | valid[:, None]
