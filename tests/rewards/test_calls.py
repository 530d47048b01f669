"""Call statistics and the baselines' rewards, by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from slca_lightning.rewards.baselines import baseline_rewards
from slca_lightning.rewards.calls import call_statistics
from slca_lightning.rewards.parser import parse_turn
from slca_lightning.types import ResultStatus, Rollout, ToolCall, ToolResult, ToolTask, Turn

F1, F2, G = ToolCall("f", {"a": 1}), ToolCall("f", {"a": 2}), ToolCall("g")
UNKNOWN = ToolCall("nope", {"a": 1})


def render(*calls: ToolCall) -> str:
    return f"<tool_call>{json.dumps([{'name': c.name, 'arguments': dict(c.arguments)} for c in calls])}</tool_call>"


def rollout(gold: Sequence[ToolCall], *turns: tuple[str, Sequence[ToolResult]]) -> Rollout:
    task = ToolTask("t", (), (), (tuple(gold),) if gold else (), ("f", "g"))
    made = tuple(Turn(text, 0, 0, parse_turn(text).has_attempt, tuple(results)) for text, results in turns)
    return Rollout(task, 0, 0, (), (), (), (), made, "stop")


def rewards(of: Rollout) -> dict[str, float]:
    return baseline_rewards(of, [parse_turn(turn.text, of.task.allowed_tools) for turn in of.turns])


def ok(call: ToolCall) -> ToolResult:
    return ToolResult(call, "{}")


def test_statistics() -> None:
    texts = [render(F1, F2), render(ToolCall("f", {"a": "1"})), "<tool_call>oops</tool_call>", render(UNKNOWN), "done"]
    turns = [parse_turn(text, ["f", "g"]) for text in texts]
    statistics = call_statistics(turns, [[F1, F2]])
    assert not statistics.exact_match
    assert statistics.redundant_calls == 1
    assert statistics.num_calls == 4
    assert statistics.tool_turns == 4
    assert statistics.invalid_blocks == 2


def test_exact_match_ignores_order_and_steps_but_not_counts() -> None:
    assert call_statistics([parse_turn(render(F2, F1))], [[F1], [F2]]).exact_match
    assert not call_statistics([parse_turn(render(F1))], [[F1], [F1]]).exact_match
    assert not call_statistics([parse_turn(render(F1, F1))], [[F1]]).exact_match
    assert not call_statistics([parse_turn(render(ToolCall("f", {"a": 1, "b": 2})))], [[F1]]).exact_match
    assert call_statistics([], []).exact_match


def test_a_solved_task_earns_everything() -> None:
    assert rewards(rollout([F1, G], (render(F1, G), [ok(F1), ok(G)]), ("done", []))) == {
        "reward_success": 1.0,
        "reward_action": 1.0,
        "completeness": 1.0,
        "repeat_penalty": 0.0,
        "error_penalty": 0.0,
        "format_valid": 1.0,
    }


def test_half_of_the_gold_calls() -> None:
    got = rewards(rollout([F1, G], (render(F1, F2), [ok(F1), ok(F2)]), ("done", [])))
    assert (got["reward_success"], got["reward_action"], got["completeness"]) == (0.0, 0.5, 0.5)


def test_surplus_calls_do_not_spoil_success() -> None:
    assert rewards(rollout([F1], (render(F1, F2), [ok(F1), ok(F2)])))["reward_success"] == 1.0


def test_tasks_without_gold_calls() -> None:
    quiet, busy = rewards(rollout([], ("Hello.", []))), rewards(rollout([], (render(G), [ok(G)])))
    assert (quiet["reward_action"], quiet["completeness"], quiet["reward_success"]) == (1.0, 1.0, 1.0)
    assert (busy["reward_action"], busy["completeness"], busy["reward_success"]) == (0.0, 1.0, 1.0)


def test_only_consecutive_repeats_cost() -> None:
    got = rewards(rollout([F1], (render(F1), [ok(F1)]), (render(F1, F1), [ok(F1)] * 2), (render(F2, F1), [ok(F1)] * 2)))
    assert got["repeat_penalty"] == pytest.approx(-0.2)


def test_every_invalid_call_costs_once() -> None:
    broken = "<tool_call>oops</tool_call>"
    schema_error = ToolResult(F2, "a must be 1", ResultStatus.ERROR)
    answered = [ok(F1), schema_error, ToolResult(UNKNOWN, "no tool", ResultStatus.ERROR)]
    answered += [ToolResult(None, "malformed", ResultStatus.ERROR)]
    got = rewards(rollout([F1], (render(F1, F2, UNKNOWN) + broken, answered), (broken + render(UNKNOWN, F1), [])))
    # Turn 1: schema error, unknown tool, malformed block. Turn 2, never answered: malformed block, unknown tool.
    assert got["error_penalty"] == pytest.approx(-1.0)
    assert got["format_valid"] == 0.0


def test_a_stray_tag_breaks_the_format() -> None:
    assert rewards(rollout([], ("Hello.</tool_call>", [])))["format_valid"] == 0.0
