"""The parser: what it reads by hand, and that no text makes it raise or lose its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.rewards.parser import MAX_JSON_DEPTH, CallProblem, parse_turn
from slca_lightning.types import ToolCall

PING = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


def block(content: str) -> str:
    return f"<tool_call>{content}</tool_call>"


def nested(depth: int) -> str:
    """A call whose whole JSON is ``depth`` levels deep."""
    return block('{"name": "ping", "arguments": {"a": ' + "[" * (depth - 2) + "]" * (depth - 2) + "}}")


def test_a_call_with_text_around_it() -> None:
    text = f"Let me see. {PING} One moment."
    turn = parse_turn(text, ["ping"])
    (call_block,) = turn.blocks
    assert text[call_block.start : call_block.end] == PING
    assert call_block.problem is None
    assert turn.valid_calls == turn.calls == (ToolCall("ping", {}),)
    assert (turn.num_open, turn.num_close, turn.has_attempt) == (1, 1, True)
    assert turn.visible_text == "Let me see.  One moment."


def test_plain_text_has_no_attempt() -> None:
    turn = parse_turn(" 3 < 4 \n")
    assert not turn.has_attempt
    assert turn.blocks == ()
    assert turn.visible_text == "3 < 4"


def test_a_list_block_holds_parallel_calls() -> None:
    turn = parse_turn(block('[{"name": "a", "arguments": {"x": 1}}, {"name": "b", "parameters": {"y": [2]}}]'))
    assert turn.valid_calls == (ToolCall("a", {"x": 1}), ToolCall("b", {"y": [2]}))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", CallProblem.EMPTY),
        (" \n", CallProblem.EMPTY),
        ("[]", CallProblem.EMPTY),
        ("oops", CallProblem.INVALID_JSON),
        ('{"name": "ping", "arguments": {"x": NaN}}', CallProblem.INVALID_JSON),
        ('{"name": "ping", "arguments": {"x": -Infinity}}', CallProblem.INVALID_JSON),
        ('{"name": "ping", "arguments": {"x": 1e999}}', CallProblem.INVALID_JSON),
        ('{"name": "ping", "arguments": {"x": ' + "9" * 5000 + "}}", CallProblem.INVALID_JSON),
        ('{"name": "ping", "arguments": {"x": "\\ud800"}}', CallProblem.INVALID_JSON),
        ('{"name": "ping", "arguments": {"x": "\ud800"}}', CallProblem.INVALID_JSON),
        ("[" * 100_000, CallProblem.TOO_DEEP),
        ("42", CallProblem.NOT_AN_OBJECT),
        ('["ping"]', CallProblem.NOT_AN_OBJECT),
        ('{"arguments": {}}', CallProblem.MISSING_NAME),
        ('{"name": "", "arguments": {}}', CallProblem.MISSING_NAME),
        ('{"name": 3, "arguments": {}}', CallProblem.MISSING_NAME),
        ('{"name": "ping"}', CallProblem.MISSING_ARGUMENTS),
        ('{"name": "ping", "arguments": "{}"}', CallProblem.INVALID_ARGUMENTS),
        ('{"name": "ping", "arguments": null, "parameters": {}}', CallProblem.INVALID_ARGUMENTS),
    ],
)
def test_a_broken_block_carries_its_problem_and_no_call(content: str, problem: CallProblem) -> None:
    (found,) = parse_turn(block(content), ["ping"]).blocks
    assert found.problem is problem
    assert found.calls == ()
    assert 0 < len(found.detail) < 300


def test_a_surrogate_pair_is_a_character() -> None:
    (call,) = parse_turn(block('{"name": "ping", "arguments": {"x": "\\ud83d\\ude00"}}')).valid_calls
    assert call.arguments == {"x": "\U0001f600"}


def test_depth_is_bounded_so_that_calls_can_be_serialised() -> None:
    assert parse_turn(nested(MAX_JSON_DEPTH)).blocks[0].problem is None
    assert parse_turn(nested(MAX_JSON_DEPTH + 1)).blocks[0].problem is CallProblem.TOO_DEEP
    wide = block('{"name": "ping", "arguments": {"a": [' + ",".join(["[]"] * 500) + "]}}")
    assert parse_turn(wide).blocks[0].problem is None


def test_an_unknown_tool_keeps_its_call_but_not_as_a_valid_one() -> None:
    turn = parse_turn(block('{"name": "pong", "arguments": {"x": 1}}'), ["ping"])
    assert turn.blocks[0].problem is CallProblem.UNKNOWN_TOOL
    assert "pong" in turn.blocks[0].detail
    assert turn.calls == (ToolCall("pong", {"x": 1}),)
    assert turn.valid_calls == ()


def test_an_unclosed_block_runs_to_the_end() -> None:
    text = 'go <tool_call>{"name": "ping", "arguments": {}}'
    turn = parse_turn(text)
    (found,) = turn.blocks
    assert (found.problem, found.start, found.end) == (CallProblem.UNCLOSED, 3, len(text))
    assert (turn.num_open, turn.num_close, turn.calls) == (1, 0, ())


def test_a_stray_closing_tag_is_counted_and_is_no_attempt() -> None:
    turn = parse_turn('{"name": "ping", "arguments": {}}</tool_call>')
    assert (turn.num_open, turn.num_close, turn.has_attempt, turn.blocks) == (0, 1, False, ())


@pytest.mark.parametrize("tag", ["think", "thinking"])
def test_a_call_inside_thinking_does_not_exist(tag: str) -> None:
    turn = parse_turn(f"<{tag}>maybe {PING}</{tag}>Hello")
    assert (turn.blocks, turn.num_open, turn.num_close) == ((), 0, 0)
    assert turn.visible_text == "Hello"
    assert parse_turn(f"Hi <{tag}>and {PING} so on").visible_text == "Hi"


def test_a_tag_in_an_argument_is_text() -> None:
    turn = parse_turn(block('{"name": "note", "arguments": {"text": "<think>"}}') + " done")
    assert turn.valid_calls == (ToolCall("note", {"text": "<think>"}),)
    assert turn.visible_text == "done"


TAGS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<thinking>", "</thinking>", "<tool"]
PIECES = ['{"name": "ping", ', '"arguments": {}}', '{"name":"ping","arguments":{"x":1}}', "NaN", "1e999", "\\ud800"]
FRAGMENTS = st.sampled_from([*TAGS, *PIECES, *'[]{},"'])
TEXTS = st.lists(FRAGMENTS | st.text(st.characters(), max_size=5), max_size=20).map("".join)
NAMES = st.text(min_size=1, max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CALLS = st.builds(ToolCall, NAMES, st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3))


@given(TEXTS)
@settings(max_examples=300, deadline=None)
def test_no_text_makes_it_raise_and_spans_stay_in_order(text: str) -> None:
    turn = parse_turn(text, ["ping"])
    end = 0
    for found in turn.blocks:
        assert end <= found.start < found.end <= len(text)
        assert text.startswith("<tool_call>", found.start)
        assert (found.problem is CallProblem.UNCLOSED) or text.endswith("</tool_call>", 0, found.end)
        assert bool(found.calls) == (found.problem in (None, CallProblem.UNKNOWN_TOOL))
        end = found.end
    assert turn.has_attempt == bool(turn.blocks)
    assert turn.num_valid <= len(turn.blocks) <= turn.num_open
    for call in turn.calls:
        call.canonical().encode()


@given(st.lists(st.lists(CALLS, min_size=1, max_size=3), max_size=3))
@settings(max_examples=60, deadline=None)
def test_rendered_calls_are_read_back(steps: list[list[ToolCall]]) -> None:
    rendered = [[{"name": call.name, "arguments": call.arguments} for call in step] for step in steps]
    # "<" escaped, as whoever renders calls must do: a closing tag ends a block wherever it stands.
    text = "so\n".join(block(json.dumps(step).replace("<", "\\u003c")) for step in rendered)
    assert parse_turn(text).valid_calls == tuple(call for step in steps for call in step)


@given(TEXTS.filter(lambda text: "</think" not in text))
@settings(max_examples=100, deadline=None)
def test_nothing_inside_thinking_counts(thought: str) -> None:
    turn = parse_turn(f"<think>{thought}</think>Fine.")
    assert (turn.blocks, turn.num_open, turn.num_close, turn.visible_text) == ((), 0, 0, "Fine.")


@pytest.mark.parametrize(
    "unit",
    [
        "<",
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "<think></thinking>",
        "<tool_call>[[[[",
        "<tool_call>{</tool_call>",
        "<tool_call></tool_call><think></think>",
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>',
    ],
)
def test_five_megabytes_of_an_adversary_are_read(unit: str) -> None:
    text = unit * (5_000_000 // len(unit))
    turn = parse_turn(text, ["a"])
    assert turn.num_open + turn.num_close <= text.count("tool_call>")


@pytest.mark.parametrize("content", ["1" * 5_000_000, "0." + "3" * 5_000_000, "[" * 5_000_000, '"' + "\\" * 5_000_000])
def test_five_megabytes_in_one_block_are_read(content: str) -> None:
    (found,) = parse_turn(block(content)).blocks
    assert found.problem is not None
