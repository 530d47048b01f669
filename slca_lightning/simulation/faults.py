"""From a validator's errors to the one fault that the policy is told, the same for the same arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from slca_lightning.simulation import messages
from slca_lightning.types import JSON

_KEYWORD_ORDER = ("required", "type", "enum", "const", "additionalProperties")
"""Which keyword speaks first among errors at one place: what is missing, before what is odd about the rest."""


@dataclass(frozen=True, slots=True)
class ArgumentFault:
    """What is wrong with a call's arguments: the first fault, in a fixed order."""

    path: str
    """The argument, such as ``filters.dates[0]``; empty for the arguments as a whole."""
    expected: str
    got: str

    def text(self, tool: str) -> str:
        """Return the fixed error text."""
        return messages.invalid_arguments(tool, self.path, self.expected, self.got)


def first_fault(errors: Iterable[Any]) -> ArgumentFault | None:
    """Return the fault of the first of jsonschema's ``errors``, or None where there is none.

    First is the shallowest; then the smallest path, the keyword in a fixed order, and the smallest path in the schema.
    The validator's own order will not do: it walks sets, whose order changes from process to process.
    """
    error = min(errors, key=_rank, default=None)
    return None if error is None else _describe(error)


def _rank(error: Any) -> tuple[Any, ...]:
    keyword = error.validator
    rank = _KEYWORD_ORDER.index(keyword) if keyword in _KEYWORD_ORDER else len(_KEYWORD_ORDER)
    path = [_sortable(part) for part in error.absolute_path]
    return len(path), path, rank, str(keyword), [_sortable(part) for part in error.absolute_schema_path]


def _sortable(part: str | int) -> tuple[int, str]:
    return (part, "") if isinstance(part, int) else (-1, part)


def _describe(error: Any) -> ArgumentFault:
    keyword, value, instance = error.validator, error.validator_value, error.instance
    path = list(error.absolute_path)
    if keyword == "required" and isinstance(value, list):
        missing = next((name for name in value if name not in instance), "")
        return ArgumentFault(_join([*path, missing]), "a required argument", "nothing")
    if keyword == "additionalProperties" and value is False:
        known = error.schema.get("properties", {})
        patterns = error.schema.get("patternProperties", {})
        extra = (name for name in instance if name not in known and not any(re.search(p, name) for p in patterns))
        expected = f"only {', '.join(known)}" if known else "no arguments"
        return ArgumentFault(_join([*path, min(extra, default="")]), expected, "an unexpected argument")
    if keyword == "type":
        return ArgumentFault(_join(path), " or ".join(_types(value)), json_type(instance))
    if keyword == "anyOf" and all(isinstance(form, dict) and "type" in form for form in value):
        # The usual way to write an optional argument. Where the type is right, something within a form is not.
        types = list(dict.fromkeys(name for form in value for name in _types(form["type"])))
        if json_type(instance) not in types:
            return ArgumentFault(_join(path), " or ".join(types), json_type(instance))
    got = instance if isinstance(instance, str) else _compact(instance)
    return ArgumentFault(_join(path), _expected(keyword, value), got)


def _expected(keyword: str | None, value: JSON) -> str:
    if keyword == "enum":
        # Without quotes, which JSON within JSON would have to escape.
        strings = all(isinstance(option, str) for option in value)
        return "one of " + (", ".join(value) if strings else _compact(value)[1:-1])
    # A schema that is just "false" has no keyword.
    return "nothing" if keyword is None else f"{keyword} {_compact(value)}"


def _types(value: JSON) -> list[str]:
    # Draft 3 admits schemas among the types.
    names = value if isinstance(value, list) else [value]
    return [name if isinstance(name, str) else _compact(name) for name in names]


def json_type(value: JSON) -> str:
    """Return the JSON Schema name of a value's type."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)


def _compact(value: JSON) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _join(path: Iterable[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
