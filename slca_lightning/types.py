"""The typed records that the parts of the package hand to each other.

All are frozen: a rollout, once made, is evidence. Tensors enter only in :mod:`slca_lightning.rollout.collection`,
so that everything here is cheap to import, to compare and to serialise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

JSON = Any
"""A JSON value: None, bool, int, float, str, list of JSON or dict of str to JSON."""

ToolSchema = Mapping[str, Any]
"""An OpenAI-style tool: ``{"type": "function", "function": {"name", "description", "parameters"}}``."""

Message = Mapping[str, Any]
"""A chat message with at least ``role`` and ``content``."""

FinishReason = Literal["stop", "length", "turns", "failed"]
"""Why a rollout ended: the policy ended its turn without a call, a token limit, the turn limit, or a failure."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of one tool."""

    name: str
    arguments: Mapping[str, JSON] = field(default_factory=dict)
    """Argument names to JSON values. Empty for gold calls of which only the tool's name is known."""

    def canonical(self) -> str:
        """Return a text that is equal for equal calls: JSON with sorted keys and no spaces."""
        return json.dumps([self.name, self.arguments], sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class ResultStatus(StrEnum):
    """What became of a call."""

    OK = "ok"
    """The tool answered."""
    ERROR = "error"
    """The policy's call was wrong (unknown tool, broken arguments ...); the content is a fixed error text."""
    FAILED = "failed"
    """The simulator itself failed. The rollout's rewards are invalid."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The simulator's answer to one call (or to one malformed call block)."""

    call: ToolCall | None
    """The call that is answered; None where the block held no call that could be read."""
    content: str
    """The text that the policy is shown."""
    status: ResultStatus = ResultStatus.OK
    truncated: bool = False
    """True where the content was cut in the middle to the length limit."""


@dataclass(frozen=True, slots=True)
class ToolTask:
    """A prompt, the tools it may use, and the calls that solve it."""

    task_id: str
    """Unique within its source."""
    messages: tuple[Message, ...]
    """The chat so far; the last message is the user's."""
    tools: tuple[ToolSchema, ...]
    """The tools of this task, each with its JSON Schema."""
    gold_steps: tuple[tuple[ToolCall, ...], ...]
    """Steps in order; the calls of one step are made in parallel. Empty: the task needs no call."""
    allowed_tools: tuple[str, ...]
    """Names of the tools that may be called."""
    question: str = ""
    """What the user asks, as a judge is shown it."""
    tools_in_prompt: bool = False
    """True where the messages already describe the tools, so that the chat template must not do so again."""
    world_seed: int = 0
    """Seed of the world the tools live in: equal for all rollouts of a task."""
    kind: str = ""
    """A label to report by, such as ``parallel`` or a data set's subset name."""

    @property
    def gold_calls(self) -> tuple[ToolCall, ...]:
        """All gold calls, steps joined."""
        return tuple(call for step in self.gold_steps for call in step)

    @property
    def needs_call(self) -> bool:
        """Whether the task cannot be solved without a tool."""
        return any(self.gold_steps)

    def tool(self, name: str) -> ToolSchema | None:
        """Return the tool of that name, or None."""
        return next((tool for tool in self.tools if tool["function"]["name"] == name), None)


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant turn: what the policy sampled between two injected texts."""

    text: str
    """The sampled tokens, decoded, without the end-of-turn token."""
    start: int
    """Index of its first token in the response."""
    end: int
    """Index after its last sampled token in the response."""
    has_call: bool
    """Whether the text holds a tool-call attempt: an opening tag outside of thinking."""
    results: tuple[ToolResult, ...] = ()
    """The answers that were injected after the turn. Empty for the last turn."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One trajectory of the policy through one task. Tokens are as sampled and never re-encoded."""

    task: ToolTask
    member: int
    """Index of the rollout in its group, from 0."""
    weights_version: int
    """Version of the weights that sampled it."""
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    """Everything after the prompt: sampled and injected tokens."""
    policy_mask: tuple[bool, ...]
    """As long as the response; True where the policy sampled the token."""
    logprobs: tuple[float, ...]
    """As long as the response; log-probability of each sampled token under the sampling distribution, 0.0 elsewhere."""
    turns: tuple[Turn, ...]
    finish_reason: FinishReason
    failure: str | None = None
    """Why the engine or the simulator failed, where one did."""
    template_drift: bool = False
    """True where the chat template, asked again, would have rewritten an earlier turn."""

    @property
    def group(self) -> str:
        """Rollouts of one task form a group."""
        return self.task.task_id

    @property
    def run_has_call(self) -> tuple[bool, ...]:
        """Per policy run, whether it holds a tool-call attempt."""
        return tuple(turn.has_call for turn in self.turns)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """All tool results in order."""
        return tuple(result for turn in self.turns for result in turn.results)

    @property
    def final_text(self) -> str:
        """The text of the last turn, or an empty text where that turn calls a tool instead of answering."""
        return "" if not self.turns or self.turns[-1].has_call else self.turns[-1].text


@dataclass(frozen=True, slots=True)
class DemonstrationTurn:
    """One assistant turn to imitate, and what came back."""

    text: str
    """What the assistant writes, without the end-of-turn token."""
    results: tuple[str, ...] = ()
    """Contents of the tool results that follow. Empty for the last turn."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A whole answer to a task, for supervised training."""

    task: ToolTask
    turns: tuple[DemonstrationTurn, ...]


class ScoreStatus(StrEnum):
    """Whether a reward exists. A failure is not a zero."""

    SCORED = "scored"
    ABSENT = "absent"
    """There is nothing to score: the rollout has no such segment."""
    FAILED = "failed"
    """The judge or the simulator failed; the reward leaves all statistics."""


@dataclass(frozen=True, slots=True)
class Score:
    """A reward that may be absent or failed."""

    value: float | None
    """The reward; None unless scored."""
    status: ScoreStatus = ScoreStatus.SCORED
    reason: str = ""
    """Why it is absent or failed, or how it came about."""

    @classmethod
    def absent(cls, reason: str) -> Score:
        """Make the score of a segment that does not exist."""
        return cls(None, ScoreStatus.ABSENT, reason)

    @classmethod
    def failed(cls, reason: str) -> Score:
        """Make the score of a segment whose judge or simulator failed."""
        return cls(None, ScoreStatus.FAILED, reason)

    @property
    def is_failed(self) -> bool:
        """Whether the reward must leave all statistics."""
        return self.status is ScoreStatus.FAILED

    @property
    def or_zero(self) -> float:
        """The value, 0.0 where there is none. For sums and columns that also carry the status."""
        return 0.0 if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class ProcessReward:
    """The parts of the process reward of one rollout, each in [0, 1]."""

    format: float
    name: float
    key: float
    value: float
    parallel: float
    process: float
    """The weighted sum of the five parts."""
    omission: int
    """1 where the task needs a call and no call was attempted."""


@dataclass(frozen=True, slots=True)
class RewardBreakdown:
    """All that was scored of one rollout."""

    process: ProcessReward
    tool: Score
    """Reward of the tool segment: the process score, or what replaces it."""
    summary: Score
    """Reward of the summary segment, in [0, 1]."""
    total: Score
    """The one scalar that plain GRPO uses; the omission penalty where the rollout omitted its calls."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further per-rollout inputs of estimators, by the names that ``compute_advantages`` documents."""

    @property
    def omission(self) -> bool:
        """Whether the task needs a call and no call was attempted."""
        return bool(self.process.omission)
