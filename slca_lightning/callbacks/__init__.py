"""Callbacks: advantages, weights for the engine, logs, progress, and exports."""

from slca_lightning.callbacks.advantage import SegmentAdvantage
from slca_lightning.callbacks.hf_export import HFExport
from slca_lightning.callbacks.progress import RolloutProgress
from slca_lightning.callbacks.rollout_logger import RolloutLogger
from slca_lightning.callbacks.weight_sync import WeightSync

__all__ = ["HFExport", "RolloutLogger", "RolloutProgress", "SegmentAdvantage", "WeightSync"]
