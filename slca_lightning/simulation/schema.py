"""Arguments against a tool's JSON Schema, whatever state that schema is in.

Real tool schemas come from thousands of authors. One that cannot be used must not stop a run: it is reported once and
its check skipped, so that such a tool takes any arguments.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from slca_lightning.simulation.faults import ArgumentFault, first_fault, json_type
from slca_lightning.types import JSON, ToolSchema

logger = logging.getLogger(__name__)

MAX_COMPILED = 4096
"""Validators kept. On real tool schemas a check takes 0.04 ms, and compiling its validator first 0.6 ms (medians)."""

_UNCHECKABLE = (
    jsonschema.SchemaError,
    jsonschema.exceptions.UnknownType,
    Unresolvable,  # a reference that leads nowhere in this document: remote ones are never fetched
    RecursionError,  # a reference that leads back to itself
    re.error,  # a regular expression of another dialect than Python's
    # What jsonschema itself trips over: "$id" that is no URI, keywords of a wrong type in a draft that does not check
    # them, integers too big for a float under multipleOf.
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class SchemaChecker:
    """Checks calls' arguments, each schema compiled once.

    The draft is the one that ``$schema`` names, 2020-12 where it names none or one that is unknown. Formats are checked
    as far as jsonschema can without further packages. Nothing is ever fetched.
    """

    def __init__(self) -> None:
        self._compile = lru_cache(MAX_COMPILED)(_compile)
        self._reported: set[tuple[str, str]] = set()

    def check(self, tool: ToolSchema, arguments: JSON) -> ArgumentFault | None:
        """Return what is wrong with ``arguments``, or None where they are valid or the schema cannot be checked.

        Whether a schema can be checked is asked per call, not remembered: a bad reference that only some arguments
        reach leaves the others checked, and the answer depends on the call alone, never on those before it.

        Args:
            tool: An OpenAI-style tool; its ``function.parameters`` is the schema.
            arguments: A JSON value no deeper than
                :data:`~slca_lightning.simulation.limits.MAX_ARGUMENT_DEPTH`; anything but an object is a fault.
        """
        if not isinstance(arguments, Mapping):
            return ArgumentFault("", "object", json_type(arguments))
        text = ""
        try:
            parameters = tool["function"].get("parameters")
            if not isinstance(parameters, Mapping):
                raise TypeError(f"parameters are {json_type(parameters)}, not an object")
            text = json.dumps(parameters, sort_keys=True, separators=(",", ":"))
            compiled = self._compile(text)
            errors = [] if isinstance(compiled, str) else list(compiled.iter_errors(dict(arguments)))
        except _UNCHECKABLE as error:
            self._report(tool, text, _reason(error))
            return None
        if isinstance(compiled, str):
            self._report(tool, text, compiled)
        return first_fault(errors)

    def _report(self, tool: ToolSchema, text: str, reason: str) -> None:
        name = tool["function"]["name"]
        if (name, text) not in self._reported:
            self._reported.add((name, text))
            logger.warning(
                "The schema of tool %r cannot be checked (%s): its arguments are taken as they are. "
                "Repair its parameters, or leave the tool out.",
                name,
                reason,
            )


def _compile(text: str) -> Any:
    """Return the validator of a schema in JSON, or the reason why there is none (a text, so that it is cached too)."""
    schema = json.loads(text)
    default = jsonschema.Draft202012Validator
    try:
        # The type of "$schema" is checked first: jsonschema looks it up before it validates anything.
        declared = isinstance(schema.get("$schema", ""), str)
        validator_class: Any = validator_for(schema, default=default) if declared else default
        validator_class.check_schema(schema)
        # A registry of our own has no way to retrieve anything; the default one opens URLs.
        return validator_class(schema, registry=Registry(), format_checker=validator_class.FORMAT_CHECKER)
    except _UNCHECKABLE as error:
        return _reason(error)


def _reason(error: Exception) -> str:
    text = error.message if isinstance(error, jsonschema.SchemaError) else str(error)
    return f"{type(error).__name__}: {text}"[:200]
