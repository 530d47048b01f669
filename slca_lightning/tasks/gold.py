"""Gold tool calls, in every shape that data sets write them in, read into steps of :class:`ToolCall`."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from typing import NoReturn

from slca_lightning.errors import DataError
from slca_lightning.types import JSON, ToolCall

MAX_DEPTH = 64
"""Deepest nesting of a JSON value that is read. Beyond it data are broken, and recursion would end without a reason."""


def parse_gold(value: object) -> tuple[tuple[ToolCall, ...], ...]:
    """Return the gold steps that ``value`` describes; the calls of one step are made in parallel.

    ============================================== =====================================================
    shape                                          meaning
    ============================================== =====================================================
    ``[[call, call], [call]]`` (nested)            one step per inner list
    ``[call, call]`` (flat)                        one step per call: sequential, since nothing says
                                                   that they are parallel
    ``["name", "name"]``, ``[["name", "name"]]``   as above; the arguments are unknown, hence empty
    ``[[call, call], call, "name"]`` (mixed)       one step per element
    ``None``, ``""``, ``[]``                       no step: the task needs no call
    a JSON text of any of these                    the same
    ============================================== =====================================================

    A call is ``{"name": ..., "arguments": {...}}``, where ``parameters`` may stand for ``arguments``, the arguments may
    be a JSON text, missing or null (none), and all of it may sit under ``function`` (OpenAI style). Other keys (``id``,
    ``type``) are ignored. Arrays (anything with ``tolist``) and tuples count as lists. An empty inner list holds no
    call and is no step.

    Raises:
        DataError: for anything else. The message says which step and call, and what is wrong with it.
    """
    plain = plain_json(value)
    if isinstance(plain, str) and plain.strip():
        try:
            plain = loads_json(plain)
        except DataError as error:
            raise DataError(f"gold calls: {error}; write a single bare name as a list of one name") from None
    if plain is None or (isinstance(plain, str) and not plain.strip()):
        return ()
    if not isinstance(plain, list):
        raise DataError(f"gold calls must be a list of steps or calls, got {shown(plain)}")
    steps = (_step(element, f"gold step {i}") for i, element in enumerate(plain, 1))
    return tuple(step for step in steps if step)


def _step(element: JSON, where: str) -> tuple[ToolCall, ...]:
    if isinstance(element, list):
        return tuple(_call(item, f"{where}, call {i}") for i, item in enumerate(element, 1))
    return (_call(element, where),)


def _call(item: JSON, where: str) -> ToolCall:
    if isinstance(item, str):
        return ToolCall(_name(item, where))
    if not isinstance(item, dict):
        raise DataError(f"{where} must be a call or a tool's name, got {shown(item)}")
    call = item if item.get("function") is None else item["function"]
    if not isinstance(call, dict):
        raise DataError(f"{where}: 'function' must be an object with a name, got {shown(call)}")
    return ToolCall(_name(call.get("name"), where), _arguments(call, where))


def _name(name: JSON, where: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"{where} has no tool name: got {shown(name)}")
    if name.lstrip()[0] in "{[":
        # A call that was encoded to text inside a list. Taken for a name, it would be a gold call no policy can make.
        raise DataError(f"{where} is a JSON text where a name or a call is expected: {shown(name)}")
    return name


def _arguments(call: Mapping[str, JSON], where: str) -> dict[str, JSON]:
    # Columnar files give every call the union of all keys, null where it has none: null is the same as missing.
    given = [call[key] for key in ("arguments", "parameters") if call.get(key) is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise DataError(f"{where} has both 'arguments' and 'parameters', and they differ")
    arguments = given[0] if given else {}
    if isinstance(arguments, str):
        try:
            arguments = loads_json(arguments) if arguments.strip() else {}
        except DataError as error:
            raise DataError(f"{where}, arguments: {error}") from None
        arguments = {} if arguments is None else arguments
    if not isinstance(arguments, dict):
        raise DataError(f"{where}: arguments must be an object, got {shown(arguments)}")
    return arguments


def loads_json(text: str) -> JSON:
    """Decode a JSON text, more strictly than :func:`json.loads`: see :func:`plain_json`.

    Raises:
        DataError: where the text is no JSON, or holds NaN, an infinity or a lone surrogate.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise DataError(f"broken JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise DataError("broken JSON: nested too deeply") from None
    except ValueError as error:
        raise DataError(f"broken JSON: {error}") from None
    return plain_json(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def plain_json(value: object, depth: int = 0) -> JSON:
    """Return ``value`` as None, bool, int, float, str, list and dict alone, or refuse it.

    Arrays (anything with ``tolist``) and tuples become lists. What would fail only later, in a tokenizer or in a
    canonical text, is refused here: NaN and infinities, lone surrogates, keys that are no text.

    Raises:
        DataError: with the path to the value and the reason.
    """
    if depth > MAX_DEPTH:
        raise DataError(f"nested more than {MAX_DEPTH} deep")
    if hasattr(value, "tolist"):
        return plain_json(value.tolist(), depth + 1)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DataError(f"{value} is no JSON value")
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {_text(key): _inner(key, item, depth) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_inner(i, item, depth) for i, item in enumerate(value)]
    raise DataError(f"a value of type {type(value).__name__} is no JSON")


def _inner(key: object, item: object, depth: int) -> JSON:
    try:
        return plain_json(item, depth + 1)
    except DataError as error:
        raise DataError(f"{key}: {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise DataError(f"the key {shown(value)} is no text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"a lone surrogate, which no tokenizer can encode, in {shown(value)}") from None
    return value


def shown(value: object) -> str:
    """Return a short text of ``value`` for an error message; safe to print whatever ``value`` holds."""
    return f"{type(value).__name__} {reprlib.repr(value)}"
