"""Every shape of gold calls means what the docstring of ``parse_gold`` says; everything else is a DataError."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.errors import DataError
from slca_lightning.tasks.gold import MAX_DEPTH, loads_json, parse_gold, plain_json
from slca_lightning.types import ToolCall

SFT_GOLD = Path(__file__).resolve().parents[3] / "shared" / "data" / "toucan_sft_preview_gold.jsonl"

ADD = {"name": "calc-add", "arguments": {"a": 1, "b": 2}}
NOW = {"name": "time-now", "arguments": {}}
ADD_CALL, NOW_CALL = ToolCall("calc-add", {"a": 1, "b": 2}), ToolCall("time-now")

SHAPES: dict[str, tuple[Any, tuple[tuple[ToolCall, ...], ...]]] = {
    "nested": ([[ADD, NOW], [ADD]], ((ADD_CALL, NOW_CALL), (ADD_CALL,))),
    "flat is sequential": ([ADD, NOW], ((ADD_CALL,), (NOW_CALL,))),
    "mixed": ([[ADD, NOW], ADD, "time-now"], ((ADD_CALL, NOW_CALL), (ADD_CALL,), (NOW_CALL,))),
    "bare names": (["a/b", "pokémcp-x", "a/b"], ((ToolCall("a/b"),), (ToolCall("pokémcp-x"),), (ToolCall("a/b"),))),
    "lists of bare names": ([["x", "y"], ["z"]], ((ToolCall("x"), ToolCall("y")), (ToolCall("z"),))),
    "a name and a call in one step": ([["time-now", ADD]], ((NOW_CALL, ADD_CALL),)),
    "None": (None, ()),
    "empty text": ("", ()),
    "blank text": ("  ", ()),
    "empty list": ([], ()),
    "JSON null": ("null", ()),
    "JSON empty list": ("[]", ()),
    "empty steps hold no call": ([[], [ADD], []], ((ADD_CALL,),)),
    "only an empty step": ([[]], ()),
    "parameters": ([{"name": "calc-add", "parameters": {"a": 1, "b": 2}}], ((ADD_CALL,),)),
    "null beside parameters": ([{**ADD, "parameters": None}], ((ADD_CALL,),)),
    "equal twice": ([{**ADD, "parameters": {"a": 1, "b": 2}}], ((ADD_CALL,),)),
    "arguments as text": ([{"name": "calc-add", "arguments": '{"a": 1, "b": 2}'}], ((ADD_CALL,),)),
    "arguments as empty text": ([{"name": "time-now", "arguments": ""}], ((NOW_CALL,),)),
    "arguments null": ([{"name": "time-now", "arguments": None}], ((NOW_CALL,),)),
    "arguments as text null": ([{"name": "time-now", "arguments": "null"}], ((NOW_CALL,),)),
    "arguments missing": ([{"name": "time-now"}], ((NOW_CALL,),)),
    "OpenAI": ([{"id": "c1", "type": "function", "function": {**ADD, "arguments": '{"a":1,"b":2}'}}], ((ADD_CALL,),)),
    "OpenAI without type": ([[{"function": ADD}, {"function": NOW}]], ((ADD_CALL, NOW_CALL),)),
    "tuples": (((ADD, NOW),), ((ADD_CALL, NOW_CALL),)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name: str) -> None:
    value, steps = SHAPES[name]
    assert parse_gold(value) == steps


@pytest.mark.parametrize("name", [name for name, (value, _) in SHAPES.items() if not isinstance(value, str)])
def test_a_json_text_of_a_shape_means_the_same(name: str) -> None:
    value, steps = SHAPES[name]
    assert parse_gold(json.dumps(value)) == steps
    assert parse_gold(json.dumps(value, ensure_ascii=False)) == steps


def test_arrays_at_every_level() -> None:
    step = np.empty(2, dtype=object)
    step[:] = [{"name": "calc-add", "arguments": {"a": np.int64(1), "b": np.array([2.5])}}, np.str_("time-now")]
    value = np.empty(2, dtype=object)
    value[:] = [step, np.array(["x", "y"], dtype=object)]
    steps = parse_gold(value)
    assert steps == ((ToolCall("calc-add", {"a": 1, "b": [2.5]}), NOW_CALL), (ToolCall("x"), ToolCall("y")))
    assert type(steps[0][0].arguments["a"]) is int  # plain, so that canonical() can write it
    assert steps[0][0].canonical() == '["calc-add",{"a":1,"b":[2.5]}]'
    assert parse_gold(np.array([], dtype=object)) == ()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (ADD, "gold calls must be a list"),
        (3, "gold calls must be a list"),
        (False, "gold calls must be a list"),
        ("calc-add", "broken JSON"),
        ('"calc-add"', "gold calls must be a list"),
        ('{"name": "calc-add"}', "gold calls must be a list"),
        ("[1", "broken JSON"),
        ("[" * 100_000, "broken JSON: nested too deeply"),
        ('["' + "9" * 5000 + '", ' + "9" * 5000 + "]", "broken JSON"),
        ([ADD, None], "gold step 2 must be a call"),
        ([[ADD, 7]], "gold step 1, call 2 must be a call"),
        ([[[ADD]]], "gold step 1, call 1 must be a call"),
        ([{}], "gold step 1 has no tool name"),
        ([{"name": ""}], "no tool name"),
        ([" "], "no tool name"),
        ([{"name": 3}], "no tool name"),
        ([json.dumps(ADD)], "JSON text where a name or a call is expected"),
        ([{"function": "calc-add"}], "'function' must be an object"),
        ([{"type": "function", "function": {"arguments": {}}}], "no tool name"),
        ([{"role": "assistant", "tool_calls": [ADD]}], "no tool name"),
        ([{"name": "x", "arguments": [1]}], "arguments must be an object"),
        ([{"name": "x", "arguments": 0}], "arguments must be an object"),
        ([{"name": "x", "arguments": "[1]"}], "arguments must be an object"),
        ([{"name": "x", "arguments": "{oops"}], "gold step 1, arguments: broken JSON"),
        ([{"name": "x", "arguments": '{"a": NaN}'}], "NaN is no JSON value"),
        ([{"name": "x", "arguments": '{"a": 1e999}'}], "a: inf is no JSON value"),
        ([{"name": "x", "arguments": {"a": float("nan")}}], "0: arguments: a: nan is no JSON value"),
        ([{"name": "x", "arguments": {"a": [0, "\ud800"]}}], "0: arguments: a: 1: a lone surrogate"),
        ([{"name": "x", "arguments": {"\udfff": 1}}], "a lone surrogate"),
        ([{"name": "x", "arguments": {1: 1}}], "the key int 1 is no text"),
        ([{"name": "x", "arguments": {"a": 1}, "parameters": {"a": 2}}], "both 'arguments' and 'parameters'"),
        (b"[]", "a value of type bytes is no JSON"),
        ({1, 2}, "a value of type set is no JSON"),
    ],
)
def test_anything_else_is_a_data_error_with_its_reason(value: object, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_gold(value)
    assert reason in str(caught.value)
    str(caught.value).encode("utf-8")  # can be printed and logged, whatever the data held


def test_a_surrogate_pair_is_a_letter() -> None:
    assert parse_gold('["\\ud83d\\ude00"]') == ((ToolCall("😀"),),)


def test_depth_is_limited() -> None:
    value: Any = 0
    for _ in range(MAX_DEPTH):
        value = [value]
    assert plain_json(value) == loads_json(json.dumps(value)) == value
    with pytest.raises(DataError, match="deep"):
        plain_json([value])
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    with pytest.raises(DataError, match="deep"):
        parse_gold(cyclic)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name.strip() and name.lstrip()[0] not in "{["
)
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
JSON_VALUES = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=10,
)
CALLS = st.builds(ToolCall, NAMES, st.dictionaries(NAMES, VALUES.filter(lambda v: not isinstance(v, str)), max_size=3))
STEPS = st.lists(st.lists(CALLS, min_size=1, max_size=3), max_size=4)


def _write(call: ToolCall, style: int) -> dict[str, Any]:
    plain = {"name": call.name, "arguments": dict(call.arguments)}
    styles: list[dict[str, Any]] = [
        plain,
        {"name": call.name, "parameters": dict(call.arguments)},
        {"name": call.name, "arguments": json.dumps(call.arguments)},
        {"type": "function", "function": plain},
    ]
    return styles[style]


@given(STEPS, st.integers(0, 3), st.booleans())
@settings(deadline=None, max_examples=60)
def test_what_is_written_is_read(steps: list[list[ToolCall]], style: int, as_text: bool) -> None:
    value = [[_write(call, style) for call in step] for step in steps]
    expected = tuple(tuple(step) for step in steps)
    assert parse_gold(json.dumps(value) if as_text else value) == expected
    flat = [call for step in value for call in step]
    assert parse_gold(flat) == tuple((call,) for step in steps for call in step)


@given(JSON_VALUES)
@settings(deadline=None, max_examples=150)
def test_any_json_is_read_or_refused(value: object) -> None:
    try:
        steps = parse_gold(value)
    except DataError:
        return
    assert all(step and all(call.name.strip() for call in step) for step in steps)
    for step in steps:
        for call in step:
            call.canonical()


@pytest.mark.skipif(not SFT_GOLD.exists(), reason="needs shared/data/ beside the repository (real Toucan rows)")
def test_real_gold_steps() -> None:
    rows = [json.loads(line) for line in SFT_GOLD.read_text(encoding="utf-8").splitlines()]
    parsed = [parse_gold(row["gold_steps"]) for row in rows]
    assert [[len(step) for step in steps] for steps in parsed] == [[2, 1, 1], [1, 1], [1, 1], [1], [1]]
    assert parsed[0][1] == (ToolCall("advanced-calculator-server-add", {"a": 70, "b": 72}),)
    for row, steps in zip(rows, parsed, strict=True):
        again = [[{"name": call.name, "arguments": call.arguments} for call in step] for step in steps]
        assert again == row["gold_steps"]  # nothing was lost
