"""The fixed error texts: what the policy reads after a call that is wrong.

One form for all, compact JSON in this order of keys::

    {"error":{"type":"unknown_tool","tool":"get_wether","near":["get_weather"]}}
    {"error":{"type":"invalid_arguments","tool":"get_weather","path":"city","expected":"string","got":"integer"}}
    {"error":{"type":"malformed_call","reason":"not JSON"}}
    {"error":{"type":"too_many_calls","tool":"get_weather","limit":20}}
    {"error":{"type":"tool_error","tool":"get_weather","reason":"no such city"}}
    {"error":{"type":"simulator_failed","reason":"connection refused"}}

Each is a pure function of the fault, so that the same fault reads the same in every rollout, and short, since the
policy pays for it in context. Whatever the policy wrote itself is quoted up to a limit only.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable

from slca_lightning.types import JSON

MAX_QUOTE_CHARS = 80
"""Longest quotation of a name, path, value or reason; beyond it the rest is replaced by an ellipsis."""

MAX_EXPECTED_CHARS = 200
"""The same for what a schema expects: room for the values of most enums."""

MAX_NEAR_NAMES = 3


def quote(text: str, limit: int = MAX_QUOTE_CHARS) -> str:
    """Return ``text``, its end replaced by an ellipsis where it is longer than ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _error(kind: str, **fields: JSON) -> str:
    return json.dumps({"error": {"type": kind, **fields}}, separators=(",", ":"), ensure_ascii=False)


def unknown_tool(tool: str, known: Iterable[str]) -> str:
    """Return the text for a tool the task does not offer, with up to three of the ``known`` names that look like it."""
    # difflib compares in quadratic time, and a policy may write a name of thousands of characters.
    name = quote(tool)
    near = difflib.get_close_matches(name, sorted(set(known)), n=MAX_NEAR_NAMES)
    return _error("unknown_tool", tool=name, near=near)


def invalid_arguments(tool: str, path: str, expected: str, got: str) -> str:
    """Return the text for arguments that break the tool's schema; ``path`` names the argument, empty for all."""
    expected = quote(expected, MAX_EXPECTED_CHARS)
    return _error("invalid_arguments", tool=quote(tool), path=quote(path), expected=expected, got=quote(got))


def malformed_call(reason: str) -> str:
    """Return the text for a block that holds no readable call."""
    return _error("malformed_call", reason=quote(reason))


def too_many_calls(tool: str | None, limit: int) -> str:
    """Return the text for a call beyond the ``limit`` of one step; ``tool`` is None where it could not be read."""
    return _error("too_many_calls", tool=None if tool is None else quote(tool), limit=limit)


def tool_error(tool: str, reason: str) -> str:
    """Return the text for a call that the schema admits and the tool refuses."""
    return _error("tool_error", tool=quote(tool), reason=quote(reason))


def simulator_failed(reason: str) -> str:
    """Return the text for a call the simulator could not answer. The rollout is invalid; people read it, in logs."""
    return _error("simulator_failed", reason=quote(reason, 500))
