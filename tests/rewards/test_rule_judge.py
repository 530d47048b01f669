"""Facts and the rule judge, by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.errors import ConfigError
from slca_lightning.rewards.judges import RATINGS, FactReport, JudgeRequest, RuleJudge, fact_report
from slca_lightning.types import ResultStatus, ToolResult

OSLO = {"city": "Oslo", "temp": -4, "wind": {"speed": 84.0, "gusts": True}, "note": None}


def results(*contents: Any, status: ResultStatus = ResultStatus.OK) -> tuple[ToolResult, ...]:
    texts = [content if isinstance(content, str) else json.dumps(content) for content in contents]
    return tuple(ToolResult(None, text, status) for text in texts)


def rate(
    judge: RuleJudge,
    text: str,
    *contents: Any,
    question: str = "",
    seed: int = 0,
    status: ResultStatus = ResultStatus.OK,
) -> float | None:
    return asyncio.run(judge.rate(JudgeRequest(question, results(*contents, status=status), text, seed))).value


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("In OSLO it is -4 degrees, wind 84 km/h.", FactReport(3, 3, 0)),
        ("In Oslo it is \u22124 degrees, wind 84.0.", FactReport(3, 3, 0)),
        ("In Oslo it is 4 degrees, wind 84km/h.", FactReport(3, 2, 1)),
        ("In Oslovian it is -42, wind 840.", FactReport(3, 0, 2)),
        ("Oslo: -4, 84, 84, and 7.5, 7.50 too", FactReport(3, 3, 1)),
        ("", FactReport(3, 0, 0)),
    ],
)
def test_facts_by_hand(text: str, report: FactReport) -> None:
    assert fact_report(results(OSLO), "", text) == report


@pytest.mark.parametrize(
    ("value", "text", "reported"),
    [
        (4, "It is 42.", 0),
        (4, "It is 4.", 1),
        (4, "It is 0.4 or 4.5.", 0),
        (4, "Room b4", 0),
        (5, "3-5 days", 1),
        (1234, "It costs $1,234.00.", 1),
        (0.1 + 0.2, "It is 0.3.", 1),
        ("84", "It is 84.0", 1),
        ("2026-12-02", "On 2026-12-02 then.", 1),
        ("New  York", "in new york!", 1),
        ("New York", "in New Yorkshire", 0),
        ("cat", "concatenate the cat", 1),
        ("\u6771\u4eac", "\u5728\u6771\u4eac\u7684", 1),
        (4, "\u6eab\u5ea64\u5ea6", 1),
    ],
)
def test_what_counts_as_reported(value: Any, text: str, reported: int) -> None:
    assert fact_report(results({"x": value}), "", text).reported == reported


def test_numbers_of_results_and_question_are_not_invented() -> None:
    assert fact_report(results({"x": "a\n5"}), "for 3 days", "3 days, 5, 2026").invented == 1
    assert fact_report(results("error 17", status=ResultStatus.ERROR), "", "error 17") == FactReport(0, 0, 0)


def test_a_content_that_is_not_json_has_its_numbers_as_facts() -> None:
    assert fact_report(results("about 12 to 14 degrees ..."), "", "12 degrees") == FactReport(2, 1, 0)


def test_equal_facts_count_once() -> None:
    assert fact_report(results({"a": 4, "b": 4.0}, {"c": "4"}), "", "4") == FactReport(1, 1, 0)


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_can_be_compared(content: str, question: str, text: str) -> None:
    report = fact_report(results(content), question, text)
    assert 0 <= report.reported <= report.total
    assert fact_report(results(content), text, text).invented == 0


@pytest.mark.parametrize("content", ["9" * 1_000_000, "[" * 1_000_000, "9" * 4000, "1e999", "NaN", "1," * 50_000])
def test_extreme_contents_can_be_compared(content: str) -> None:
    assert fact_report(results(content), "", content).invented == 0


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("Oslo, -4, 84", "excellent"),
        ("Oslo, -4, 84, 99", "good"),
        ("Oslo, -4", "good"),
        ("Oslo, -4, 99", "acceptable"),
        ("Oslo", "poor"),
        ("Oslo, 97, 98, 99", "poor"),
        ("It is cold.", "very poor"),
        ("It is 99.", "very poor"),
    ],
)
def test_ratings_by_hand(text: str, rating: str) -> None:
    assert rate(RuleJudge(), text, OSLO) == RATINGS[rating]


def test_texts_without_facts_to_report() -> None:
    judge = RuleJudge()
    assert rate(judge, "Hello, how can I help?") == 1.0
    assert rate(judge, "You have 3 options, I checked 17.", question="my 3 options?") == 0.75
    assert rate(judge, "1 2 3 4 5 6") == 0.0
    assert rate(judge, "Done.", {"ok": True}) == 1.0
    assert rate(judge, "The tool failed.", "unknown tool", status=ResultStatus.ERROR) == 0.25
    assert rate(judge, "It is 12 degrees.", "unknown tool", status=ResultStatus.ERROR) == 0.0


@pytest.mark.parametrize("text", ["Oslo, -4, 84", "Oslo, -4", "nothing"])
def test_noise_moves_one_level_at_its_rate(text: str) -> None:
    clean, judge = rate(RuleJudge(), text, OSLO), RuleJudge(noise=0.3)
    noisy = [rate(judge, text, OSLO, seed=seed) for seed in range(1000)]
    assert clean is not None
    assert {abs(value - clean) for value in noisy if value is not None} == {0.0, 0.25}
    # Four standard deviations of a binomial rate of 0.3 over 1,000 draws.
    assert sum(value != clean for value in noisy) / 1000 == pytest.approx(0.3, abs=0.058)


def test_noise_repeats_with_its_seed() -> None:
    first, second = ([rate(RuleJudge(0.5), "Oslo, -4", OSLO, seed=seed) for seed in range(50)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 1


def test_length_bias() -> None:
    text = "Oslo." + " so" * 65  # 200 characters, level 1
    assert rate(RuleJudge(length_bias=1.0), text, OSLO) == 0.75
    assert rate(RuleJudge(length_bias=-1.0), text, OSLO) == 0.0
    assert rate(RuleJudge(length_bias=0.2), text, OSLO) == 0.25
    assert rate(RuleJudge(length_bias=9.0), text, OSLO) == 1.0


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="noise"):
        RuleJudge(noise=1.5)
    with pytest.raises(ConfigError, match="length_bias"):
        RuleJudge(length_bias=float("nan"))
