"""Toucan rows become tasks; a bad row is a DataError that names file and line, or is skipped and counted."""

from __future__ import annotations

import gzip
import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slca_lightning.errors import ConfigError, DataError
from slca_lightning.seeding import derive_seed
from slca_lightning.tasks.toucan import BadRow, ToucanTasks, toucan_task
from slca_lightning.types import ToolCall

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "toucan_rl_preview.jsonl"
needs_real_rows = pytest.mark.skipif(
    not REAL.exists(), reason="needs shared/data/ beside the repository (real Toucan rows)"
)

TOOL = {
    "type": "function",
    "function": {"name": "pokémcp/draw", "description": "Draw.", "parameters": {"type": "object", "properties": {}}},
}


def good_row() -> dict[str, Any]:
    return {
        "prompt": [
            {"role": "system", "content": "Be brief.\n<tools>\n...\n</tools>"},
            {"role": "user", "content": "Draw a Pokémon."},
        ],
        "data_source": "toucan_toolcall",
        "reward_model": {
            "ground_truth": {
                "allowed_tools": ["pokémcp/draw"],
                "gold_tool_calls": ["pokémcp/draw"],
                "question_content": "Draw one.",
                "tool_schemas": json.dumps([TOOL]),
                "subset_name": "tool_call",
            },
            "style": "rule",
        },
        "extra_info": {"need_tools_kwargs": False, "original_turn_index": 0},
        "tools": json.dumps([TOOL], ensure_ascii=False),
    }


def truth(row: dict[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = row["reward_model"]["ground_truth"]
    return inner


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    row = good_row()
    change(row)
    return row


def write(folder: Path, *lines: object, name: str = "rows.jsonl") -> Path:
    path = folder / name
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(texts) + b"\n")
    return path


# --- rows that can be used ---


def test_a_row_becomes_a_task(tmp_path: Path) -> None:
    (task,) = ToucanTasks(write(tmp_path, good_row()))
    assert task.task_id == "rows:1"
    assert task.world_seed == derive_seed("toucan", "rows:1")
    assert task.messages == tuple(good_row()["prompt"])
    assert task.tools == (TOOL,)
    assert task.tool("pokémcp/draw") == TOOL
    assert task.gold_steps == ((ToolCall("pokémcp/draw"),),)
    assert task.allowed_tools == ("pokémcp/draw",)
    assert (task.question, task.kind, task.tools_in_prompt) == ("Draw one.", "tool_call", True)
    assert task.needs_call


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row["reward_model"].update(ground_truth=json.dumps(truth(row))),
        lambda row: row.update(tools=[TOOL]),
        lambda row: row.update(tools=None),
        lambda row: row.pop("tools"),
        lambda row: row.pop("extra_info"),
        lambda row: row.update(extra_info={}),
        lambda row: truth(row).update(tool_schemas=[TOOL]),
        lambda row: truth(row).pop("tool_schemas"),
        lambda row: truth(row).update(gold_tool_calls=[["pokémcp/draw"]]),
        lambda row: truth(row).update(gold_tool_calls='[{"name": "pokémcp/draw", "arguments": "{}"}]'),
    ],
)
def test_other_spellings_of_the_same_row(change: Callable[[dict[str, Any]], object]) -> None:
    assert toucan_task(changed(change), "rows:1") == toucan_task(good_row(), "rows:1")


def test_defaults() -> None:
    row = good_row()
    del truth(row)["question_content"], truth(row)["subset_name"]
    row["prompt"][0]["content"] = "Be brief."
    truth(row)["gold_tool_calls"] = None
    task = toucan_task(row, "x")
    assert (task.question, task.kind) == ("Draw a Pokémon.", "")
    assert not task.tools_in_prompt
    assert not task.needs_call


def test_only_a_system_message_describes_tools() -> None:
    row = good_row()
    row["prompt"] = [{"role": "user", "content": "What does <tools> mean?"}]
    assert not toucan_task(row, "x").tools_in_prompt


def test_a_task_without_tools() -> None:
    row = changed(lambda row: row.update(tools="[]"))
    truth(row).update(allowed_tools=[], gold_tool_calls=[])
    task = toucan_task(row, "x")
    assert task.tools == task.allowed_tools == task.gold_steps == ()


def test_line_numbers_count_blank_lines_and_ids_survive_skipping(tmp_path: Path) -> None:
    row = json.dumps(good_row()).encode()
    path = write(tmp_path, b"\xef\xbb\xbf" + row, b"", row + b"\r", b"{", row)
    source = ToucanTasks(path, on_bad_row="skip")
    assert [task.task_id for task in source] == ["rows:1", "rows:3", "rows:5"]
    assert [bad.line for bad in source.skipped] == [4]
    assert len({task.world_seed for task in source}) == 3


