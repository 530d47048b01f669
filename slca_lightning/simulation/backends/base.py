"""What answers a call that is valid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from slca_lightning.types import ToolCall, ToolResult, ToolSchema


@dataclass(frozen=True, slots=True)
class BackendRequest:
    """One call to answer. It holds nothing that the cache's key does not determine, such as which member asks."""

    tool: ToolSchema
    """The called tool's definition."""
    call: ToolCall
    history: tuple[ToolResult, ...]
    """The session's earlier calls that a tool answered, in order. Refused ones changed nothing and are left out."""
    world_seed: int
    """Seed of the world the tools live in."""
    schema_guidance: bool
    """False: do as if the tool's definition were unknown (the ablation without SGLS)."""


class ToolRefusalError(Exception):
    """Raised by a backend where the tool, rightly, refuses the call. The policy reads the message as a fixed text.

    The message must be a function of the request, as an answer is.
    """


class Backend(ABC):
    """Plays the tools. Has to take many requests at once; how many it serves at a time is its own affair."""

    @abstractmethod
    async def answer(self, request: BackendRequest) -> str:
        """Return what the tool answers, JSON as text.

        Raises:
            SimulatorError: where the backend failed: after its own retries, say. The rollout becomes invalid.
            ToolRefusalError: where the call is wrong in a way the schema cannot tell.
        """

    async def close(self) -> None:  # noqa: B027 - most backends hold nothing open
        """Release connections and files. May be called more than once."""
