"""Rule rewards of the baselines ToolPO (arXiv 2510.21618) and RLTR (arXiv 2508.19598)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from slca_lightning.rewards.calls import calls_match, count_correct
from slca_lightning.rewards.parser import CallProblem, ParsedTurn
from slca_lightning.types import ResultStatus, Rollout, Turn

REPEAT_PENALTY = -0.1
"""RLTR: per call that repeats the call right before it."""
ERROR_PENALTY = -0.2
"""RLTR: per invalid call."""


def baseline_rewards(rollout: Rollout, parsed: Sequence[ParsedTurn]) -> dict[str, float]:
    """Return the per-rollout inputs of the estimators ``toolpo`` and ``rltr``, by the names they are documented under.

    - ``reward_success``: 1.0 where every gold call was made exactly, else 0.0 (surplus calls do not matter).
    - ``reward_action``: gold calls made exactly, one to one / gold calls; without gold 1.0 if nothing was called,
      else 0.0.
    - ``completeness``: the same share, 1.0 without gold.
    - ``repeat_penalty``, ``error_penalty``: at most 0.
    - ``format_valid``: 1.0 where every call tag belongs to a valid block, else 0.0.

    Args:
        rollout: The rollout, with its tool results.
        parsed: Its turns, parsed with the task's allowed tools.
    """
    gold = rollout.task.gold_calls
    calls = [call for turn in parsed for call in turn.calls]
    share = count_correct(calls, gold) / len(gold) if gold else 1.0
    attempted = any(turn.has_attempt for turn in parsed)
    invalid = sum(_invalid_calls(*turn, rollout.task.allowed_tools) for turn in zip(rollout.turns, parsed, strict=True))
    tags = max(sum(turn.num_open for turn in parsed), sum(turn.num_close for turn in parsed))
    return {
        "reward_success": float(share == 1.0),
        "reward_action": share if gold else float(not attempted),
        "completeness": share,
        "repeat_penalty": REPEAT_PENALTY * sum(calls_match(a, b) for a, b in pairwise(calls)),
        "error_penalty": ERROR_PENALTY * invalid,
        "format_valid": float(sum(turn.num_valid for turn in parsed) == tags),
    }


def _invalid_calls(turn: Turn, parsed: ParsedTurn, allowed_tools: Sequence[str]) -> int:
    """Count blocks that cannot be read, and calls of unknown tools or with arguments that break the schema."""
    unreadable = sum(block.problem not in (None, CallProblem.UNKNOWN_TOOL) for block in parsed.blocks)
    if turn.results:  # unreadable blocks are answered with call=None: not to be counted twice
        return unreadable + sum(r.status is ResultStatus.ERROR and r.call is not None for r in turn.results)
    # Nobody answered the last turn before a limit, so all there is to see is the name.
    return unreadable + sum(call.name not in allowed_tools for call in parsed.calls)
