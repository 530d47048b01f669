"""The scalars of hand-made collections, against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from slca_lightning.metrics.collection import Stat, collection_scalars, collection_stats, stat_scalars
from slca_lightning.rollout.collection import Collection
from slca_lightning.types import ProcessReward, RewardBreakdown, Rollout, Score, ToolCall, ToolTask, Turn

CALL = '<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>'
LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}


def task(name: str) -> ToolTask:
    return ToolTask(name, ({"role": "user", "content": "?"},), (LOOK,), ((ToolCall("look", {"x": 1}),),), ("look",))


def rollout(group: str, member: int, *, finish: str = "stop") -> Rollout:
    """Two policy tokens that call, one injected, one policy token that answers."""
    return Rollout(
        task(group),
        member,
        weights_version=7,
        prompt_ids=(1, 2),
        response_ids=(3, 4, 5, 6),
        policy_mask=(True, True, False, True),
        logprobs=(-1.0, -2.0, 0.0, -3.0),
        turns=(Turn(CALL, 0, 2, True), Turn("It is here.", 3, 4, False)),
        finish_reason=finish,  # type: ignore[arg-type]
        template_drift=member == 0,
    )


def reward(tool: Score, summary: Score, total: Score, name: float = 1.0, process: float = 1.0) -> RewardBreakdown:
    return RewardBreakdown(ProcessReward(1.0, name, 1.0, 1.0, 1.0, process, 0), tool, summary, total)


def collection() -> Collection:
    """Two groups of two: all scored; a judge that failed; all scored; an engine that failed."""
    failed = Score.failed("down")
    return Collection(
        (rollout("a", 0), rollout("a", 1), rollout("b", 0), rollout("b", 1, finish="failed")),
        (
            reward(Score(1.0), Score(0.5), Score(1.5), process=0.95),
            reward(Score(0.4), failed, failed, name=0.25, process=0.4),
            reward(Score(0.7), Score.absent("none"), Score(0.7), name=0.25, process=0.7),
            reward(failed, failed, failed, name=0.0, process=0.0),
        ),
    )


def with_advantages() -> Collection:
    made = collection()
    made.advantages = torch.tensor([[1.0, 1, 0, 2], [-1.0, -1, 0, 0], [0.0, 0, 0, -2], [9.0, 9, 0, 9]])
    made.loss_mask[1, 3] = False  # as SegmentAdvantage does where the judge failed
    made.old_logprobs = made.sampling_logprobs + torch.tensor(
        [[0.0, 0.1, 0, 0], [0, 0, 0, 0], [0, 0, 0, -0.5], [5] * 4]
    )
    return made


def test_failed_rewards_are_in_no_mean_and_absent_ones_are_zero() -> None:
    scalars = collection_scalars(collection())
    assert scalars["reward/tool"] == pytest.approx((1.0 + 0.4 + 0.7) / 3)
    assert scalars["reward/summary"] == pytest.approx((0.5 + 0.0) / 2)
    assert scalars["reward/total"] == pytest.approx((1.5 + 0.7) / 2)
    assert scalars["reward/name"] == pytest.approx((1.0 + 0.25 + 0.25) / 3)
    assert scalars["reward/format"] == 1.0
    assert scalars["reward/failed"] == 0.5  # the judge's failure too
    assert scalars["rollout/failed"] == 0.25  # the engine's alone


def test_rollout_values() -> None:
    scalars = collection_scalars(collection())
    assert scalars["rollout/success@0.9"] == pytest.approx(1 / 3)
    assert scalars["rollout/exact_calls"] == 1.0
    assert scalars["rollout/calls"] == 1.0
    assert scalars["rollout/response_tokens"] == 4.0
    assert scalars["rollout/policy_tokens"] == 3.0
    assert scalars["rollout/template_drift"] == 0.5
    assert scalars["rollout/weights_version"] == 7.0
    shares = {reason: scalars[f"rollout/finish_{reason}"] for reason in ("stop", "length", "turns", "failed")}
    assert shares == {"stop": 0.75, "length": 0.0, "turns": 0.0, "failed": 0.25}


def test_advantages_of_tokens_in_the_loss_only() -> None:
    scalars = collection_scalars(with_advantages())
    # Tool tokens: 1, 1, -1, -1, 0, 0: mean 0, Σ v² / n = 4/6. Summary tokens: 2, -2. The failed one's nines: nowhere.
    assert scalars["advantage/tool_std"] == pytest.approx(math.sqrt(4 / 6))
    assert scalars["advantage/summary_std"] == pytest.approx(2.0)
    assert scalars["advantage/tool_zero"] == pytest.approx(1 / 3)
    assert scalars["advantage/tool_no_signal"] == 0.5  # group b: its only valid member has zeros
    assert scalars["advantage/summary_zero"] == 0.0
    assert scalars["advantage/summary_no_signal"] == 0.0


def test_the_gap_is_of_tokens_that_were_scored() -> None:
    scalars = collection_scalars(with_advantages())
    # Eight tokens in the loss (3 + 2 + 3), two of which differ; the failed rollout's column means nothing.
    assert scalars["rollout/logprob_gap_mean"] == pytest.approx(0.6 / 8)
    assert scalars["rollout/logprob_gap_max"] == pytest.approx(0.5)


def test_what_is_not_there_yet_has_no_scalar_but_a_name() -> None:
    scalars = collection_scalars(collection())
    assert not [name for name in scalars if name.startswith("advantage/") or "gap" in name]
    assert list(collection_stats(collection())) == list(collection_stats(with_advantages()))


def test_a_collection_in_which_all_failed() -> None:
    failed = Score.failed("down")
    made = Collection((rollout("a", 0, finish="failed"),), (reward(failed, failed, failed),))
    scalars = collection_scalars(made)
    assert scalars["reward/failed"] == 1.0
    assert "reward/tool" not in scalars
    assert "rollout/success@0.9" not in scalars


def test_the_papers_boundary_books_the_last_run_as_summary() -> None:
    made = with_advantages()
    rollouts = list(made.rollouts)
    object.__setattr__(rollouts[0].turns[1], "has_call", True)
    structural, last_run = (collection_scalars(made, boundary) for boundary in ("structural", "last_run"))
    assert structural["advantage/summary_std"] == 0.0  # only the -2 of the third rollout is left
    assert last_run["advantage/summary_std"] == pytest.approx(2.0)


def test_a_stat_is_mean_std_and_maximum() -> None:
    stat = Stat.of([1.0, 2.0, 6.0])
    assert (stat.mean, stat.largest) == (3.0, 6.0)
    assert stat.std == pytest.approx(math.sqrt(14 / 3))
    assert stat_scalars({"a": stat, "b": Stat.of([])}) == {"a": 3.0}
