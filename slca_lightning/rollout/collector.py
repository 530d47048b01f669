"""Many rollouts at once: groups of them, each scored as soon as it is finished."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from slca_lightning.errors import ConfigError, DataError
from slca_lightning.rewards.hier import HierR
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.engines.base import GenerationEngine
from slca_lightning.rollout.loop import RolloutLimits, RolloutRequest, run_rollout
from slca_lightning.seeding import derive_seed
from slca_lightning.simulation import Simulator
from slca_lightning.types import RewardBreakdown, Rollout, ToolTask

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """A rollout and what was scored of it."""

    rollout: Rollout
    reward: RewardBreakdown


OnScored = Callable[[ScoredRollout], None]
"""Is told of each rollout as soon as it is scored; for progress bars."""


class RolloutCollector:
    """Rolls out groups of tasks with one engine, one simulator and one reward.

    Args:
        engine: samples the turns.
        simulator: answers the calls.
        reward: scores finished rollouts.
        chat: renders prompts and results.
        limits: how far a rollout may go.
        max_prompt_tokens: longer prompts are an error; see :meth:`fits` for leaving them out.
    """

    def __init__(
        self,
        engine: GenerationEngine,
        simulator: Simulator,
        reward: HierR,
        chat: ChatRenderer,
        limits: RolloutLimits,
        max_prompt_tokens: int,
    ) -> None:
        if max_prompt_tokens < 1:
            raise ConfigError(f"max_prompt_tokens must be at least 1, got {max_prompt_tokens}")
        self.engine = engine
        self.simulator = simulator
        self.reward = reward
        self.chat = chat
        self.limits = limits
        self.max_prompt_tokens = max_prompt_tokens

    def fits(self, task: ToolTask) -> bool:
        """Whether the prompt of ``task`` is within the limit."""
        return len(self.chat.prompt_ids(task)) <= self.max_prompt_tokens

    def collect(
        self,
        tasks: Sequence[ToolTask],
        group_size: int,
        seed: int,
        temperature: float = 1.0,
        on_scored: OnScored | None = None,
    ) -> list[ScoredRollout]:
        """Roll out every task ``group_size`` times and return the scored rollouts, group by group.

        Args:
            tasks: with different ids: the rollouts of one id are one group.
            group_size: rollouts of each task.
            seed: decides all samples; a rollout's seed derives from it, the task's id and the member's index, and so
                depends on nothing that happens to other rollouts.
            temperature: of sampling; 0 takes the likeliest tokens.
            on_scored: is told of each rollout when it is scored.

        Raises:
            DataError: for two tasks of one id, or a prompt that is too long.
        """
        if len({task.task_id for task in tasks}) != len(tasks):
            raise DataError("two tasks of one collection have the same task_id; their rollouts would be one group")
        requests = []
        for task in tasks:
            prompt_ids = tuple(self.chat.prompt_ids(task))
            if len(prompt_ids) > self.max_prompt_tokens:
                raise DataError(
                    f"the prompt of task {task.task_id} has {len(prompt_ids)} tokens, more than max_prompt_tokens = "
                    f"{self.max_prompt_tokens}; raise the limit, or leave long prompts out with on_long_prompt: drop"
                )
            requests += [
                RolloutRequest(task, prompt_ids, member, derive_seed(seed, task.task_id, member), temperature)
                for member in range(group_size)
            ]
        self.simulator.clear()
        return run_sync(self._run(requests, on_scored))

    async def _run(self, requests: Sequence[RolloutRequest], on_scored: OnScored | None) -> list[ScoredRollout]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(request, on_scored)) for request in requests]
        except BaseExceptionGroup as errors:
            # The first to fail; the others were cancelled, or failed for the same reason. Callers catch what it is.
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(self, request: RolloutRequest, on_scored: OnScored | None) -> ScoredRollout:
        session = self.simulator.session(request.task)
        rollout = await run_rollout(request, self.engine, session, self.chat, self.limits)
        scored = ScoredRollout(rollout, await self.reward.score(rollout, request.seed))
        if on_scored is not None:
            on_scored(scored)
        return scored


def run_sync(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, also where this thread already runs an event loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: list[_T] = []
    errors: list[BaseException] = []
    loop = asyncio.new_event_loop()

    def target() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                outcome.append(runner.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread, where it is raised
            errors.append(error)

    thread = threading.Thread(target=target, name="slca-rollouts")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        with contextlib.suppress(RuntimeError):  # the loop has closed: there is nothing left to stop
            loop.call_soon_threadsafe(_cancel_all, loop)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return outcome[0]


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
