"""SLCA-GRPO for tool-calling language models: one advantage per segment of a rollout, in PyTorch Lightning.

The names below are imported when they are first asked for: ``import slca_lightning`` alone loads neither torch nor
Lightning nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slca_lightning.callbacks import HFExport, RolloutLogger, RolloutProgress, SegmentAdvantage, WeightSync
    from slca_lightning.datamodules import RolloutDataModule, SFTDataModule
    from slca_lightning.errors import ConfigError, DataError, EngineError, JudgeError, SimulatorError, SLCAError
    from slca_lightning.functional import compute_advantages, segment_masks
    from slca_lightning.modules import SFTModule, SLCAModule
    from slca_lightning.rewards import HierR, ProcessWeights, RuleJudge, parse_turn, process_reward
    from slca_lightning.simulation import EmbeddedBackend, Simulator
    from slca_lightning.types import RewardBreakdown, Rollout, Score, ToolCall, ToolResult, ToolTask

try:
    __version__ = version("slca-lightning")
except PackageNotFoundError:  # a copy of the folder that nobody installed
    __version__ = "unknown"

_HOME = {
    "callbacks": ("HFExport", "RolloutLogger", "RolloutProgress", "SegmentAdvantage", "WeightSync"),
    "datamodules": ("RolloutDataModule", "SFTDataModule"),
    "errors": ("ConfigError", "DataError", "EngineError", "JudgeError", "SLCAError", "SimulatorError"),
    "functional": ("compute_advantages", "segment_masks"),
    "modules": ("SFTModule", "SLCAModule"),
    "rewards": ("HierR", "ProcessWeights", "RuleJudge", "parse_turn", "process_reward"),
    "simulation": ("EmbeddedBackend", "Simulator"),
    "types": ("RewardBreakdown", "Rollout", "Score", "ToolCall", "ToolResult", "ToolTask"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "ConfigError",
    "DataError",
    "EmbeddedBackend",
    "EngineError",
    "HFExport",
    "HierR",
    "JudgeError",
    "ProcessWeights",
    "RewardBreakdown",
    "Rollout",
    "RolloutDataModule",
    "RolloutLogger",
    "RolloutProgress",
    "RuleJudge",
    "SFTDataModule",
    "SFTModule",
    "SLCAError",
    "SLCAModule",
    "Score",
    "SegmentAdvantage",
    "Simulator",
    "SimulatorError",
    "ToolCall",
    "ToolResult",
    "ToolTask",
    "WeightSync",
    "__version__",
    "compute_advantages",
    "parse_turn",
    "process_reward",
    "segment_masks",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
