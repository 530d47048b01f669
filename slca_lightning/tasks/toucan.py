"""Tasks from the rows of Toucan's RL set (Agent-Ark/Toucan-1.5M), as the paper trains on them."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slca_lightning.errors import ConfigError, DataError
from slca_lightning.seeding import derive_seed
from slca_lightning.tasks.base import TaskSource
from slca_lightning.tasks.gold import loads_json, parse_gold, plain_json, shown
from slca_lightning.types import JSON, Message, ToolCall, ToolSchema, ToolTask

logger = logging.getLogger(__name__)

ENDINGS = (".jsonl", ".jsonl.gz")
"""File name endings that can be read."""

ROLES = ("system", "user", "assistant", "tool")
"""Roles that chat templates render. Some templates drop a message of any other role without a word."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was skipped."""

    line: int
    """Line number in the file, from 1."""
    reason: str
    """What is wrong with the row."""


class ToucanTasks(TaskSource):
    """The tasks of a JSONL file of Toucan RL rows, in the file's order.

    The file is read once, when the source is made: every row is checked before a run starts, and the parsed tasks stay
    in memory. Blank lines are ignored. A task's id is the file's name without its ending, a colon and the line number,
    so that it stays the same when other rows are skipped. :func:`toucan_task` says what a row holds.

    Args:
        path: a ``.jsonl`` or ``.jsonl.gz`` file.
        on_bad_row: ``"error"`` raises at the first row that cannot be used; ``"skip"`` leaves such rows out, lists
            them in :attr:`skipped` and logs one warning. Where every row is bad, the source is then empty.

    Raises:
        ConfigError: for another ``on_bad_row``.
        DataError: where the file is missing, empty, unreadable or of another format; ``FILE:LINE: reason (what to do)``
            for a bad row unless it is skipped.
    """

    def __init__(self, path: str | Path, on_bad_row: Literal["error", "skip"] = "error") -> None:
        if on_bad_row not in ("error", "skip"):
            raise ConfigError(f"on_bad_row must be 'error' or 'skip', got {on_bad_row!r}")
        self.path = Path(path)
        tasks: list[ToolTask] = []
        skipped: list[BadRow] = []
        stem = _stem(self.path)
        for line, raw in _lines(self.path):
            try:
                tasks.append(toucan_task(_decoded_line(raw), f"{stem}:{line}"))
            except DataError as error:
                if on_bad_row == "error":
                    hint = "correct the row, or leave such rows out with on_bad_row='skip'"
                    raise DataError(f"{self.path}:{line}: {error} ({hint})") from error
                skipped.append(BadRow(line, str(error)))
        if not tasks and not skipped:
            raise DataError(f"{self.path}: the file has no rows (give a file with one JSON object a line)")
        if skipped:
            counts = f"skipped {len(skipped)} of {len(tasks) + len(skipped)} rows"
            logger.warning("%s: %s; the first is line %d: %s", self.path, counts, skipped[0].line, skipped[0].reason)
        self._tasks = tuple(tasks)
        self._skipped = tuple(skipped)

    @property
    def skipped(self) -> tuple[BadRow, ...]:
        """The rows that were left out, in the file's order."""
        return self._skipped

    def __len__(self) -> int:
        """Number of usable rows."""
        return len(self._tasks)

    def task(self, index: int) -> ToolTask:
        """Return the task of the usable row ``index``."""
        return self._tasks[index]


def toucan_task(row: object, task_id: str) -> ToolTask:
    """Return the task that one Toucan RL row describes.

    A row holds ``prompt`` (chat messages, the last one the user's), ``reward_model.ground_truth`` (an object or its
    JSON text: ``allowed_tools``, ``gold_tool_calls`` in any shape of :func:`parse_gold`, ``question_content``,
    ``subset_name``, ``tool_schemas``), ``tools`` (OpenAI style, a list or its JSON text; ``tool_schemas`` where it is
    missing) and ``extra_info.original_turn_index`` (checked where present, not kept: the messages hold the history).
    The question defaults to the last message. An empty ``allowed_tools`` is a task without tools. Every allowed tool
    must be among the tools, because the simulator and the chat template need its schema.

    Raises:
        DataError: with the reason, which names the field; the caller adds the file and the line.
    """
    fields = _object(plain_json(row), "the row")
    messages = _messages(fields.get("prompt"))
    reward_model = _object(fields.get("reward_model"), "reward_model")
    truth = _object(_decoded(reward_model.get("ground_truth"), "ground_truth"), "reward_model.ground_truth")
    tools = _tools(truth.get("tool_schemas") if fields.get("tools") in (None, "") else fields["tools"])
    allowed = _allowed_tools(truth, {tool["function"]["name"] for tool in tools})
    _check_turn_index(fields.get("extra_info"))
    return ToolTask(
        task_id=task_id,
        messages=messages,
        tools=tools,
        gold_steps=_gold_steps(truth, allowed),
        allowed_tools=allowed,
        question=_text(truth, "question_content") or messages[-1]["content"],
        tools_in_prompt=any(message["role"] == "system" and "<tools>" in message["content"] for message in messages),
        world_seed=derive_seed("toucan", task_id),
        kind=_text(truth, "subset_name"),
    )


