"""What every judge of a final text offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from slca_lightning.types import Score, ToolResult

RATINGS: Final = {"very poor": 0.0, "poor": 0.25, "acceptable": 0.5, "good": 0.75, "excellent": 1.0}
"""A judge's words and their rewards, worst first."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One final text to rate, and what it has to be measured against."""

    question: str
    """What the user asked."""
    results: tuple[ToolResult, ...]
    """What the tools answered, in order. Empty where nothing was called."""
    final_text: str
    """The answer as the user sees it: no thinking, no call blocks."""
    seed: int
    """Seed of whatever is random in the rating."""


class Judge(ABC):
    """Rates final texts. A new judge is one new file."""

    @abstractmethod
    async def rate(self, request: JudgeRequest) -> Score:
        """Return a score whose value is one of ``RATINGS``, or a failed one. Equal requests may be rated once.

        Raises:
            JudgeError: where no rating could be had; the caller counts it as failed, never as zero.
        """

    async def close(self) -> None:  # noqa: B027  (most judges hold nothing that needs closing)
        """Release connections. The judge is not used afterwards."""