def test_line_separators_inside_texts_do_not_split_rows(tmp_path: Path) -> None:
    row = changed(lambda row: row["prompt"][-1].update(content="one\u2028two\x85three"))
    (task,) = ToucanTasks(write(tmp_path, json.dumps(row, ensure_ascii=False).encode()))
    assert task.messages[-1]["content"] == "one\u2028two\x85three"


def test_gzip_reads_the_same(tmp_path: Path) -> None:
    plain = write(tmp_path, good_row(), good_row())
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(ToucanTasks(packed)) == list(ToucanTasks(str(plain)))


def test_a_source_pickles(tmp_path: Path) -> None:
    # Data loaders with workers and launchers send it to other processes.
    source = ToucanTasks(write(tmp_path, good_row(), {}), on_bad_row="skip")
    again = pickle.loads(pickle.dumps(source))  # noqa: S301 (our own bytes)
    assert list(again) == list(source)
    assert again.skipped == source.skipped


@needs_real_rows
def test_real_rows() -> None:
    source = ToucanTasks(REAL)
    assert source.skipped == ()
    assert [task.task_id for task in source] == [f"toucan_rl_preview:{i}" for i in range(1, 6)]
    assert [task.kind for task in source] == ["tool_call", "irrelevant", "irrelevant", "tool_call", "irrelevant"]
    assert [len(task.gold_steps) for task in source] == [1, 0, 0, 5, 0]
    assert [len(task.messages) for task in source] == [2, 6, 2, 2, 2]
    assert [len(task.tools) for task in source] == [1, 1, 17, 4, 4]
    for task in source:
        assert task.tools_in_prompt
        assert task.question == task.messages[-1]["content"]
        assert task.allowed_tools == tuple(tool["function"]["name"] for tool in task.tools)
    assert "shadcn/ui-component-reference-server-search_components" in source[3].allowed_tools
    assert source[4].allowed_tools[0] == "pokémcp-random-pokemon"


# --- rows and files that cannot be used ---