def _stem(path: Path) -> str:
    for ending in ENDINGS:
        if path.name.endswith(ending):
            return path.name.removesuffix(ending)
    raise DataError(f"{path}: unknown ending (give a file that ends in {' or '.join(ENDINGS)}; convert parquet first)")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line that is not blank."""
    try:
        # Bytes, since in text mode some line separators that JSON allows inside of strings would split a row.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line, raw in enumerate(file, 1):
                if raw.strip():
                    yield line, raw
    except FileNotFoundError:
        raise DataError(f"{path}: no such file (check the path)") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error} (check that the file is complete)") from error


def _decoded_line(raw: bytes) -> JSON:
    try:
        return loads_json(raw.decode("utf-8-sig"))  # -sig: some editors put a byte order mark before the first row
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error.reason} at byte {error.start}") from None


def _decoded(value: JSON, what: str) -> JSON:
    if not isinstance(value, str):
        return value
    try:
        return loads_json(value)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None


def _object(value: JSON, what: str) -> dict[str, JSON]:
    if not isinstance(value, dict):
        raise DataError(f"{what} must be an object, got {shown(value)}")
    return value


def _text(truth: dict[str, JSON], key: str) -> str:
    value = truth.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(f"{key} must be a text, got {shown(value)}")
    return value or ""


def _messages(prompt: JSON) -> tuple[Message, ...]:
    if not isinstance(prompt, list) or not prompt:
        raise DataError(f"prompt must be a list of at least one chat message, got {shown(prompt)}")
    for i, message in enumerate(prompt):
        _object(message, f"prompt[{i}]")
        if message.get("role") not in ROLES:
            raise DataError(f"prompt[{i}]: role must be one of {', '.join(ROLES)}, got {shown(message.get('role'))}")
        if not isinstance(message.get("content"), str):
            raise DataError(f"prompt[{i}]: content must be a text, got {shown(message.get('content'))}")
    if prompt[-1]["role"] != "user":
        raise DataError(f"the last message of prompt must be the user's, got the role {prompt[-1]['role']!r}")
    if not prompt[-1]["content"].strip():
        raise DataError("the last message of prompt is empty")
    return tuple(prompt)


def _tools(value: JSON) -> tuple[ToolSchema, ...]:
    tools = _decoded(value, "tools")
    if not isinstance(tools, list):
        raise DataError(f"tools must be a list of tools (or its JSON text), got {shown(tools)}")
    for i, tool in enumerate(tools):
        function = _object(_object(tool, f"tools[{i}]").get("function"), f"tools[{i}].function")
        if not isinstance(function.get("name"), str) or not function["name"].strip():
            raise DataError(f"tools[{i}] has no name: got {shown(function.get('name'))}")
        if not isinstance(function.get("parameters", {}), dict):
            raise DataError(f"tools[{i}]: parameters must be a JSON Schema object, got {shown(function['parameters'])}")
    return tuple(tools)


def _allowed_tools(truth: dict[str, JSON], described: set[str]) -> tuple[str, ...]:
    names = truth.get("allowed_tools")
    if names is None:
        raise DataError("ground_truth has no allowed_tools")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"allowed_tools must be a list of tool names, got {shown(names)}")
    unknown = [name for name in names if name not in described]
    if unknown:
        raise DataError(f"no schema among the tools for the allowed tool(s) {shown(unknown)}")
    return tuple(names)


def _gold_steps(truth: dict[str, JSON], allowed: tuple[str, ...]) -> tuple[tuple[ToolCall, ...], ...]:
    if "gold_tool_calls" not in truth:
        # Not the same as an empty list, which says that the task needs no call.
        raise DataError("ground_truth has no gold_tool_calls")
    try:
        steps = parse_gold(truth["gold_tool_calls"])
    except DataError as error:
        raise DataError(f"gold_tool_calls: {error}") from None
    unknown = [call.name for step in steps for call in step if call.name not in allowed]
    if unknown:
        raise DataError(f"gold tool(s) {shown(unknown)} not in allowed_tools")
    return steps


def _check_turn_index(extra_info: JSON) -> None:
    if extra_info is None:
        return
    index = _object(extra_info, "extra_info").get("original_turn_index")
    if index is not None and (not isinstance(index, int) or isinstance(index, bool) or index < 0):
        raise DataError(f"extra_info.original_turn_index must be an integer from 0, got {shown(index)}")
