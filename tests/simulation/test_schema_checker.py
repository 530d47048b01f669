"""Laws of the schema checker: right where jsonschema is, the same text for the same fault, never a crash."""

import gzip
import json
import logging
import random
import socket
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.simulation import ArgumentFault, SchemaChecker

REAL_SCHEMAS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "toucan_tool_schemas.jsonl.gz"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "unit": {"enum": ["C", "F"]},
        "at": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
    "required": ["city"],
    "additionalProperties": False,
}
SCHEMAS = [
    WEATHER,
    {},
    {"$schema": DRAFT_7, "properties": {"a": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "integer"}}},
    {"$defs": {"node": {"properties": {"a": {"$ref": "#/$defs/node"}}, "maxProperties": 1}}, "$ref": "#/$defs/node"},
    {"patternProperties": {"^a": {"type": ["string", "null"]}}, "additionalProperties": {"type": "boolean"}},
    {"minProperties": 1, "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"not": {}}}},
    {"properties": {"a": False, "b": {"format": "ipv4"}}, "propertyNames": {"maxLength": 4}},
    {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False, "dependentRequired": {"a": ["b"]}},
]  # fmt: skip
NAMES = st.sampled_from(["city", "days", "unit", "at", "place", "lat", "tags", "a", "b", "ab", "other"])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["C", 1, "1.2.3.4"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)


def tool(parameters, name="get_weather"):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def reference(schema):
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return cls(schema, format_checker=cls.FORMAT_CHECKER)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SCHEMAS), ARGUMENTS)
def test_a_fault_iff_jsonschema_says_invalid(schema, arguments):
    fault = SchemaChecker().check(tool(schema), arguments)
    assert (fault is None) == reference(schema).is_valid(arguments)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SCHEMAS), ARGUMENTS, st.randoms(use_true_random=False))
def test_the_text_does_not_depend_on_the_order_of_keys_or_on_earlier_checks(schema, arguments, rng):
    def shuffled(value):
        if isinstance(value, dict):
            items = [(key, shuffled(child)) for key, child in value.items()]
            rng.shuffle(items)
            return dict(items)
        return [shuffled(child) for child in value] if isinstance(value, list) else value

    checker = SchemaChecker()
    first = checker.check(tool(schema), arguments)
    checker.check(tool(schema), {"other": 1})
    assert checker.check(tool(schema), arguments) == first
    # The schema's own lists keep their order ("required"), its dicts need not.
    assert SchemaChecker().check(tool(schema), shuffled(arguments)) == first


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, ArgumentFault("city", "a required argument", "nothing")),
        ({"days": "x", "town": 1}, ArgumentFault("city", "a required argument", "nothing")),
        ({"city": 3}, ArgumentFault("city", "string", "integer")),
        ({"city": True}, ArgumentFault("city", "string", "boolean")),
        ({"city": "Oslo", "unit": "K"}, ArgumentFault("unit", "one of C, F", "K")),
        ({"city": "Oslo", "days": 0}, ArgumentFault("days", "minimum 1", "0")),
        ({"city": "Oslo", "at": "noon"}, ArgumentFault("at", "number or null", "string")),
        ({"city": "Oslo", "place": {}}, ArgumentFault("place.lat", "a required argument", "nothing")),
        ({"city": "Oslo", "tags": ["a", 1]}, ArgumentFault("tags[1]", "string", "integer")),
        ({"city": "Oslo", "tags": ["a", "a"]}, ArgumentFault("tags", "uniqueItems true", '["a","a"]')),
        ({"city": "Oslo", "z": 1, "y": 1},
         ArgumentFault("y", "only at, city, days, place, tags, unit", "an unexpected argument")),
        (["Oslo"], ArgumentFault("", "object", "array")),
        (None, ArgumentFault("", "object", "null")),
    ],
)  # fmt: skip
def test_which_fault_is_told(arguments, fault):
    assert SchemaChecker().check(tool(WEATHER), arguments) == fault


def test_valid_arguments_pass_and_numbers_are_as_json_schema_counts_them():
    checker = SchemaChecker()
    assert checker.check(tool(WEATHER), {"city": "Oslo", "days": 2.0, "at": None, "place": {"lat": 1}}) is None
    assert checker.check(tool(WEATHER), {"city": "Oslo", "days": True}) == ArgumentFault("days", "integer", "boolean")


