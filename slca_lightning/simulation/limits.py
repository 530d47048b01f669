"""Bounds on what goes into and comes out of the simulator."""

from __future__ import annotations

import math

from slca_lightning.types import JSON

MAX_ARGUMENT_DEPTH = 64
"""Deepest nesting of arguments. A validator spends up to about ten Python frames a level; the interpreter has 1,000."""


def argument_problem(arguments: JSON) -> str | None:
    """Return why ``arguments`` are not a JSON object of bounded depth, or None where they are.

    Python's JSON reader accepts ``NaN``, ``Infinity`` and ``1e999``, none of which is JSON.
    """
    if not isinstance(arguments, dict):
        return "arguments are not an object"
    pending: list[tuple[JSON, int]] = [(arguments, 1)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return "arguments hold a number that is not JSON"
        if isinstance(value, dict | list):
            if depth > MAX_ARGUMENT_DEPTH:
                return f"arguments are nested deeper than {MAX_ARGUMENT_DEPTH} levels"
            children = value.values() if isinstance(value, dict) else value
            pending.extend((child, depth + 1) for child in children)
    return None


def encodable(text: str) -> str:
    """Return ``text`` with lone surrogates as question marks: JSON can escape half a pair, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def truncate_middle(text: str, limit: int) -> tuple[str, bool]:
    """Cut the middle out of a text that is longer than ``limit`` characters.

    Args:
        text: Any text.
        limit: Longest result, in characters, the marker included. Where the marker does not fit, only the head is kept.

    Returns:
        The text, at most ``limit`` long, and whether it was cut. ``"...[N characters cut]..."`` marks the place.

    Raises:
        ValueError: where ``limit`` is negative.
    """
    if limit < 0:
        raise ValueError(f"limit must not be negative, got {limit}")
    if len(text) <= limit:
        return text, False
    # Room for the widest marker: N has at most as many digits as the length of the whole text.
    kept = limit - len(_marker(len(text)))
    if kept <= 0:
        return text[:limit], True
    head, tail = kept - kept // 2, kept // 2
    return text[:head] + _marker(len(text) - kept) + text[len(text) - tail :], True


def _marker(count: int) -> str:
    return f"...[{count} characters cut]..."
