"""Whatever happens to a row's bytes or values, it is loaded or it is a DataError, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.errors import DataError
from slca_lightning.tasks.toucan import ToucanTasks

TOOL = {
    "type": "function",
    "function": {"name": "pokémcp/draw", "description": "Draw.", "parameters": {"type": "object", "properties": {}}},
}

ROW: dict[str, Any] = {
    "prompt": [
        {"role": "system", "content": "Be brief.\n<tools>\n...\n</tools>"},
        {"role": "user", "content": "Draw a Pokémon."},
    ],
    "reward_model": {
        "ground_truth": {
            "allowed_tools": ["pokémcp/draw"],
            "gold_tool_calls": [[{"name": "pokémcp/draw", "arguments": {"a": 1}}]],
            "question_content": "Draw one.",
            "tool_schemas": json.dumps([TOOL]),
            "subset_name": "tool_call",
        },
    },
    "extra_info": {"original_turn_index": 0},
    "tools": [TOOL],
}

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()  # NaN and infinities too: json.dumps writes them
    | st.text(st.characters(), max_size=5)  # lone surrogates too
    | st.sampled_from(["{}", "[]", "[{", "pokémcp/draw", "user"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "function", "arguments", "role", "content"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def _places(value: object) -> list[tuple[Any, Any]]:
    """Every (container, key) in ``value``, so that any one of them can be replaced."""
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return []
    return [(value, key) for key, _ in items] + [place for _, item in items for place in _places(item)]


@st.composite
def rows_with_replaced_values(draw: st.DrawFn) -> bytes:
    row = copy.deepcopy(ROW)
    for _ in range(draw(st.integers(1, 2))):
        container, key = draw(st.sampled_from(_places(row)))
        if isinstance(container, dict) and draw(st.booleans()):
            del container[key]
        else:
            container[key] = draw(JSON_VALUES)
    return json.dumps(row).encode()


@st.composite
def rows_with_broken_bytes(draw: st.DrawFn) -> bytes:
    raw = json.dumps(ROW, ensure_ascii=False).encode()
    start = draw(st.integers(0, len(raw)))
    end = draw(st.integers(start, min(len(raw), start + 20)))
    middle = draw(st.binary(max_size=5)).replace(b"\n", b"")
    return raw[:start] + middle + raw[end:]


@given(rows_with_replaced_values() | rows_with_broken_bytes())
@settings(deadline=None, max_examples=250)
def test_corrupted_rows(tmp_path_factory: pytest.TempPathFactory, line: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "corrupted.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b"\n" + line + b"\n")
    tolerant = ToucanTasks(path, on_bad_row="skip")
    assert len(tolerant) + len(tolerant.skipped) == 2
    if tolerant.skipped:
        with pytest.raises(DataError) as caught:
            ToucanTasks(path)
        assert str(caught.value).startswith(f"{path}:2: ")
        str(caught.value).encode("utf-8")  # can be printed and logged, whatever the row held
        assert [bad.line for bad in tolerant.skipped] == [2]
        assert tolerant.skipped[0].reason in str(caught.value)
        return
    strict = ToucanTasks(path)
    assert list(strict) == list(tolerant)
    json.dumps(list(strict[1].messages), allow_nan=False).encode("utf-8")
    assert {call.name for call in strict[1].gold_calls} <= set(strict[1].allowed_tools)
    assert strict[1].messages[-1]["role"] == "user"