def test_the_draft_is_the_declared_one():
    # A list under "items" is a tuple in draft 7, and an invalid schema in 2020-12.
    items = {"properties": {"a": {"items": [{"type": "string"}]}}}
    checker = SchemaChecker()
    assert checker.check(tool({"$schema": DRAFT_7, **items}), {"a": [1]}) == ArgumentFault("a[0]", "string", "integer")
    assert checker.check(tool(items), {"a": [1]}) is None
    # Draft 7 has no such keyword, so that this shows the default.
    unknown = {"$schema": "https://example.com/my-draft", "dependentRequired": {"a": ["b"]}}
    assert checker.check(tool(unknown), {"a": 1}) == ArgumentFault("", 'dependentRequired {"a":["b"]}', '{"a":1}')


BROKEN = {
    "missing": None,
    "null": {"parameters": None},
    "a list": {"parameters": ["query"]},
    "a boolean": {"parameters": True},
    "not JSON": {"parameters": {"enum": {1, 2}}},
    "unknown type": {"parameters": {"properties": {"a": {"type": "any"}}}},
    "required of an old draft": {"parameters": {"properties": {"a": {"type": "string", "required": True}}}},
    "bad pattern": {"parameters": {"properties": {"a": {"pattern": "(["}}}},
    "pattern of another dialect": {"parameters": {"properties": {"a": {"pattern": r"^\p{L}+$"}}}},
    "$schema not a text": {"parameters": {"$schema": ["x"]}},
    "$schema no URI": {"parameters": {"$schema": "http://[x", "type": "any"}},
    "$id no URI": {"parameters": {"$id": "http://[x", "$ref": "#/$defs/a"}},
    "cyclic reference": {"parameters": {"$ref": "#"}},
    "reference to nowhere": {"parameters": {"properties": {"a": {"$ref": "#/definitions/Gone"}}}},
    "remote reference": {"parameters": {"properties": {"a": {"$ref": "https://example.com/schema.json"}}}},
    "remote reference by name": {"parameters": {"$id": "http://example.com/x", "$ref": "other.json"}},
}


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("the checker opened a connection")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("function", BROKEN.values(), ids=BROKEN.keys())
def test_a_schema_that_cannot_be_checked_is_reported_once_and_skipped(function, caplog):
    broken = {"type": "function", "function": {"name": "broken", **(function or {})}}
    checker = SchemaChecker()
    with caplog.at_level(logging.WARNING):
        assert [checker.check(broken, {"a": "x"}) for _ in range(3)] == [None, None, None]
    assert [record.args[0] for record in caplog.records] == ["broken"]


def test_each_tool_with_an_invalid_schema_is_reported(caplog):
    checker = SchemaChecker()
    for name in ("one", "two", "one"):
        checker.check(tool({"type": "any"}, name), {})
    assert [record.args[0] for record in caplog.records] == ["one", "two"]


def test_a_bad_reference_leaves_calls_that_do_not_reach_it_checked_whatever_came_before():
    schema = {"properties": {"a": {"$ref": "https://example.com/schema.json"}}, "required": ["b"]}
    checker = SchemaChecker()
    before = checker.check(tool(schema), {})
    assert checker.check(tool(schema), {"a": 1}) is None
    assert checker.check(tool(schema), {}) == before == ArgumentFault("b", "a required argument", "nothing")


def test_numbers_too_big_for_a_float_do_not_crash():
    schema = {"properties": {"a": {"multipleOf": 0.5, "minimum": 0}}}
    SchemaChecker().check(tool(schema), {"a": 10**400})


@pytest.mark.slow
@pytest.mark.usefixtures("no_network")
@pytest.mark.skipif(not REAL_SCHEMAS.exists(), reason="the real tool schemas are not on this machine (shared/data)")
def test_every_real_schema_gets_an_answer(caplog):
    with gzip.open(REAL_SCHEMAS, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    checker, garbage = SchemaChecker(), [None, True, -1, 1.5, "x", [], [1, "x"], {}, {"x": None}]
    faults = 0
    for index, row in enumerate(rows):
        # The server's name goes along: tools of different servers share names, and reports are per tool.
        real = tool(row["parameters"], f"{row['server']}.{row['name']}")
        rng = random.Random(index)
        names = [*list(row["parameters"].get("properties") or {})[:6], "unheard_of"]
        for arguments in ({}, {name: rng.choice(garbage) for name in names}):
            fault = checker.check(real, arguments)
            faults += fault is not None
            assert fault is None or json.loads(fault.text("t"))["error"]["type"] == "invalid_arguments"
    assert len(rows) == 6044
    assert faults > 6044
    invalid = {record.args[0] for record in caplog.records if record.args[1].startswith("SchemaError")}
    assert len(invalid) == 8
    assert len(caplog.records) == len({record.args[0] for record in caplog.records})
