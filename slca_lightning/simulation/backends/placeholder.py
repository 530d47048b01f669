"""Seeded answers for tools nobody has written: plausible in shape, without meaning."""

from __future__ import annotations

import random
from collections.abc import Mapping

from slca_lightning.seeding import derive_seed
from slca_lightning.types import JSON, ToolCall, ToolSchema

MAX_DEPTH = 4
"""Depth at which nested output schemas end in a plain identifier."""

_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "iris", "juniper", "kelp", "lotus")


def placeholder_answer(tool: ToolSchema, call: ToolCall, world_seed: int) -> JSON:
    """Return an answer that is a pure function of the world seed, the tool and the canonical arguments.

    It has the shape of the tool's output schema (``outputSchema``, ``output_schema`` or ``returns`` of the function),
    and is ``{"status": "ok", "id": ...}`` where there is none.
    """
    rng = random.Random(derive_seed("placeholder", world_seed, call.canonical()))
    function = tool["function"]
    schemas = (function.get(key) for key in ("outputSchema", "output_schema", "returns"))
    schema = next((schema for schema in schemas if isinstance(schema, Mapping) and schema), None)
    return {"status": "ok", "id": _identifier(rng)} if schema is None else _value(schema, rng, 0)


def _identifier(rng: random.Random) -> str:
    return f"{rng.getrandbits(32):08x}"


def _value(schema: JSON, rng: random.Random, depth: int) -> JSON:
    if not isinstance(schema, Mapping) or depth >= MAX_DEPTH:
        return _identifier(rng)
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return rng.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _value(schema[key][0], rng, depth + 1)
    return _typed_value(schema, rng, depth)


def _typed_value(schema: Mapping[str, JSON], rng: random.Random, depth: int) -> JSON:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list) and kind:
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties")
        # Sorted: the answer must not depend on the order in which a definition happens to list its properties.
        names = sorted(properties) if isinstance(properties, Mapping) else []
        return {name: _value(properties[name], rng, depth + 1) for name in names}  # type: ignore[index]
    if kind == "array":
        return [_value(schema.get("items"), rng, depth + 1) for _ in range(rng.randint(1, 3))]
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "null":
        return None
    low, high = _bounds(schema)
    if kind == "integer":
        return rng.randint(int(low), max(int(low), int(high)))
    if kind == "number":
        return round(rng.uniform(low, high), 2)
    return f"{rng.choice(_WORDS)}-{_identifier(rng)[:4]}"


def _bounds(schema: Mapping[str, JSON]) -> tuple[float, float]:
    low, high = schema.get("minimum"), schema.get("maximum")
    low = low if isinstance(low, int | float) else min(0, high) if isinstance(high, int | float) else 0
    high = high if isinstance(high, int | float) else max(1000, low)
    return low, max(low, high)
