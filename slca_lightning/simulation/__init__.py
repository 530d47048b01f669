"""SGLS: the simulated tools, with schema checks, sessions and a cache that keeps groups consistent.

Example::

    simulator = Simulator(EmbeddedBackend(executor))
    session = simulator.session(task)  # one a rollout
    results = await session.answer([ToolCall("get_weather", {"city": "Oslo"}), Malformed("not JSON")])
    [result.status for result in results]  # OK, ERROR: one result a block, in order
    simulator.clear()  # between epochs
"""

from slca_lightning.simulation.backends import (
    Backend,
    BackendRequest,
    EmbeddedBackend,
    Executor,
    ToolRefusalError,
    UnknownExecutor,
    placeholder_answer,
)
from slca_lightning.simulation.cache import Answer, AnswerCache, CacheKey, MemoryCache, session_state
from slca_lightning.simulation.faults import ArgumentFault
from slca_lightning.simulation.limits import truncate_middle
from slca_lightning.simulation.schema import SchemaChecker
from slca_lightning.simulation.simulator import Malformed, Simulator, SimulatorSession

__all__ = [
    "Answer",
    "AnswerCache",
    "ArgumentFault",
    "Backend",
    "BackendRequest",
    "CacheKey",
    "EmbeddedBackend",
    "Executor",
    "Malformed",
    "MemoryCache",
    "SchemaChecker",
    "Simulator",
    "SimulatorSession",
    "ToolRefusalError",
    "UnknownExecutor",
    "placeholder_answer",
    "session_state",
    "truncate_middle",
]