BAD_ROWS: dict[str, tuple[object, str]] = {
    "broken JSON": (b'{"prompt": [', "broken JSON"),
    "not UTF-8": (b'{"prompt": "\xff"}', "not UTF-8"),
    "deep": (b"[" * 100_000, "broken JSON: nested too deeply"),
    "a list": ([good_row()], "the row must be an object"),
    "a number": (3, "the row must be an object"),
    "NaN": (b'{"prompt": NaN}', "NaN is no JSON value"),
    "infinity": (b'{"prompt": [{"x": 1e999}]}', "prompt: 0: x: inf is no JSON value"),
    "lone surrogate": (b'{"prompt": ["\\ud83d"]}', "prompt: 0: a lone surrogate"),
    "no prompt": (changed(lambda row: row.pop("prompt")), "prompt must be a list of at least one"),
    "empty prompt": (changed(lambda row: row.update(prompt=[])), "prompt must be a list of at least one"),
    "prompt is text": (changed(lambda row: row.update(prompt="hi")), "prompt must be a list"),
    "message is text": (changed(lambda row: row.update(prompt=["hi"])), "prompt[0] must be an object"),
    "no role": (changed(lambda row: row["prompt"][0].pop("role")), "prompt[0]: role must be one of"),
    "unknown role": (changed(lambda row: row["prompt"][0].update(role="human")), "prompt[0]: role must be one of"),
    "role is a list": (changed(lambda row: row["prompt"][0].update(role=[])), "prompt[0]: role must be one of"),
    "no content": (changed(lambda row: row["prompt"][1].pop("content")), "prompt[1]: content must be a text"),
    "last is the assistant's": (
        changed(lambda row: row["prompt"].append({"role": "assistant", "content": "Done."})),
        "the last message of prompt must be the user's",
    ),
    "last is empty": (
        changed(lambda row: row["prompt"][-1].update(content=" ")),
        "the last message of prompt is empty",
    ),
    "no reward_model": (changed(lambda row: row.pop("reward_model")), "reward_model must be an object"),
    "no ground_truth": (changed(lambda row: row["reward_model"].clear()), "ground_truth must be an object"),
    "broken ground_truth": (
        changed(lambda row: row["reward_model"].update(ground_truth="{")),
        "ground_truth: broken JSON",
    ),
    "no allowed_tools": (changed(lambda row: truth(row).pop("allowed_tools")), "ground_truth has no allowed_tools"),
    "allowed_tools is text": (
        changed(lambda row: truth(row).update(allowed_tools="x")),
        "allowed_tools must be a list",
    ),
    "allowed_tools holds 3": (
        changed(lambda row: truth(row).update(allowed_tools=[3])),
        "allowed_tools must be a list",
    ),
    "allowed without schema": (
        changed(lambda row: truth(row)["allowed_tools"].append("ghost")),
        "no schema among the tools for the allowed tool(s) list ['ghost']",
    ),
    "no gold": (changed(lambda row: truth(row).pop("gold_tool_calls")), "ground_truth has no gold_tool_calls"),
    "gold not allowed": (
        changed(lambda row: truth(row).update(gold_tool_calls=[["ghost"]])),
        "gold tool(s) list ['ghost'] not in allowed_tools",
    ),
    "gold is 3": (changed(lambda row: truth(row).update(gold_tool_calls=3)), "gold_tool_calls: gold calls must be"),
    "question is 3": (changed(lambda row: truth(row).update(question_content=3)), "question_content must be a text"),
    "subset is 3": (changed(lambda row: truth(row).update(subset_name=3)), "subset_name must be a text"),
    "broken tools": (changed(lambda row: row.update(tools="[")), "tools: broken JSON"),
    "tools is an object": (changed(lambda row: row.update(tools={})), "tools must be a list"),
    "tools nowhere": (
        changed(lambda row: (row.pop("tools"), truth(row).pop("tool_schemas"))),
        "tools must be a list of tools",
    ),
    "tool is text": (changed(lambda row: row.update(tools=["x"])), "tools[0] must be an object"),
    "tool is not OpenAI style": (changed(lambda row: row.update(tools=[{"name": "x"}])), "tools[0].function must be"),
    "tool without name": (changed(lambda row: row.update(tools=[{"function": {}}])), "tools[0] has no name"),
    "parameters is text": (
        changed(lambda row: row.update(tools=[{"function": {"name": "x", "parameters": "y"}}])),
        "tools[0]: parameters must be a JSON Schema object",
    ),
    "extra_info is text": (changed(lambda row: row.update(extra_info="x")), "extra_info must be an object"),
    "turn index is text": (
        changed(lambda row: row["extra_info"].update(original_turn_index="0")),
        "original_turn_index must be an integer",
    ),
    "turn index is true": (
        changed(lambda row: row["extra_info"].update(original_turn_index=True)),
        "original_turn_index must be an integer",
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_names_file_line_and_reason(name: str, tmp_path: Path) -> None:
    line, reason = BAD_ROWS[name]
    path = write(tmp_path, good_row(), line, good_row())
    with pytest.raises(DataError) as caught:
        ToucanTasks(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:2: ")
    assert reason in message
    assert message.endswith("(correct the row, or leave such rows out with on_bad_row='skip')")
    source = ToucanTasks(path, on_bad_row="skip")
    assert [task.task_id for task in source] == ["rows:1", "rows:3"]
    (bad,) = source.skipped
    assert isinstance(bad, BadRow)
    assert bad.line == 2
    assert reason in bad.reason


def test_skipping_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, b"{", good_row(), {}, b"nonsense")
    with caplog.at_level(logging.WARNING):
        source = ToucanTasks(path, on_bad_row="skip")
    assert [bad.line for bad in source.skipped] == [1, 3, 4]
    (record,) = caplog.records
    assert f"{path}: skipped 3 of 4 rows; the first is line 1: broken JSON" in record.getMessage()
    caplog.clear()
    ToucanTasks(write(tmp_path, good_row()), on_bad_row="skip")
    assert not caplog.records


def test_all_rows_bad(tmp_path: Path) -> None:
    path = write(tmp_path, {}, {})
    assert len(ToucanTasks(path, on_bad_row="skip")) == 0
    with pytest.raises(DataError, match=r"rows\.jsonl:1: "):
        ToucanTasks(path)


@pytest.mark.parametrize("mode", ["error", "skip"])
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("missing.jsonl", None, "no such file"),
        ("missing.jsonl.gz", None, "no such file"),
        ("empty.jsonl", b"", "the file has no rows"),
        ("blank.jsonl", b"\n \n", "the file has no rows"),
        ("empty.jsonl.gz", gzip.compress(b""), "the file has no rows"),
        ("not_gzip.jsonl.gz", b'{"a": 1}\n', "cannot be read"),
        ("cut.jsonl.gz", gzip.compress(json.dumps(good_row()).encode() + b"\n")[:-12], "cannot be read"),
        ("rows.parquet", b"PAR1", "unknown ending"),
        ("rows.json", b"[]", "unknown ending"),
        ("jsonl", b"{}", "unknown ending"),
    ],
)
def test_a_bad_file(name: str, content: bytes | None, reason: str, mode: Any, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        ToucanTasks(path, on_bad_row=mode)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "rows.jsonl"
    folder.mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        ToucanTasks(folder)


def test_an_unknown_mode(tmp_path: Path) -> None:
    mode: Any = "ignore"
    with pytest.raises(ConfigError, match="'error' or 'skip'"):
        ToucanTasks(write(tmp_path, good_row()), on_bad_row=mode)
