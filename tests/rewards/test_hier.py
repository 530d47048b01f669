"""HierR: every branch of scored, absent and failed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from slca_lightning.errors import ConfigError, JudgeError
from slca_lightning.rewards import HierR, Judge, JudgeRequest, ProcessWeights, RuleJudge, parse_turn, reward_streams
from slca_lightning.types import (
    ResultStatus,
    RewardBreakdown,
    Rollout,
    Score,
    ScoreStatus,
    ToolCall,
    ToolResult,
    ToolTask,
    Turn,
)

CALL = ToolCall("temp", {"city": "Oslo"})
CALL_TEXT = '<tool_call>{"name": "temp", "arguments": {"city": "Oslo"}}</tool_call>'
RESULT = ToolResult(CALL, '{"temp": 7}')
ANSWER = "<think>easy</think>It is 7 degrees."
TASK = ToolTask("t", (), (), ((CALL,),), ("temp",), question="How warm is Oslo?")
CHAT = replace(TASK, gold_steps=())


class StubJudge(Judge):
    """Answers what it is told to and keeps the requests."""

    def __init__(self, answer: Score | Exception = Score(0.75)) -> None:  # noqa: B008
        self.answer = answer
        self.requests: list[JudgeRequest] = []
        self.closed = False

    async def rate(self, request: JudgeRequest) -> Score:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed = True


def rollout(*texts: str, results: tuple[ToolResult, ...] = (RESULT,), task: ToolTask = TASK, **fields: Any) -> Rollout:
    """Make a rollout of these turns; each that calls is answered with ``results``."""
    turns = []
    for text in texts:
        has_call = parse_turn(text).has_attempt
        turns.append(Turn(text, 0, 0, has_call, results if has_call else ()))
    made = Rollout(task, 2, 0, (), (), (), (), tuple(turns), "stop")
    return replace(made, **fields)


def score(of: Rollout, judge: Judge | None = None, seed: int = 0, **options: Any) -> RewardBreakdown:
    return asyncio.run(HierR(judge or StubJudge(), **options).score(of, seed))


def test_a_good_rollout() -> None:
    judge = StubJudge()
    got = score(rollout(CALL_TEXT, ANSWER), judge)
    assert got.process.process == pytest.approx(1.0)
    assert got.tool.value == pytest.approx(1.0)
    assert got.summary.value == 0.75
    assert got.total.value == pytest.approx(1.75)
    assert not got.omission
    (request,) = judge.requests
    assert (request.question, request.results) == ("How warm is Oslo?", (RESULT,))
    assert request.final_text == "It is 7 degrees."


def test_the_weights_of_the_segments_are_in_the_total_only() -> None:
    got = score(rollout(CALL_TEXT, ANSWER), weight_tool=2.0, weight_summary=0.5)
    assert (got.tool.value, got.summary.value) == (pytest.approx(1.0), 0.75)
    assert got.total.value == pytest.approx(2.375)


def test_process_weights_change_the_tool_reward_and_not_the_report() -> None:
    got = score(rollout(CALL_TEXT, ANSWER), weights=ProcessWeights(0, 0, 0, 0, 0))
    assert got.tool.value == 0.0
    assert got.process.process == pytest.approx(1.0)
    assert got.total.value == 0.75


@pytest.mark.parametrize(
    "broken",
    [
        rollout(CALL_TEXT, ANSWER, finish_reason="failed"),
        rollout(CALL_TEXT, ANSWER, failure="engine down"),
        rollout(CALL_TEXT, ANSWER, results=(ToolResult(CALL, "timeout", ResultStatus.FAILED),)),
        rollout(finish_reason="failed"),
    ],
)
def test_a_failed_rollout_has_no_valid_reward(broken: Rollout) -> None:
    judge = StubJudge()
    got = score(broken, judge, failed_judge_is_zero=True)
    assert got.tool.is_failed
    assert got.summary.is_failed
    assert got.total.is_failed
    assert judge.requests == []
    streams = reward_streams(got)
    assert (streams["tool_valid"], streams["summary_valid"], streams["valid"], streams["omission"]) == (0, 0, 0, 0)


def test_a_rollout_that_ends_in_a_call_has_no_summary() -> None:
    judge = StubJudge()
    got = score(rollout(CALL_TEXT, CALL_TEXT, finish_reason="turns"), judge)
    assert got.summary.status is ScoreStatus.ABSENT
    assert got.total.value == got.tool.value
    assert judge.requests == []
    assert score(rollout(task=CHAT)).summary.status is ScoreStatus.ABSENT


def test_a_short_text_is_not_judged() -> None:
    judge = StubJudge()
    got = score(rollout(CALL_TEXT, "<think>a long thought, not an answer</think> ok"), judge)
    assert (got.summary.value, judge.requests) == (0.0, [])
    assert score(rollout(CALL_TEXT, "12345678 0"), judge).summary.value == 0.75
    assert score(rollout(CALL_TEXT, "ok"), judge, min_summary_chars=2).summary.value == 0.75


def test_omission_replaces_the_total_only() -> None:
    judge = StubJudge()
    got = score(rollout(ANSWER), judge)
    assert got.omission
    assert got.tool.value == got.process.process == 0.0
    assert (got.summary.value, judge.requests) == (0.0, [])
    assert got.total.value == -0.5
    assert score(rollout(ANSWER), omission_reward=-1.0).total.value == -1.0
    assert reward_streams(got)["omission"] == 1.0


def test_an_attempt_without_a_result_is_no_omission_and_is_not_judged() -> None:
    judge = StubJudge()
    got = score(rollout("<tool_call>oops</tool_call>", ANSWER, results=()), judge)
    assert (got.omission, got.summary.value, got.total.value, judge.requests) == (False, 0.0, 0.0, [])


def test_a_task_that_needs_no_call_is_judged_on_its_text() -> None:
    got = score(rollout("Hello, how are you?", task=CHAT))
    assert (got.omission, got.summary.value, got.total.value) == (False, 0.75, pytest.approx(1.75))
    published = score(rollout("Hello, how are you?", task=CHAT), judge_no_call_tasks=False, no_call_format=0.0)
    assert (published.summary.value, published.total.value) == (0.0, pytest.approx(0.9))


@pytest.mark.parametrize("answer", [JudgeError("503"), Score.failed("503"), Score.absent("?"), Score(3.0)])
def test_a_judge_that_fails_is_not_a_zero(answer: Score | Exception) -> None:
    got = score(rollout(CALL_TEXT, ANSWER), StubJudge(answer))
    assert got.tool.value == pytest.approx(1.0)
    assert got.summary.is_failed
    assert got.total.is_failed
    assert got.summary.reason
    streams = reward_streams(got)
    assert (streams["tool_valid"], streams["summary_valid"], streams["valid"]) == (1, 0, 0)
    published = score(rollout(CALL_TEXT, ANSWER), StubJudge(answer), failed_judge_is_zero=True)
    assert (published.summary.value, published.total.value) == (0.0, pytest.approx(1.0))


def test_a_bug_in_a_judge_is_not_a_reward() -> None:
    with pytest.raises(ZeroDivisionError):
        score(rollout(CALL_TEXT, ANSWER), StubJudge(ZeroDivisionError()))


def test_the_judge_is_seeded_by_run_task_and_member() -> None:
    judge = StubJudge()
    for seed, member in [(0, 2), (0, 2), (1, 2), (0, 3)]:
        score(rollout(CALL_TEXT, ANSWER, member=member), judge, seed)
    seeds = [request.seed for request in judge.requests]
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 3


def test_streams_hold_every_input_of_the_estimators() -> None:
    streams = reward_streams(score(rollout(CALL_TEXT, ANSWER), RuleJudge()))
    assert streams == {
        "reward_tool": pytest.approx(1.0),
        "reward_summary": 1.0,
        "reward_total": pytest.approx(2.0),
        "omission": 0.0,
        "tool_valid": 1.0,
        "summary_valid": 1.0,
        "valid": 1.0,
        "reward_success": 1.0,
        "reward_action": 1.0,
        "completeness": 1.0,
        "repeat_penalty": 0.0,
        "error_penalty": 0.0,
        "format_valid": 1.0,
    }


def test_closing_closes_the_judge() -> None:
    judge = StubJudge()
    asyncio.run(HierR(judge).close())
    assert judge.closed


@pytest.mark.parametrize("option", [{"weight_tool": float("nan")}, {"no_call_format": 2.0}, {"min_summary_chars": -1}])
def test_bad_settings_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        HierR(StubJudge(), **option)
