"""Laws of cutting, of what arguments may be, and of the fixed texts."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slca_lightning.simulation import messages, truncate_middle
from slca_lightning.simulation.limits import MAX_ARGUMENT_DEPTH, argument_problem, encodable


@given(st.text(max_size=400), st.integers(0, 450))
def test_truncation_keeps_head_and_tail_within_the_limit(text, limit):
    cut, truncated = truncate_middle(text, limit)
    assert len(cut) <= limit
    assert truncated == (len(text) > limit)
    if not truncated:
        assert cut == text


@given(st.text("abc", min_size=65, max_size=2000), st.integers(64, 300))
def test_the_marker_counts_what_is_gone(text, limit):
    cut, truncated = truncate_middle(text, limit)
    if truncated:
        head, count, tail = re.fullmatch(r"(.*?)\.\.\.\[(\d+) characters cut\]\.\.\.(.*)", cut).groups()
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + int(count) + len(tail) == len(text)
        assert 0 <= len(head) - len(tail) <= 1
        assert len(cut) >= limit - 1  # one less where the count has a digit less than the length


def test_truncation_by_hand():
    text, truncated = truncate_middle("a" * 50 + "b" * 50, 40)
    assert (text, truncated) == ("aaaaaaa...[86 characters cut]...bbbbbbb", True)
    assert truncate_middle("abcdef", 3) == ("abc", True)
    with pytest.raises(ValueError, match="limit"):
        truncate_middle("", -1)


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, None),
        ({"a": [1, {"b": 2.5}]}, None),
        (nested(MAX_ARGUMENT_DEPTH), None),
        (nested(MAX_ARGUMENT_DEPTH + 1), "deeper"),
        (nested(100_000), "deeper"),
        ({"a": [float("nan")]}, "number"),
        ({"a": {"b": float("inf")}}, "number"),
        ([], "object"),
    ],
)
def test_what_arguments_may_be(arguments, problem):
    found = argument_problem(arguments)
    assert found is None if problem is None else problem in found


@given(st.text(st.characters(), max_size=300))
def test_texts_are_short_json_and_can_be_encoded(text):
    for message in (
        messages.unknown_tool(text, ["get_weather", text]),
        messages.invalid_arguments(text, text, text, text),
        messages.malformed_call(text),
        messages.too_many_calls(text, 20),
        messages.tool_error(text, text),
        messages.simulator_failed(text),
    ):
        assert set(json.loads(message)) == {"error"}
        assert encodable(message).encode()
        assert len(json.dumps(json.loads(message), ensure_ascii=False)) < 1200


def test_the_texts_are_fixed():
    assert messages.unknown_tool("get_wether", {"get_weather", "get_time", "send"}) == (
        '{"error":{"type":"unknown_tool","tool":"get_wether","near":["get_weather","get_time"]}}'
    )
    assert messages.invalid_arguments("f", "a.b[0]", "string", "integer") == (
        '{"error":{"type":"invalid_arguments","tool":"f","path":"a.b[0]","expected":"string","got":"integer"}}'
    )
    assert messages.malformed_call("not JSON") == '{"error":{"type":"malformed_call","reason":"not JSON"}}'
    assert messages.too_many_calls("f", 2) == '{"error":{"type":"too_many_calls","tool":"f","limit":2}}'
    assert messages.tool_error("f", "no such city") == (
        '{"error":{"type":"tool_error","tool":"f","reason":"no such city"}}'
    )
    assert messages.simulator_failed("x") == '{"error":{"type":"simulator_failed","reason":"x"}}'


def test_the_known_names_order_does_not_matter():
    names = ["get_a", "get_b", "get_c", "get_d"]
    assert messages.unknown_tool("get_x", names) == messages.unknown_tool("get_x", names[::-1])
