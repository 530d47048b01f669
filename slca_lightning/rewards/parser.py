"""Reads the tool calls of an assistant turn. Never raises: whatever is wrong with a block is data.

A block runs from an opening ``<tool_call>`` tag to the next closing one, as in the usual Hermes parsers; it holds a
JSON object or a list of objects. Thinking runs from ``<think>`` (``<thinking>``) to its closing tag, or to the end of
the text where there is none. The text is read once, from left to right, so that a tag inside an argument's string opens
neither thinking nor a second block.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from slca_lightning.types import JSON, ToolCall

TOOL_CALL_OPEN = "<tool_call>"
TOOL_CALL_CLOSE = "</tool_call>"
THINK_TAGS = {"<think>": "</think>", "<thinking>": "</thinking>"}
"""Opening to closing tags of what never counts as a call or as an answer."""

MAX_JSON_DEPTH = 100
"""Deeper arguments are a typed problem: what serialises or compares a call later may recurse."""

_DETAIL_CHARS = 80
_TAG = re.compile("|".join([TOOL_CALL_OPEN, TOOL_CALL_CLOSE, *THINK_TAGS, *THINK_TAGS.values()]))


class CallProblem(StrEnum):
    """What is wrong with a call block."""

    UNCLOSED = "unclosed"
    """No closing tag follows."""
    EMPTY = "empty"
    """Nothing between the tags, or an empty list."""
    INVALID_JSON = "invalid_json"
    """Not JSON; NaN, infinities, numbers out of range and lone surrogates are not JSON either."""
    TOO_DEEP = "too_deep"
    """JSON nested beyond ``MAX_JSON_DEPTH``."""
    NOT_AN_OBJECT = "not_an_object"
    """JSON, but neither an object nor a list of objects."""
    MISSING_NAME = "missing_name"
    """No ``name``, or one that is not a non-empty string."""
    MISSING_ARGUMENTS = "missing_arguments"
    """Neither ``arguments`` nor ``parameters``."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments are not an object."""
    UNKNOWN_TOOL = "unknown_tool"
    """Well formed, but a tool of that name may not be called."""


@dataclass(frozen=True, slots=True)
class CallBlock:
    """One call block of a turn."""

    start: int
    """Index of the opening tag's first character in the text."""
    end: int
    """Index after the closing tag; the text's length where the block is unclosed."""
    calls: tuple[ToolCall, ...]
    """In order; an unknown tool's call too, so that it can be answered. Empty where the block cannot be read."""
    problem: CallProblem | None = None
    """The first problem; None where the block is valid."""
    detail: str = ""
    """The problem in a few words, naming what it is about."""


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """What one assistant turn holds."""

    blocks: tuple[CallBlock, ...]
    """In order; spans do not overlap."""
    num_open: int
    """Opening tool-call tags outside of thinking."""
    num_close: int
    """Closing tool-call tags outside of thinking."""
    visible_text: str
    """The text without thinking, call blocks and stray tags, stripped."""

    @property
    def has_attempt(self) -> bool:
        """Whether the turn holds a tool-call attempt: an opening tag outside of thinking."""
        return self.num_open > 0

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls that can be read, those of unknown tools included."""
        return tuple([call for block in self.blocks for call in block.calls])

    @property
    def valid_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the blocks without a problem."""
        return tuple([call for block in self.blocks if block.problem is None for call in block.calls])

    @property
    def num_valid(self) -> int:
        """Number of blocks without a problem."""
        return sum(block.problem is None for block in self.blocks)


def parse_turn(text: str, allowed_tools: Collection[str] | None = None) -> ParsedTurn:
    """Read the tool calls of one assistant turn, in time linear in its length. Never raises, whatever the text.

    Args:
        text: What the policy wrote, decoded.
        allowed_tools: Names that may be called; None allows every name.
    """
    if "<" not in text:
        return ParsedTurn((), 0, 0, text.strip())
    blocks: list[CallBlock] = []
    visible: list[str] = []
    num_open = num_close = position = 0
    while (tag := _TAG.search(text, position)) is not None:
        visible.append(text[position : tag.start()])
        position = tag.end()
        if tag[0] in THINK_TAGS:
            position, _ = _skip_past(text, THINK_TAGS[tag[0]], position)
        elif tag[0] == TOOL_CALL_CLOSE:
            num_close += 1
        elif tag[0] == TOOL_CALL_OPEN:
            content_start = position
            position, closed = _skip_past(text, TOOL_CALL_CLOSE, content_start)
            num_open += 1 + text.count(TOOL_CALL_OPEN, content_start, position)
            num_close += closed
            if closed:
                content = text[content_start : position - len(TOOL_CALL_CLOSE)]
                blocks.append(_read_block(content, tag.start(), position, allowed_tools))
            else:
                detail = f"no {TOOL_CALL_CLOSE} follows"
                blocks.append(CallBlock(tag.start(), position, (), CallProblem.UNCLOSED, detail))
    visible.append(text[position:])
    return ParsedTurn(tuple(blocks), num_open, num_close, "".join(visible).strip())


