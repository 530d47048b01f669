"""Laws of sessions: contract 8 even for a random backend, fixed texts, failures as data, order kept."""

import asyncio
import json
import random

import pytest

from slca_lightning.errors import ConfigError, DataError, SimulatorError
from slca_lightning.simulation import Backend, EmbeddedBackend, Malformed, Simulator, ToolRefusalError, UnknownExecutor
from slca_lightning.types import ResultStatus, ToolCall, ToolTask

OK, ERROR, FAILED = ResultStatus.OK, ResultStatus.ERROR, ResultStatus.FAILED


def tool(name, properties=None, **more):
    parameters = {"type": "object", "properties": properties or {}, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = (tool("get", {"n": {"type": "integer"}}), tool("put", {"n": {"type": "integer"}}), tool("hidden"))


def task(task_id="t", world_seed=0, tools=TOOLS, allowed=("get", "put")):
    return ToolTask(task_id, ({"role": "user", "content": "?"},), tools, (), allowed, world_seed=world_seed)


def get(n, name="get"):
    return ToolCall(name, {"n": n})


class RandomBackend(Backend):
    """Never answers twice alike, after a random delay."""

    def __init__(self):
        self.requests, self.closed, self.rng = [], 0, random.Random(0)

    async def answer(self, request):
        self.requests.append(request)
        answer = f"answer {len(self.requests)}"
        await asyncio.sleep(self.rng.random() / 1000)
        return answer

    async def close(self):
        self.closed += 1


class FailingBackend(Backend):
    """Raises what it is given, then answers."""

    def __init__(self, *errors):
        self.errors, self.asked = list(errors), 0

    async def answer(self, request):
        self.asked += 1
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        return "fine"


def play(simulator, *steps, of=None):
    """Answer the steps in one session; return the contents, step by step."""

    async def run():
        session = simulator.session(of or task())
        return [[result.content for result in await session.answer(step)] for step in steps]

    return asyncio.run(run())


def answer(simulator, *calls, of=None):
    return asyncio.run(simulator.session(of or task()).answer(calls))


# Contract 8


def test_members_that_do_the_same_are_answered_the_same_by_a_random_backend():
    backend = RandomBackend()
    simulator = Simulator(backend)
    steps = [[get(1), get(2)], [get(1)], [get(3, "put")], [get(1)]]

    async def member():
        session = simulator.session(task())
        return [[result.content for result in await session.answer(step)] for step in steps]

    async def group():
        return await asyncio.gather(*(member() for _ in range(6)))

    members = asyncio.run(group())
    assert members == [members[0]] * 6
    assert len(backend.requests) == 5  # each distinct (call, state) once, although all members asked at the same time
    assert play(simulator, *steps) == members[0]


def test_other_worlds_groups_histories_and_arguments_are_asked_anew():
    simulator = Simulator(RandomBackend())
    answers = [
        *play(simulator, [get(1)])[-1],
        *play(simulator, [get(1)], of=task(world_seed=1))[-1],
        *play(simulator, [get(1)], of=task("u"))[-1],
        *play(simulator, [get(2)], [get(1)])[-1],
        *play(simulator, [get(1, "put")])[-1],
    ]
    assert len(set(answers)) == 5


def test_the_order_of_argument_names_does_not_matter():
    two = task(tools=(tool("get", {"a": {}, "b": {}}),), allowed=("get",))
    simulator = Simulator(RandomBackend())
    one = answer(simulator, ToolCall("get", {"a": 1, "b": 2}), of=two)
    assert one[0].content == answer(simulator, ToolCall("get", {"b": 2, "a": 1}), of=two)[0].content


def test_a_slip_does_not_change_the_world():
    simulator = Simulator(RandomBackend())
    clean = play(simulator, [get(1)], [get(2)])
    slips = play(simulator, [get(1), get("x")], [ToolCall("gte"), Malformed("not JSON")], [get(2)])
    assert slips[0][0] == clean[0][0]
    assert slips[2] == clean[1]


def test_the_backend_sees_nothing_the_key_does_not_hold():
    backend = RandomBackend()
    play(Simulator(backend), [get(1), get("x")], [get(2), get(3)])
    histories = [[result.call for result in request.history] for request in backend.requests]
    assert histories == [[], [get(1)], [get(1)]]  # no slips, and parallel calls do not see each other
    assert all(request.tool is TOOLS[0] and request.schema_guidance for request in backend.requests)


def test_clear_draws_a_new_world_and_close_closes_the_backend():
    backend = RandomBackend()
    simulator = Simulator(backend)
    first = play(simulator, [get(1)])
    assert play(simulator, [get(1)]) == first
    simulator.clear()
    assert play(simulator, [get(1)]) != first
    asyncio.run(simulator.close())
    assert backend.closed == 1


# Fixed texts


def test_wrong_calls_cost_nothing_and_read_the_same_every_time():
    backend = RandomBackend()
    calls = [get("x"), ToolCall("gett"), ToolCall("hidden"), ToolCall("get", {"n": 1, "m": 2}), Malformed("not JSON")]
    calls += [ToolCall("get", {"n": float("nan")})]
    texts = [[result.content for result in answer(Simulator(backend), *calls)] for _ in range(2)]
    assert texts[0] == texts[1]
    kinds = [json.loads(text)["error"]["type"] for text in texts[0]]
    assert kinds == ["invalid_arguments", "unknown_tool", "unknown_tool", "invalid_arguments", *["malformed_call"] * 2]
    assert backend.requests == []


def test_results_come_in_order_with_their_calls():
    items = [get(3), Malformed("empty"), get(1), ToolCall("nope"), get(2)]
    results = answer(Simulator(EmbeddedBackend(lambda name, arguments, seed: arguments["n"])), *items)
    assert [result.call for result in results] == [get(3), None, get(1), ToolCall("nope"), get(2)]
    assert [result.status for result in results] == [OK, ERROR, OK, ERROR, OK]
    assert [results[i].content for i in (0, 2, 4)] == ["3", "1", "2"]


def test_calls_beyond_the_limit_get_a_text():
    backend = RandomBackend()
    results = answer(Simulator(backend, max_parallel_calls=2), get(1), get(2), get(3), Malformed("x"))
    assert [result.status for result in results] == [OK, OK, ERROR, ERROR]
    assert results[2].content == '{"error":{"type":"too_many_calls","tool":"get","limit":2}}'
    assert results[3].content == '{"error":{"type":"too_many_calls","tool":null,"limit":2}}'
    assert len(backend.requests) == 2


def test_without_guidance_only_unknown_tools_are_refused():
    backend = RandomBackend()
    results = answer(Simulator(backend, schema_guidance=False), get("x"), ToolCall("nope"))
    assert [result.status for result in results] == [OK, ERROR]
    assert not backend.requests[0].schema_guidance


def test_a_step_without_calls_has_no_results():
    assert answer(Simulator(RandomBackend())) == ()


# Failures


def test_a_failing_backend_is_failed_and_asked_again():
    backend = FailingBackend(SimulatorError("connection refused"))
    simulator = Simulator(backend)

    async def members():
        return await asyncio.gather(*(simulator.session(task()).answer([get(1)]) for _ in range(3)))

    results = [result for (result,) in asyncio.run(members())]
    assert [result.status for result in results] == [FAILED] * 3
    assert results[0].content == '{"error":{"type":"simulator_failed","reason":"connection refused"}}'
    assert answer(simulator, get(1))[0].content == "fine"
    assert backend.asked == 2


def test_a_refusal_is_an_error_text_and_is_kept():
    backend = FailingBackend(ToolRefusalError("no such n"))
    simulator = Simulator(backend)
    results = answer(simulator, get(1)) + answer(simulator, get(1))
    assert results[0] == results[1]
    assert results[0].content == '{"error":{"type":"tool_error","tool":"get","reason":"no such n"}}'
    assert results[0].status is ERROR
    assert backend.asked == 1


@pytest.mark.parametrize("error", [KeyError("bug"), ZeroDivisionError("bug")])
def test_a_bug_is_raised(error):
    with pytest.raises(type(error)):
        answer(Simulator(FailingBackend(error)), get(1))


def test_long_results_are_cut_and_all_can_be_encoded():
    long = Simulator(EmbeddedBackend(lambda name, arguments, seed: "\ud800" + "x" * 500), max_result_chars=100)
    (result,) = answer(long, get(1))
    assert (len(result.content), result.truncated) == (100, True)
    assert result.content.encode().startswith(b'"?xx')
    assert not answer(long, Malformed("x"))[0].truncated


def test_limits_are_checked():
    with pytest.raises(ConfigError, match="max_parallel_calls"):
        Simulator(EmbeddedBackend(), max_parallel_calls=0)
    with pytest.raises(ConfigError, match="max_result_chars"):
        Simulator(EmbeddedBackend(), max_result_chars=10)


# The embedded backend


def test_the_executor_gets_the_world_and_its_value_errors_are_refusals():
    def executor(name, arguments, world_seed):
        if name == "put":
            raise UnknownExecutor(name)
        if arguments["n"] < 0:
            raise ValueError("n is negative")
        return {"n": arguments["n"] + world_seed}

    simulator = Simulator(EmbeddedBackend(executor))
    results = answer(simulator, get(1), get(-1), get(1, "put"), of=task(world_seed=7))
    assert [result.status for result in results] == [OK, ERROR, OK]
    assert results[0].content == '{"n":8}'
    assert json.loads(results[1].content)["error"]["reason"] == "n is negative"
    assert json.loads(results[2].content)["status"] == "ok"


def test_an_executor_that_trips_is_a_bug_unless_there_is_no_guidance():
    backend = EmbeddedBackend(lambda name, arguments, seed: arguments["absent"])
    with pytest.raises(KeyError):
        answer(Simulator(backend), get(1))
    assert answer(Simulator(backend, schema_guidance=False), get(1))[0].status is OK


def test_an_error_of_this_package_is_no_refusal():
    def executor(name, arguments, seed):
        raise DataError("a broken world")

    with pytest.raises(DataError):
        answer(Simulator(EmbeddedBackend(executor)), get(1))


def test_placeholders_are_a_function_of_world_tool_and_arguments():
    def content(call, seed=0):
        return answer(Simulator(EmbeddedBackend()), call, of=task(world_seed=seed))[0].content

    assert content(get(1)) == content(get(1))
    assert len({content(get(1)), content(get(1), seed=1), content(get(2)), content(get(1, "put"))}) == 4


@pytest.mark.parametrize("key", ["outputSchema", "output_schema", "returns"])
def test_placeholders_have_the_shape_of_the_output_schema(key):
    output = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "kind": {"enum": ["a", "b"]},
            "fixed": {"const": 5},
            "count": {"type": "integer", "minimum": 3, "maximum": 9},
            "negative": {"type": "integer", "maximum": -5},
            "share": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
            "good": {"type": "boolean"},
            "nothing": {"type": "null"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "rows": {"type": "array", "items": {"properties": {"x": {"type": "number"}}}},
        },
    }
    made = task(tools=(tool("get", **{key: output}),), allowed=("get",))
    value = json.loads(answer(Simulator(EmbeddedBackend()), ToolCall("get"), of=made)[0].content)
    assert set(value) == set(output["properties"])
    assert isinstance(value["name"], str)
    assert value["kind"] in ("a", "b")
    assert value["fixed"] == 5
    assert 3 <= value["count"] <= 9
    assert value["negative"] <= -5
    assert 0 <= value["share"] <= 1
    assert isinstance(value["good"], bool)
    assert value["nothing"] is None
    assert isinstance(value["maybe"], str)
    assert 1 <= len(value["rows"]) <= 3
    assert isinstance(value["rows"][0]["x"], float)


@pytest.mark.parametrize(
    "output", [{"type": "strange"}, {"enum": []}, {"type": []}, {"properties": None}, {"$ref": "#"}]
)
def test_placeholders_survive_odd_output_schemas(output):
    made = task(tools=(tool("get", returns=output),), allowed=("get",))
    assert answer(Simulator(EmbeddedBackend()), ToolCall("get"), of=made)[0].status is OK
