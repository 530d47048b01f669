"""SGLS: schema-guided simulation of tools. Wrong calls get fixed texts for free; valid ones go to a backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from slca_lightning.errors import ConfigError, SimulatorError
from slca_lightning.simulation import messages
from slca_lightning.simulation.backends.base import Backend, BackendRequest, ToolRefusalError
from slca_lightning.simulation.cache import Answer, AnswerCache, CacheKey, MemoryCache, session_state
from slca_lightning.simulation.limits import argument_problem, encodable, truncate_middle
from slca_lightning.simulation.schema import SchemaChecker
from slca_lightning.types import ResultStatus, ToolCall, ToolResult, ToolSchema, ToolTask

MIN_RESULT_CHARS = 64
"""Below it, little but the mark of the cut would be left of a result."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A call block in which no call could be read."""

    reason: str
    """Why, in a few fixed words: the policy reads it."""


class Simulator:
    """Plays the tools for all rollouts of a collection.

    Args:
        backend: Answers valid calls.
        max_parallel_calls: Most calls answered in one step; those beyond it get an error text.
        schema_guidance: False is the ablation "w/o SGLS": no schema checks, and the backend is told to do as if it had
            no tool definition. Unknown tools are still refused: there is nothing to simulate.
        max_result_chars: Longest result, in characters; longer ones are cut in the middle.
        cache: Where answers are kept; in memory by default.

    Raises:
        ConfigError: where a limit is too small.
    """

    def __init__(
        self,
        backend: Backend,
        max_parallel_calls: int = 20,
        schema_guidance: bool = True,
        max_result_chars: int = 2048,
        cache: AnswerCache | None = None,
    ) -> None:
        if max_parallel_calls < 1:
            raise ConfigError(f"max_parallel_calls must be at least 1, got {max_parallel_calls}")
        if max_result_chars < MIN_RESULT_CHARS:
            raise ConfigError(f"max_result_chars must be at least {MIN_RESULT_CHARS}, got {max_result_chars}")
        self.backend = backend
        self.max_parallel_calls = max_parallel_calls
        self.schema_guidance = schema_guidance
        self.max_result_chars = max_result_chars
        self.cache = MemoryCache() if cache is None else cache
        self.checker = SchemaChecker()

    def session(self, task: ToolTask) -> SimulatorSession:
        """Open a session: the tools as one rollout of ``task`` meets them."""
        return SimulatorSession(self, task)

    def clear(self) -> None:
        """Forget all answers. Call it between epochs, never while the rollouts of a group are under way.

        A task that comes back in a later epoch then meets a fresh draw of the simulator, and memory does not grow.
        """
        self.cache.clear()

    async def close(self) -> None:
        """Close the backend."""
        await self.backend.close()


class SimulatorSession:
    """The tools as one rollout meets them. Steps are answered one after the other, the calls of a step together."""

    def __init__(self, simulator: Simulator, task: ToolTask) -> None:
        self.simulator = simulator
        self.task = task
        self._tools = {name: tool for name in task.allowed_tools if (tool := task.tool(name)) is not None}
        self._history: tuple[ToolResult, ...] = ()
        self._calls: tuple[ToolCall, ...] = ()

    @property
    def history(self) -> tuple[ToolResult, ...]:
        """The calls that a tool has answered so far, in order."""
        return self._history

    async def answer(self, calls: Sequence[ToolCall | Malformed]) -> tuple[ToolResult, ...]:
        """Answer the blocks of one step, one result each, in order.

        Parallel calls do not see each other: all are answered from the state before the step, and enter the session
        together, in order, after it.

        Returns:
            Results with status OK, ERROR (the policy's fault; a fixed text) or FAILED (the backend's). No
            SimulatorError leaves this method; any other exception is a bug, and does.
        """
        state = session_state(self._calls)
        answers = (self._answer_one(index, item, state) for index, item in enumerate(calls))
        results = tuple(await asyncio.gather(*answers))
        for result in results:
            if result.status is ResultStatus.OK and result.call is not None:
                self._history += (result,)
                self._calls += (result.call,)
        return results

    async def _answer_one(self, index: int, item: ToolCall | Malformed, state: str) -> ToolResult:
        call = item if isinstance(item, ToolCall) else None
        error = self._fixed_error(index, item)
        if error is not None or call is None:
            return self._result(call, error or "", ResultStatus.ERROR)
        request = BackendRequest(
            self._tools[call.name], call, self._history, self.task.world_seed, self.simulator.schema_guidance
        )
        key = CacheKey(self.task.task_id, self.task.world_seed, call.canonical(), state)
        try:
            answer = await self.simulator.cache.get_or_compute(key, lambda: self._ask(request))
        except SimulatorError as failure:
            return self._result(call, messages.simulator_failed(str(failure)), ResultStatus.FAILED)
        return self._result(call, answer.content, answer.status)

    def _fixed_error(self, index: int, item: ToolCall | Malformed) -> str | None:
        """Return the text for what is wrong with the block, None where the backend is to answer it."""
        if index >= self.simulator.max_parallel_calls:
            name = item.name if isinstance(item, ToolCall) else None
            return messages.too_many_calls(name, self.simulator.max_parallel_calls)
        if isinstance(item, Malformed):
            return messages.malformed_call(item.reason)
        tool: ToolSchema | None = self._tools.get(item.name)
        if tool is None:
            return messages.unknown_tool(item.name, self._tools)
        problem = argument_problem(item.arguments)
        if problem is not None:
            return messages.malformed_call(problem)
        fault = self.simulator.checker.check(tool, item.arguments) if self.simulator.schema_guidance else None
        return None if fault is None else fault.text(item.name)

    async def _ask(self, request: BackendRequest) -> Answer:
        try:
            return Answer(await self.simulator.backend.answer(request))
        except ToolRefusalError as refusal:
            return Answer(messages.tool_error(request.call.name, str(refusal)), ResultStatus.ERROR)

    def _result(self, call: ToolCall | None, content: str, status: ResultStatus) -> ToolResult:
        text, truncated = truncate_middle(encodable(content), self.simulator.max_result_chars)
        return ToolResult(call, text, status, truncated)
