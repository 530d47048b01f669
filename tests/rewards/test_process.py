"""The process score: laws, hand-computed parts, and the matching."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.errors import ConfigError, DataError
from slca_lightning.rewards.matching import best_assignment
from slca_lightning.rewards.parser import parse_turn
from slca_lightning.rewards.process import ProcessWeights, process_reward, process_reward_from_parsed
from slca_lightning.types import ToolCall

TOOLS = ("f", "g", "h")
VALUES = (
    st.integers(0, 2)
    | st.sampled_from(["x", "Y", "true", "1"])
    | st.booleans()
    | st.lists(st.integers(0, 1), max_size=2)
)
CALLS = st.builds(ToolCall, st.sampled_from(TOOLS), st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
STEPS = st.lists(st.lists(CALLS, min_size=1, max_size=4), max_size=3)


def render(calls: Sequence[ToolCall]) -> str:
    return "".join(
        f"<tool_call>{json.dumps({'name': c.name, 'arguments': dict(c.arguments)})}</tool_call>" for c in calls
    )


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_replaying_gold_scores_one(gold: list[list[ToolCall]]) -> None:
    reward = process_reward([*map(render, gold), "done"], gold, TOOLS)
    assert (reward.format, reward.name, reward.key, reward.parallel, reward.omission) == (1, 1, 1, 1, 0)
    # 1e-12: the mean of n ones and a sum of five weights round.
    assert reward.value == pytest.approx(1, abs=1e-12)
    assert reward.process == pytest.approx(1, abs=1e-12)


@given(STEPS, STEPS, st.booleans())
@settings(max_examples=100, deadline=None)
def test_every_part_is_in_the_unit_interval(made: list[list[ToolCall]], gold: list[list[ToolCall]], cut: bool) -> None:
    texts = [*map(render, made)]
    if cut and texts:
        texts[-1] = texts[-1][:-5]
    reward = process_reward(texts, gold, TOOLS[:2])
    for part in (reward.format, reward.name, reward.key, reward.value, reward.parallel, reward.process):
        assert 0 <= part <= 1 + 1e-12
    assert reward.omission == int(bool(gold) and not made)


@given(st.lists(CALLS, max_size=5), STEPS, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_within_a_turn_does_not_matter(
    calls: list[ToolCall], gold: list[list[ToolCall]], rng: random.Random
) -> None:
    shuffled = rng.sample(calls, len(calls))
    one, other = (process_reward([render(c)], gold, TOOLS) for c in (calls, shuffled))
    assert other.key == pytest.approx(one.key, abs=1e-12)
    assert other.value == pytest.approx(one.value, abs=1e-12)


def test_the_best_matching_beats_the_greedy_one() -> None:
    # Greedy gives gold 1 the first call (value 1/2, as good as the second), and leaves gold 2 the second (value 0).
    gold = [[ToolCall("f", {"a": 1, "b": 2}), ToolCall("f", {"a": 1, "b": 3})]]
    made = [ToolCall("f", {"a": 1, "b": 3}), ToolCall("f", {"a": 9, "b": 2})]
    reward = process_reward([render(made)], gold, TOOLS)
    assert reward.key == 1.0
    assert reward.value == pytest.approx((1 / 2 + 1) / 2)


def test_more_gold_than_calls_leaves_the_worst_unmatched() -> None:
    gold = [[ToolCall("f", {"a": 1}), ToolCall("f", {"a": 2}), ToolCall("g", {"a": 1})]]
    reward = process_reward([render([ToolCall("f", {"a": 2})])], gold, TOOLS)
    assert reward.key == reward.value == pytest.approx(1 / 3)
    assert reward.name == pytest.approx(2 * 1 / (1 + 3))
    assert reward.parallel == 0.0


def test_the_first_step_is_the_first_turn_that_calls() -> None:
    gold = [[ToolCall("f"), ToolCall("g")], [ToolCall("h")]]
    texts = ["Let me think.", render(gold[0]), render(gold[1])]
    assert process_reward(texts, gold, TOOLS).parallel == 1.0
    assert process_reward([render(gold[1]), render(gold[0])], gold, TOOLS).parallel == 0.0


def test_no_call_and_none_needed_can_score_as_published() -> None:
    assert process_reward(["Hello!"], [], TOOLS).process == pytest.approx(1.0)
    published = process_reward(["Hello!"], [], TOOLS, no_call_format=0.0)
    assert (published.format, published.process) == (0.0, pytest.approx(0.9))
    assert process_reward(["Hello!</tool_call>"], [], TOOLS).format == 0.0
    assert process_reward(["Hello!"], [[ToolCall("f")]], TOOLS).format == 0.0


def test_weights_change_the_sum_and_nothing_else() -> None:
    gold = [[ToolCall("f", {"a": 1})]]
    texts = [render([ToolCall("f", {"a": 2})])]
    paper = process_reward(texts, gold, TOOLS)
    value_only = process_reward(texts, gold, TOOLS, ProcessWeights(0, 0, 0, 1, 0))
    assert paper.process == pytest.approx(0.8)
    assert value_only == replace(paper, process=0.0)


def test_parsed_turns_score_the_same() -> None:
    gold = [[ToolCall("f", {"a": 1})]]
    texts = [render([ToolCall("f", {"a": 1})]), "<tool_call>", "ok"]
    parsed = [parse_turn(text, TOOLS) for text in texts]
    assert process_reward_from_parsed(parsed, gold) == process_reward(
        texts, [[{"name": "f", "arguments": {"a": 1}}]], TOOLS
    )


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_bad_settings_are_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="process weights"):
        ProcessWeights(key=weight)
    with pytest.raises(ConfigError, match="no_call_format"):
        process_reward([], [], TOOLS, no_call_format=weight)


@pytest.mark.parametrize("call", ["ping", {}, {"name": 3}, {"name": "f", "arguments": [1]}, 7])
def test_a_gold_call_that_is_none_is_named(call: object) -> None:
    with pytest.raises(DataError, match="gold_tool_calls"):
        process_reward([], [[call]], TOOLS)  # type: ignore[list-item]


@given(st.integers(0, 5), st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_assignment_is_the_best_there_is(rows: int, columns: int, rng: random.Random) -> None:
    scores = [[rng.choice([0.0, 0.5, 1.0, 1.5]) for _ in range(columns)] for _ in range(rows)]
    matched = best_assignment(scores)
    used = [column for column in matched if column is not None]
    assert len(matched) == rows
    assert len(used) == len(set(used)) == min(rows, columns)
    choices = [*range(columns), *[None] * rows]
    best = max(
        sum(scores[r][c] for r, c in enumerate(chosen) if c is not None)
        for chosen in itertools.islice(itertools.permutations(choices, rows), 40_000)
    )
    assert sum(scores[r][c] for r, c in enumerate(matched) if c is not None) >= best
