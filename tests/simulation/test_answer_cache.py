"""Laws of the cache: one computation a key, failures not kept, robust against cancellation and old event loops."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slca_lightning.errors import SimulatorError
from slca_lightning.simulation import Answer, CacheKey, MemoryCache, session_state
from slca_lightning.types import ToolCall

KEY = CacheKey("task", 0, "call", "state")


class Counter:
    """Computes "1", "2", ...; fails where told."""

    def __init__(self, failures=0, delay_s=0.001):
        self.count, self.failures, self.delay_s = 0, failures, delay_s

    async def __call__(self):
        self.count += 1
        answer = str(self.count)
        await asyncio.sleep(self.delay_s)
        if self.count <= self.failures:
            raise SimulatorError("down")
        return Answer(answer)


def test_concurrent_equal_requests_share_one_computation():
    cache, compute = MemoryCache(), Counter()

    async def ask():
        return await asyncio.gather(*(cache.get_or_compute(KEY, compute) for _ in range(5)))

    assert asyncio.run(ask()) == [Answer("1")] * 5
    assert asyncio.run(ask()) == [Answer("1")] * 5
    assert compute.count == len(cache) == 1


def test_a_failure_reaches_all_waiters_and_is_not_kept():
    cache, compute = MemoryCache(), Counter(failures=1)

    async def ask():
        waiters = (cache.get_or_compute(KEY, compute) for _ in range(3))
        return await asyncio.gather(*waiters, return_exceptions=True)

    assert [type(result) for result in asyncio.run(ask())] == [SimulatorError] * 3
    assert len(cache) == 0
    assert asyncio.run(ask()) == [Answer("2")] * 3


def test_a_cancelled_waiter_leaves_the_others_their_answer():
    cache, compute = MemoryCache(), Counter()

    async def ask():
        first = asyncio.create_task(cache.get_or_compute(KEY, compute))
        await asyncio.sleep(0)
        second = asyncio.create_task(cache.get_or_compute(KEY, compute))
        await asyncio.sleep(0)
        first.cancel()
        return await second, first.cancelled()

    assert asyncio.run(ask()) == (Answer("1"), True)
    assert compute.count == 1


def test_a_request_of_a_loop_that_was_stopped_is_asked_again():
    cache = MemoryCache()

    async def abandon():
        asyncio.create_task(cache.get_or_compute(KEY, Counter(delay_s=60)))  # noqa: RUF006 - abandoned on purpose
        await asyncio.sleep(0.001)

    asyncio.run(abandon())
    assert asyncio.run(cache.get_or_compute(KEY, Counter())) == Answer("1")


def test_clear_forgets_answers_and_those_under_way():
    cache, compute = MemoryCache(), Counter()

    async def ask():
        under_way = asyncio.create_task(cache.get_or_compute(KEY, compute))
        await asyncio.sleep(0)
        cache.clear()
        return await asyncio.gather(under_way, cache.get_or_compute(KEY, compute))

    assert asyncio.run(ask()) == [Answer("1"), Answer("2")]
    assert asyncio.run(cache.get_or_compute(KEY, compute)) == Answer("2")


@pytest.mark.parametrize("other", [("t2", 0, "c", "s"), ("t", 1, "c", "s"), ("t", 0, "d", "s"), ("t", 0, "c", "r")])
def test_keys_differ_in_every_part(other):
    assert CacheKey("t", 0, "c", "s") != CacheKey(*other)
    assert CacheKey("t", 0, "c", "s").digest() != CacheKey(*other).digest()


CALLS = st.lists(st.builds(ToolCall, st.text(max_size=3), st.dictionaries(st.text(max_size=2), st.text(max_size=2))))


@given(CALLS, CALLS)
def test_states_are_equal_iff_the_calls_are(one, other):
    assert (session_state(one) == session_state(other)) == (one == other)
