"""Loose comparison of JSON values, as the process score uses it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

from slca_lightning.types import JSON

NUMBER_TOLERANCE = 1e-9
"""Numbers this close, in absolute terms, are the same number."""

_MAX_NUMERAL_CHARS = 400
"""A longer string is text: no float has that many digits, and reading huge integers is quadratic."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMERAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": 1, "false": 0}
_LEAF_TYPES = (
    str,
    int,
    float,
)  # a tuple: isinstance with a union costs several times as much, and this is the hot path


def values_match(left: JSON, right: JSON) -> bool:
    """Return whether two JSON values are loosely equal. Symmetric and reflexive; never raises on JSON of any depth.

    Strings are trimmed and lower-cased; a string that reads as a number is that number, so ``10``, ``"10"`` and
    ``10.0`` are equal; ``true``, ``"true"`` and ``1`` are equal. Numbers may differ by ``NUMBER_TOLERANCE``. Lists are
    compared element by element in order, objects key by key (keys exactly). ``null`` equals only itself.
    """
    # All parts have to match, so a stack of pairs does what recursion would, at any depth.
    pending: list[tuple[Any, Any]] = [(left, right)]
    while pending:
        a, b = pending.pop()
        if a is None or isinstance(a, _LEAF_TYPES):
            if not _leaves_match(a, b):
                return False
        elif isinstance(a, (list, tuple)):
            if not isinstance(b, (list, tuple)) or len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        elif isinstance(a, Mapping):
            if not isinstance(b, Mapping) or a.keys() != b.keys():
                return False
            pending.extend((value, b[key]) for key, value in a.items())
        else:
            return False
    return True


def loose_key(value: JSON) -> Hashable:
    """Return a hashable key that loosely equal values share, to find repeats in linear time.

    It differs from :func:`values_match` only for numbers on two sides of a rounding boundary at nine decimals.
    Recursive: for values of bounded depth, such as the arguments of parsed calls.
    """
    if isinstance(value, Mapping):
        return ("object", *((key, loose_key(value[key])) for key in sorted(value)))
    if isinstance(value, list | tuple):
        return ("array", *map(loose_key, value))
    leaf = _normal(value)
    return round(leaf, 9) if isinstance(leaf, float) else leaf


def _leaves_match(a: str | float | None, b: Any) -> bool:
    if type(a) is type(b) and a == b:
        return True
    x, y = _normal(a), _normal(b)
    if isinstance(x, (int, float)) and isinstance(y, (int, float)):
        return x == y or _close(x, y)
    return type(x) is type(y) and bool(x == y)


def _close(x: float, y: float) -> bool:
    try:
        return abs(x - y) <= NUMBER_TOLERANCE
    except OverflowError:  # an integer beyond the floats against a float: they are not close
        return False


def _normal(leaf: Any) -> Any:
    """Return the number a leaf stands for, or its trimmed lower-case text, or the leaf itself."""
    if isinstance(leaf, bool):
        return int(leaf)
    if not isinstance(leaf, str):
        return leaf
    text = leaf.strip().lower()
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) > _MAX_NUMERAL_CHARS or not _NUMERAL.fullmatch(text):
        return text
    # Integers stay exact: two long identifiers must not become one float.
    return int(text) if _INTEGER.fullmatch(text) else float(text)
