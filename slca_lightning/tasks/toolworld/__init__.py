"""Toolworld: a small, seeded world of typed tools that needs no network, with tasks and demonstrations."""

from slca_lightning.tasks.toolworld.demonstrations import DemonstratorErrors, ToolWorldDemonstrations
from slca_lightning.tasks.toolworld.tasks import ToolWorldTasks
from slca_lightning.tasks.toolworld.tools import execute

__all__ = ["DemonstratorErrors", "ToolWorldDemonstrations", "ToolWorldTasks", "execute"]
