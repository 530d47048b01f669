"""A policy and tools that follow a script, so that every token of a rollout is known beforehand."""

import asyncio
from types import SimpleNamespace

import pytest

from slca_lightning.errors import EngineError
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.engines.base import Generation, GenerationEngine
from slca_lightning.rollout.loop import RolloutLimits, RolloutRequest, run_rollout
from slca_lightning.simulation import Backend, Simulator
from slca_lightning.types import ToolTask

SCHEMA = {
    "type": "function",
    "function": {"name": "say", "description": "Says it", "parameters": {"type": "object", "properties": {}}},
}


def make_task(task_id="t", content="What is new?", tools=(SCHEMA,), **more):
    return ToolTask(task_id, ({"role": "user", "content": content},), tuple(tools), (), ("say",), content, **more)


class ScriptedEngine(GenerationEngine):
    """Samples scripted token ids, one entry a turn; an exception in the script is raised."""

    weights_version = 7

    def __init__(self, turns, reasons=()):
        self.turns, self.reasons = list(turns), list(reasons)
        self.requests, self.released = [], []

    async def generate(self, request):
        index = len(self.requests)
        self.requests.append(request)
        await asyncio.sleep(0)
        ids = self.turns[index]
        if isinstance(ids, BaseException):
            raise ids
        reason = self.reasons[index] if index < len(self.reasons) else "stop"
        if len(ids) > request.max_new_tokens:
            ids, reason = ids[: request.max_new_tokens], "length"
        return Generation(tuple(ids), tuple(-0.5 - i for i in range(len(ids))), reason, self.weights_version)

    def sync_weights(self, policy, version):
        raise NotImplementedError

    def release(self, request_ids):
        self.released += request_ids


class ScriptedBackend(Backend):
    """Answers call number n of the rollout with the n-th text of the script."""

    def __init__(self, answers):
        self.answers = list(answers)

    async def answer(self, request):
        answer = self.answers[request.call.arguments["n"]]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def roll(tokenizer, turns, answers=(), task=None, reasons=(), limits=None, **options):
    """Run the real loop over scripted turns (texts, token ids or exceptions) and answers."""
    chat = ChatRenderer(tokenizer, options.pop("template_options", None))
    task = task or make_task()
    scripted = [[*chat.encode(turn), chat.end_of_turn_id] if isinstance(turn, str) else turn for turn in turns]
    engine = ScriptedEngine(scripted, reasons)
    session = Simulator(ScriptedBackend(answers), **options).session(task)
    request = RolloutRequest(task, tuple(chat.prompt_ids(task)), member=0, seed=3)
    rollout = asyncio.run(run_rollout(request, engine, session, chat, limits or RolloutLimits()))
    assert engine.released == [request.request_id]  # whatever happened, nothing stays cached
    check_tokens(rollout)
    return SimpleNamespace(rollout=rollout, chat=chat, engine=engine, scripted=scripted, task=task)


def check_tokens(rollout):
    """Whatever became of a rollout: each token is policy or injected, and the turns tile the policy's tokens."""
    mask = rollout.policy_mask
    assert len(rollout.response_ids) == len(mask) == len(rollout.logprobs)
    assert all((logprob < 0) == sampled for logprob, sampled in zip(rollout.logprobs, mask, strict=True))
    tiled = [False] * len(mask)
    for turn in rollout.turns:
        assert turn.start < turn.end
        assert not any(tiled[turn.start : turn.end])
        tiled[turn.start : turn.end] = [True] * (turn.end - turn.start)
    assert tuple(tiled) == mask
    runs = sum(sampled and (i == 0 or not mask[i - 1]) for i, sampled in enumerate(mask))
    assert runs == len(rollout.turns) == len(rollout.run_has_call)


def call(n, name="say"):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"n": {n}}}}}\n</tool_call>'


@pytest.fixture(scope="session")
def script():
    """The helpers of this file: test modules are imported by path, and so cannot import each other."""
    return SimpleNamespace(
        roll=roll,
        call=call,
        make_task=make_task,
        check_tokens=check_tokens,
        ScriptedEngine=ScriptedEngine,
        ScriptedBackend=ScriptedBackend,
        EngineError=EngineError,
    )
