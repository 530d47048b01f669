"""Metrics in torchmetrics' form: state that adds up over ranks and survives a checkpoint."""

from slca_lightning.metrics.rollout import ROLLOUT_METRICS, SUCCESS_THRESHOLDS, RolloutMetrics, success_at

__all__ = ["ROLLOUT_METRICS", "SUCCESS_THRESHOLDS", "RolloutMetrics", "success_at"]
