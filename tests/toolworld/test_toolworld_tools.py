"""Tools: valid schemas, pure answers that cannot be guessed."""

import copy
import random
from collections import Counter

import jsonschema
import pytest

from slca_lightning.tasks.toolworld import execute
from slca_lightning.tasks.toolworld.requests import CHAINS, PHRASES, random_call
from slca_lightning.tasks.toolworld.tools import TOOLS


def test_every_tool_has_phrases():
    assert PHRASES.keys() == TOOLS.keys()
    assert 15 <= len(TOOLS) <= 20


@pytest.mark.parametrize("name", TOOLS)
def test_schema(name):
    schema = TOOLS[name].schema(name)
    assert schema["function"]["name"] == name
    parameters = schema["function"]["parameters"]
    jsonschema.Draft202012Validator.check_schema(parameters)
    validator = jsonschema.Draft202012Validator(parameters)
    rng = random.Random(0)
    for _ in range(200):
        phrase, call = random_call(name, rng)
        validator.validate(call.arguments)
        assert call.name == name
        assert phrase
    for argument in call.arguments:  # the schema has teeth
        missing = {key: value for key, value in call.arguments.items() if key != argument}
        assert not validator.is_valid(missing)
        assert not validator.is_valid({**call.arguments, argument: None})
    assert not validator.is_valid({**call.arguments, "surplus": 1})


@pytest.mark.parametrize("name", TOOLS)
def test_answers_are_pure_and_cannot_be_guessed(name):
    rng = random.Random(1)
    _, call = random_call(name, rng)
    arguments = copy.deepcopy(call.arguments)
    answers = [execute(name, arguments, seed) for seed in range(200)]
    assert [execute(name, dict(reversed(arguments.items())), seed) for seed in range(200)] == answers
    assert arguments == call.arguments
    counts = Counter(map(repr, answers))
    assert len(counts) >= 5
    assert max(counts.values()) <= 80  # always saying the likeliest answer is wrong more often than not
    by_arguments = {repr(execute(name, random_call(name, rng)[1].arguments, 0)) for _ in range(50)}
    assert len(by_arguments) > 1


def test_unknown_tool():
    with pytest.raises(KeyError):
        execute("no_such_tool", {}, 0)


@pytest.mark.parametrize("chain", CHAINS)
def test_the_second_call_of_a_chain_needs_the_first(chain):
    seconds = set()
    for seed in range(30):
        phrase, (first, second) = chain(random.Random(7), seed)  # the same request in other worlds
        (returned,) = execute(first.name, first.arguments, seed).values()
        assert returned in second.arguments.values()
        assert str(returned) not in phrase
        seconds.add(second.canonical())
    assert len(seconds) > 3
