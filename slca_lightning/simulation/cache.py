"""Equal calls in equal sessions of one group get equal answers (contract 8).

A group's rewards are compared with each other. If the simulator answered two members differently although they did the
same, its noise would become part of the baseline and, through it, an advantage.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import astuple, dataclass

from slca_lightning.types import ResultStatus, ToolCall


@dataclass(frozen=True, slots=True)
class CacheKey:
    """All that an answer may depend on."""

    group: str
    """The task's id."""
    world_seed: int
    call: str
    """The tool's name and arguments, as :meth:`ToolCall.canonical` writes them."""
    state: str
    """Digest of the session so far; see :func:`session_state`."""

    def digest(self) -> str:
        """Return the key as a hexadecimal SHA-256, stable across processes."""
        return _sha256(json.dumps(astuple(self)))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool said, before it is cut to length: an answer (OK) or a refusal (ERROR). Failures are never cached."""

    content: str
    status: ResultStatus = ResultStatus.OK


Compute = Callable[[], Awaitable[Answer]]


class AnswerCache(ABC):
    """Remembers answers, and lets concurrent equal requests share one computation."""

    @abstractmethod
    async def get_or_compute(self, key: CacheKey, compute: Compute) -> Answer:
        """Return the answer of ``key``, from ``compute`` where there is none yet.

        While one caller computes, all others with the same key wait for its result: without that, members of a group
        that ask at the same moment would get several answers. An exception reaches all of them and is not kept.
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget all answers, including those under way."""


class MemoryCache(AnswerCache):
    """Keeps answers in memory until :meth:`clear`.

    Deliberately unbounded: an evicted answer would be computed anew, and a member that comes late would then see
    another world than its group. A collection of 2,048 rollouts with ten calls of 2 kB each takes about 40 MB; cleared
    every epoch, it does not grow.
    """

    def __init__(self) -> None:
        self._answers: dict[CacheKey, Answer] = {}
        self._pending: dict[CacheKey, asyncio.Future[Answer]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    async def get_or_compute(self, key: CacheKey, compute: Compute) -> Answer:
        """Return the answer of ``key``; see :meth:`AnswerCache.get_or_compute`."""
        if key in self._answers:
            return self._answers[key]
        pending = self._pending.get(key)
        # One left by an event loop that was stopped midway would never finish.
        if pending is None or pending.get_loop() is not asyncio.get_running_loop():
            pending = asyncio.ensure_future(compute())
            self._pending[key] = pending
            pending.add_done_callback(lambda done: self._finish(key, done))
        # Shielded: a rollout that is cancelled must not take the answer from the others that wait for it.
        return await asyncio.shield(pending)

    def clear(self) -> None:
        """Forget all answers, including those under way."""
        self._answers.clear()
        self._pending.clear()

    def _finish(self, key: CacheKey, done: asyncio.Future[Answer]) -> None:
        current = self._pending.get(key) is done
        if current:
            del self._pending[key]
        # Asking for the exception also marks it as seen, where every waiter has been cancelled.
        if not done.cancelled() and done.exception() is None and current:
            self._answers[key] = done.result()


def session_state(calls: Iterable[ToolCall]) -> str:
    """Return a digest of a session's earlier successful calls, in order.

    Only successful ones: a refused call changed nothing in the world, so that a member that recovers from a slip meets
    the same world as one that made none. Only calls, not their results: within a group, equal calls had equal results.
    """
    return _sha256("\n".join(call.canonical() for call in calls))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
