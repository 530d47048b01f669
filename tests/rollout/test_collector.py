"""Many rollouts at once: seeds by name, errors that say what to do, and nothing left running."""

import asyncio
import threading
import time

import pytest

from slca_lightning.errors import ConfigError, DataError
from slca_lightning.rewards.hier import HierR
from slca_lightning.rewards.judges import RuleJudge
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.collector import RolloutCollector, run_sync
from slca_lightning.rollout.engines.base import Generation, GenerationEngine
from slca_lightning.rollout.loop import RolloutLimits
from slca_lightning.simulation import Backend, Simulator


class RecordingEngine(GenerationEngine):
    """Writes the same text in every first turn, and an answer after it; notes who asked with which seed."""

    weights_version = 1

    def __init__(self, tokenizer, text):
        self.eos = tokenizer.eos_token_id
        self.texts = [tokenizer(t, add_special_tokens=False)["input_ids"] for t in (text, "All is well.")]
        self.seeds, self.in_flight = {}, set()

    async def generate(self, request):
        turns = self.seeds.setdefault(request.request_id, [])
        ids = [*self.texts[min(len(turns), 1)], self.eos]
        turns.append(request.seed)
        self.in_flight.add(request.request_id)
        await asyncio.sleep(0)
        return Generation(tuple(ids), (-1.0,) * len(ids), "stop", 1)

    def sync_weights(self, policy, version):
        raise NotImplementedError

    def release(self, request_ids):
        self.in_flight -= set(request_ids)


class SlowBackend(Backend):
    def __init__(self, error=None):
        self.error, self.started, self.finished = error, 0, 0

    async def answer(self, request):
        self.started += 1
        if self.error is not None and self.started == 3:
            raise self.error
        await asyncio.sleep(0.01 if self.error is None else 30)
        self.finished += 1
        return "{}"


@pytest.fixture
def make(script, tiny_tokenizer):
    def collector(text="Hello to you all.", backend=None, max_prompt_tokens=4000):
        engine = RecordingEngine(tiny_tokenizer, text)
        simulator, reward = Simulator(backend or SlowBackend()), HierR(RuleJudge())
        chat = ChatRenderer(tiny_tokenizer)
        return RolloutCollector(engine, simulator, reward, chat, RolloutLimits(), max_prompt_tokens)

    return collector


def seeds_of(collector, tasks, group_size=2, seed=0):
    scored = collector.collect(tasks, group_size, seed)
    by_rollout = {}
    for request_id, seeds in collector.engine.seeds.items():
        task_id, member, _ = request_id.split("/")
        by_rollout[task_id, int(member)] = seeds
    return scored, by_rollout


def test_seeds_do_not_depend_on_order_or_company(make, script):
    tasks = [script.make_task(name) for name in "abcd"]
    scored, seeds = seeds_of(make(script.call(0)), tasks)
    assert [(one.rollout.group, one.rollout.member) for one in scored] == [(t, m) for t in "abcd" for m in range(2)]
    _, backwards = seeds_of(make(script.call(0)), tasks[::-1])
    assert backwards == seeds
    _, alone = seeds_of(make(script.call(0)), tasks[2:3])
    assert alone == {key: value for key, value in seeds.items() if key[0] == "c"}
    drawn = [seed for turns in seeds.values() for seed in turns]
    assert len(drawn) == len(set(drawn)) == 4 * 2 * 2
    _, other = seeds_of(make(script.call(0)), tasks, seed=1)
    assert not set(drawn) & {seed for turns in other.values() for seed in turns}


def test_each_is_told_of_when_scored(make, script):
    told = []
    scored = make().collect([script.make_task(name) for name in "ab"], 3, 0, on_scored=told.append)
    assert len(told) == len(scored) == 6
    assert all(one in scored for one in told)


def test_equal_task_ids(make, script):
    with pytest.raises(DataError, match="same task_id"):
        make().collect([script.make_task("a"), script.make_task("a", "other")], 2, 0)


def test_prompt_too_long(make, script):
    collector = make(max_prompt_tokens=200)
    long = script.make_task("the-long-one", "word " * 300)
    with pytest.raises(DataError, match=r"the-long-one has \d+ tokens.*200.*on_long_prompt"):
        collector.collect([script.make_task("a"), long], 1, 0)
    assert not collector.engine.seeds  # nothing was started
    assert not collector.fits(long)
    assert collector.fits(script.make_task("a"))


def test_the_limit_itself_is_allowed(make, script):
    size = len(make().chat.prompt_ids(script.make_task()))
    assert make(max_prompt_tokens=size).fits(script.make_task())
    assert not make(max_prompt_tokens=size - 1).fits(script.make_task())
    with pytest.raises(ConfigError, match="max_prompt_tokens"):
        make(max_prompt_tokens=0)


def test_collects_inside_a_running_loop(make, script):
    async def notebook():
        return make().collect([script.make_task()], 2, 0)

    assert len(asyncio.run(notebook())) == 2


def test_run_sync_raises_what_the_coroutine_raises():
    async def fails():
        raise LookupError("mine")

    async def outer():
        run_sync(fails())

    for start in (lambda: run_sync(fails()), lambda: asyncio.run(outer())):
        with pytest.raises(LookupError, match="mine"):
            start()


def test_ctrl_c_leaves_nothing_running(make, script):
    backend = SlowBackend(KeyboardInterrupt())
    collector = make(script.call(0), backend)
    tasks = [script.make_task(name) for name in "abcde"]
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        collector.collect(tasks, 1, 0)
    assert time.monotonic() - started < 10  # the others, which would take 30 s, were not waited for
    assert not collector.engine.in_flight
    assert backend.finished == 0
    collector.simulator.backend = SlowBackend()
    assert len(collector.collect(tasks, 1, 0)) == 5  # and it can be used again


def test_ctrl_c_in_a_notebook_stops_the_thread(monkeypatch):
    """There the rollouts run in a thread, and the interrupt comes to the one that waits for it."""
    cancelled = []
    begun = threading.Event()

    async def long():
        begun.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    join = threading.Thread.join
    calls = []

    def interrupted_join(thread, timeout=None):
        if thread.name == "slca-rollouts" and not calls:
            calls.append(begun.wait(10))
            raise KeyboardInterrupt
        return join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted_join)

    async def notebook():
        run_sync(long())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(notebook())
    assert calls == cancelled == [True]
    assert not [thread for thread in threading.enumerate() if thread.name == "slca-rollouts"]