class _BlockError(Exception):
    """Why a block cannot be read; never leaves this file."""

    def __init__(self, problem: CallProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem
        self.detail = detail


def _skip_past(text: str, closing: str, position: int) -> tuple[int, bool]:
    """Return the index after the next ``closing`` (the text's length where there is none) and whether there is one."""
    found = text.find(closing, position)
    return (len(text), False) if found < 0 else (found + len(closing), True)


def _read_block(content: str, start: int, end: int, allowed_tools: Collection[str] | None) -> CallBlock:
    try:
        value = _load_json(content.strip())
        items = value if isinstance(value, list) else [value]
        if not items:
            raise _BlockError(CallProblem.EMPTY, "an empty list")
        calls = tuple([_read_call(item) for item in items])
    except _BlockError as error:
        return CallBlock(start, end, (), error.problem, error.detail)
    if allowed_tools is not None:
        for call in calls:
            if call.name not in allowed_tools:
                return CallBlock(start, end, calls, CallProblem.UNKNOWN_TOOL, f"no tool named {_short(call.name)}")
    return CallBlock(start, end, calls)


def _read_call(item: JSON) -> ToolCall:
    if not isinstance(item, dict):
        raise _BlockError(CallProblem.NOT_AN_OBJECT, f"a call is an object, not {type(item).__name__}")
    name = item.get("name")
    if not isinstance(name, str) or not name:
        raise _BlockError(CallProblem.MISSING_NAME, "'name' must be a non-empty string")
    key = "arguments" if "arguments" in item else "parameters"
    if key not in item:
        raise _BlockError(CallProblem.MISSING_ARGUMENTS, f"the call of {_short(name)} has no 'arguments'")
    arguments = item[key]
    if not isinstance(arguments, dict):
        detail = f"{key!r} of {_short(name)} must be an object, not {type(arguments).__name__}"
        raise _BlockError(CallProblem.INVALID_ARGUMENTS, detail)
    return ToolCall(name, arguments)


def _short(name: str) -> str:
    return repr(name if len(name) <= _DETAIL_CHARS else name[:_DETAIL_CHARS] + "...")


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite_float(numeral: str) -> float:
    value = float(numeral)
    if math.isinf(value):
        raise ValueError("a number is out of range")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite_float, parse_constant=_reject_constant)


def _load_json(content: str) -> JSON:
    """Parse strict JSON, such that it can be serialised and encoded again."""
    if not content:
        raise _BlockError(CallProblem.EMPTY, "nothing between the tags")
    too_deep = _BlockError(CallProblem.TOO_DEEP, f"nested deeper than {MAX_JSON_DEPTH} levels")
    try:
        value = _DECODER.decode(content)
        # The number of brackets bounds the depth, so nearly every block is spared the walk.
        if content.count("{") + content.count("[") > MAX_JSON_DEPTH and _is_deeper(value, MAX_JSON_DEPTH):
            raise too_deep
        content.encode()
        if "\\u" in content:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise too_deep from None
    except UnicodeEncodeError:
        raise _BlockError(CallProblem.INVALID_JSON, "a lone surrogate is not a character") from None
    except json.JSONDecodeError as error:
        raise _BlockError(CallProblem.INVALID_JSON, f"{error.msg} at character {error.pos}") from None
    except ValueError as error:  # a constant, a number out of range, an integer beyond Python's digit limit
        raise _BlockError(CallProblem.INVALID_JSON, str(error)[:_DETAIL_CHARS]) from None
    return value


def _is_deeper(value: JSON, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return True
