"""What plays the tools behind the simulator: a new backend is one new file with a :class:`Backend` in it."""

from slca_lightning.simulation.backends.base import Backend, BackendRequest, ToolRefusalError
from slca_lightning.simulation.backends.embedded import EmbeddedBackend, Executor, UnknownExecutor
from slca_lightning.simulation.backends.placeholder import placeholder_answer

__all__ = [
    "Backend",
    "BackendRequest",
    "EmbeddedBackend",
    "Executor",
    "ToolRefusalError",
    "UnknownExecutor",
    "placeholder_answer",
]
