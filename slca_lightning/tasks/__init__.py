"""Sources of tasks. A new one is one new file with a :class:`TaskSource` in it."""

from slca_lightning.tasks.base import DemonstrationSource, TaskSource, epoch_indices
from slca_lightning.tasks.toolworld import ToolWorldDemonstrations, ToolWorldTasks
from slca_lightning.tasks.toucan import ToucanTasks

__all__ = [
    "DemonstrationSource",
    "TaskSource",
    "ToolWorldDemonstrations",
    "ToolWorldTasks",
    "ToucanTasks",
    "epoch_indices",
]
