"""Tasks: repeatable, solvable, and kept apart by split."""

from collections import Counter

import jsonschema
import pytest

from slca_lightning.errors import ConfigError
from slca_lightning.tasks.toolworld import ToolWorldTasks, execute
from slca_lightning.tasks.toolworld.tasks import KINDS


@pytest.fixture(scope="module")
def train():
    return list(ToolWorldTasks("train", 5000))


@pytest.fixture(scope="module")
def held_out():
    return list(ToolWorldTasks("test", 2000))


def test_splits_share_no_question(train, held_out):
    ours, theirs = {task.question for task in train}, {task.question for task in held_out}
    assert not ours & theirs
    assert len(ours) > 3000
    assert len(theirs) > 1000
    other_seed = {task.question for task in ToolWorldTasks("test", 500, seed=9)}
    assert not ours & other_seed


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_kinds(split, request):
    tasks = request.getfixturevalue(split)
    shares = Counter(task.kind for task in tasks)
    for kind, share in KINDS.items():
        # A standard deviation is at most 1.1 points for 2,000 tasks; beyond it, the splits' shares of questions differ.
        assert shares[kind] / len(tasks) == pytest.approx(share, abs=0.04)
    assert sum(KINDS.values()) == pytest.approx(1.0)


def test_every_gold_call_is_valid_and_runs(train):
    for task in train:
        assert task.allowed_tools == tuple(tool["function"]["name"] for tool in task.tools)
        assert len(set(task.allowed_tools)) == len(task.tools) == 4
        assert task.question == task.messages[-1]["content"]
        for call in task.gold_calls:
            assert call.name in task.allowed_tools
            jsonschema.Draft202012Validator(task.tool(call.name)["function"]["parameters"]).validate(call.arguments)
            assert execute(call.name, call.arguments, task.world_seed)


def test_shape_of_each_kind(train):
    shapes = {kind: Counter() for kind in KINDS}
    for task in train:
        shapes[task.kind][tuple(len(step) for step in task.gold_steps)] += 1
    assert shapes["single"].keys() == {(1,)}
    assert shapes["parallel"].keys() == {(2,), (3,)}
    assert shapes["sequential"].keys() == {(1, 1)}
    assert shapes["none"].keys() == {()}


def test_sequential_tasks_use_the_first_result(train):
    for task in train:
        if task.kind == "sequential":
            (first,), (second,) = task.gold_steps
            (returned,) = execute(first.name, first.arguments, task.world_seed).values()
            assert returned in second.arguments.values()
            assert str(returned) not in task.question


def test_tasks_depend_on_nothing_but_their_index(train):
    source = ToolWorldTasks("train", 5000)
    for index in (4999, 0, 17, -1, 17):
        assert source[index] == train[index]
    assert source[10:13] == train[10:13]
    assert ToolWorldTasks("train", 20)[7] == train[7]  # nor on the size
    assert len({task.task_id for task in train}) == len(train)
    assert ToolWorldTasks("train", 20, seed=1)[7].question != train[7].question
    with pytest.raises(IndexError):
        source[5000]


def test_num_tools():
    assert {len(task.tools) for task in ToolWorldTasks(size=50, num_tools=7)} == {7}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"split": "dev"}, "dev"),
        ({"size": 0}, "size"),
        ({"size": -3}, "-3"),
        ({"num_tools": 2}, "num_tools"),
        ({"num_tools": 99}, "99"),
    ],
)
def test_bad_settings(options, said):
    with pytest.raises(ConfigError, match=said):
        ToolWorldTasks(**options)
