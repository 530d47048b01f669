"""The numbers of one rollout, by the names of :data:`ROLLOUT_METRICS`."""

from __future__ import annotations

from slca_lightning.metrics.rollout import SUCCESS_THRESHOLDS, success_at
from slca_lightning.rewards.calls import call_statistics
from slca_lightning.rewards.judges.facts import fact_report
from slca_lightning.rewards.parser import parse_turn
from slca_lightning.types import RewardBreakdown, Rollout, Score


def rollout_values(rollout: Rollout, reward: RewardBreakdown) -> dict[str, float | None]:
    """Return what is reported of a rollout. None: failed, and in no statistic but ``failed``."""
    if reward.tool.is_failed:
        return {"failed": 1.0}
    turns = [parse_turn(turn.text, rollout.task.allowed_tools) for turn in rollout.turns]
    calls = call_statistics(turns, rollout.task.gold_steps)
    faithful = (
        bool(rollout.final_text)
        and fact_report(rollout.results, rollout.task.question, turns[-1].visible_text if turns else "").faithful
    )
    process = reward.process
    return {
        **{f"success@{threshold}": success_at(process.process, threshold) for threshold in SUCCESS_THRESHOLDS},
        "name_f1": process.name,
        "key": process.key,
        "value": process.value,
        "arg_match": (process.name + process.key + process.value) / 3,
        "format": process.format,
        "parallel": process.parallel,
        "process": process.process,
        "summary": _value(reward.summary),
        "total": _value(reward.total),
        "exact_calls": float(calls.exact_match),
        "joint_success": float(calls.exact_match and faithful),
        "omission": float(process.omission),
        "tool_turns": float(calls.tool_turns),
        "calls": float(calls.num_calls),
        "redundant_calls": float(calls.redundant_calls),
        "truncation": float(rollout.finish_reason in ("length", "turns")),
        "failed": float(reward.total.is_failed),
        "response_tokens": float(len(rollout.response_ids)),
    }


def _value(score: Score) -> float | None:
    """A text that was not written earns nothing; one that could not be judged is not counted."""
    return None if score.is_failed else score.or_zero
