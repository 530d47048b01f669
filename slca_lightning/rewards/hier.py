"""HierR: the tool reward and the summary reward of a rollout, and their sum (arXiv 2609.29050)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slca_lightning.errors import ConfigError, JudgeError
from slca_lightning.rewards.baselines import baseline_rewards
from slca_lightning.rewards.judges.base import Judge, JudgeRequest
from slca_lightning.rewards.parser import ParsedTurn, parse_turn
from slca_lightning.rewards.process import PAPER_WEIGHTS, ProcessWeights, process_reward_from_parsed
from slca_lightning.seeding import derive_seed
from slca_lightning.types import ProcessReward, ResultStatus, RewardBreakdown, Rollout, Score


class HierR:
    """Scores rollouts: R_tool by rules, R_sum by a judge, total = weight_tool R_tool + weight_summary R_sum.

    Every reward is scored, absent or failed: a failure never becomes a zero. ``RewardBreakdown.process`` always holds
    the score under the paper's weights, so that Success@0.9 means the same in every ablation; ``tool`` is what
    ``weights`` make of its parts. On omission ``tool`` and ``summary`` stay as they are and only ``total`` is
    ``omission_reward``: what takes their place in the advantage is the estimator's business.

    Args:
        judge: Rates the final texts.
        weights: Of the five parts of the tool reward; the paper's by default.
        weight_tool: lambda_tool, in the total only.
        weight_summary: lambda_sum, in the total only.
        omission_reward: Total of a rollout that calls nothing though its task needs a call.
        min_summary_chars: A shorter visible text scores 0 without asking the judge.
        judge_no_call_tasks: Whether a text without tool results is judged where the task needs none. Published: False.
        failed_judge_is_zero: Whether a judge's failure scores 0 instead of being left out. Published: True.
        no_call_format: Format score of a task that needs no call and gets none, in [0, 1]. Published: 0.0.

    Raises:
        ConfigError: where an argument is out of range.
    """

    def __init__(
        self,
        judge: Judge,
        weights: ProcessWeights | None = None,
        weight_tool: float = 1.0,
        weight_summary: float = 1.0,
        omission_reward: float = -0.5,
        min_summary_chars: int = 10,
        judge_no_call_tasks: bool = True,
        failed_judge_is_zero: bool = False,
        no_call_format: float = 1.0,
    ) -> None:
        if not all(math.isfinite(x) for x in (weight_tool, weight_summary, omission_reward)):
            raise ConfigError("weight_tool, weight_summary and omission_reward must be finite")
        if not 0.0 <= no_call_format <= 1.0:
            raise ConfigError(f"no_call_format must be in [0, 1], got {no_call_format}")
        if min_summary_chars < 0:
            raise ConfigError(f"min_summary_chars must be at least 0, got {min_summary_chars}")
        self.judge = judge
        self.weights = weights or PAPER_WEIGHTS
        self.weight_tool = weight_tool
        self.weight_summary = weight_summary
        self.omission_reward = omission_reward
        self.min_summary_chars = min_summary_chars
        self.judge_no_call_tasks = judge_no_call_tasks
        self.failed_judge_is_zero = failed_judge_is_zero
        self.no_call_format = no_call_format

    async def score(self, rollout: Rollout, seed: int) -> RewardBreakdown:
        """Score one rollout. ``seed`` and the rollout's place in its group seed whatever is random in the judge.

        Raises:
            Exception: what a judge raises other than JudgeError is a bug, and is not turned into a reward.
        """
        parsed = [parse_turn(turn.text, rollout.task.allowed_tools) for turn in rollout.turns]
        process = process_reward_from_parsed(parsed, rollout.task.gold_steps, no_call_format=self.no_call_format)
        extra = baseline_rewards(rollout, parsed)
        if (reason := _failure(rollout)) is not None:
            failed = Score.failed(reason)
            return RewardBreakdown(process, tool=failed, summary=failed, total=failed, extra=extra)
        tool = Score(self._tool_reward(process))
        summary = await self._summary(rollout, parsed, seed)
        return RewardBreakdown(process, tool, summary, self._total(tool, summary, bool(process.omission)), extra)

    async def close(self) -> None:
        """Close the judge."""
        await self.judge.close()

    def _tool_reward(self, process: ProcessReward) -> float:
        return self.weights.combine(process.format, process.name, process.key, process.value, process.parallel)

    async def _summary(self, rollout: Rollout, parsed: Sequence[ParsedTurn], seed: int) -> Score:
        # Turn.has_call, not a second opinion: it is what decides the segment's tokens.
        if not rollout.turns or rollout.turns[-1].has_call:
            return Score.absent("the rollout ends without a final text")
        text = parsed[-1].visible_text
        if len(text) < self.min_summary_chars:
            return Score(0.0, reason=f"a final text under {self.min_summary_chars} characters")
        if not rollout.results and (rollout.task.needs_call or not self.judge_no_call_tasks):
            return Score(0.0, reason="no tool result to report")
        judge_seed = derive_seed("judge", seed, rollout.group, rollout.member)
        return await self._ask(JudgeRequest(rollout.task.question, rollout.results, text, judge_seed))

    async def _ask(self, request: JudgeRequest) -> Score:
        try:
            score = await self.judge.rate(request)
        except JudgeError as error:
            score = Score.failed(f"judge failed: {error}")
        if not score.is_failed and (score.value is None or not 0.0 <= score.value <= 1.0):
            score = Score.failed(f"judge gave no rating in [0, 1]: {score.value}")
        if score.is_failed and self.failed_judge_is_zero:
            return Score(0.0, reason=score.reason)
        return score

    def _total(self, tool: Score, summary: Score, omission: bool) -> Score:
        if summary.is_failed:
            return Score.failed(summary.reason)
        if omission:
            return Score(self.omission_reward, reason="no call though the task needs one")
        return Score(self.weight_tool * tool.or_zero + self.weight_summary * summary.or_zero)


def _failure(rollout: Rollout) -> str | None:
    """Return why no reward of the rollout can be trusted, or None."""
    if rollout.finish_reason == "failed" or rollout.failure is not None:
        return rollout.failure or "the rollout failed"
    failed = next((r for r in rollout.results if r.status is ResultStatus.FAILED), None)
    return None if failed is None else f"the simulator failed: {failed.content:.200}"


def reward_streams(breakdown: RewardBreakdown) -> dict[str, float]:
    """Return every per-rollout input of ``compute_advantages``, by name.

    The flags ``tool_valid``, ``summary_valid`` and ``valid`` (of the total) are 1.0 unless the reward *failed*. An
    absent reward reads 0.0 and valid: the segment mask leaves it out under the structural rule, and under the paper's
    ``last_run`` rule, where a call may be booked as the summary, 0.0 is what it earned. ``omission`` is 0.0 for a
    failed rollout, which may have been cut off before it could call.
    """
    return {
        "reward_tool": breakdown.tool.or_zero,
        "reward_summary": breakdown.summary.or_zero,
        "reward_total": breakdown.total.or_zero,
        "omission": float(breakdown.omission and not breakdown.total.is_failed),
        "tool_valid": float(not breakdown.tool.is_failed),
        "summary_valid": float(not breakdown.summary.is_failed),
        "valid": float(not breakdown.total.is_failed),
        **breakdown.extra,
    }
