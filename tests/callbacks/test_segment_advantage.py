"""From rewards to advantages, and which tokens stay in the loss."""

from __future__ import annotations

import pytest
import torch

from slca_lightning.callbacks import SegmentAdvantage
from slca_lightning.errors import ConfigError
from slca_lightning.functional import known_estimators
from slca_lightning.rollout.collection import Collection
from slca_lightning.rollout.collector import ScoredRollout
from slca_lightning.tasks.toolworld import ToolWorldTasks
from slca_lightning.types import ProcessReward, RewardBreakdown, Rollout, Score, Turn

EXTRA = {
    "reward_success": 1.0,
    "reward_action": 0.5,
    "completeness": 0.5,
    "repeat_penalty": 0.0,
    "error_penalty": 0.0,
    "format_valid": 1.0,
}
FAILED = Score.failed("down")


def scored(member, tool, summary, total, last_calls=False):
    """Two sampled tool tokens, one injected, two of the last turn."""
    rollout = Rollout(
        task=ToolWorldTasks(size=1)[0],
        member=member,
        weights_version=0,
        prompt_ids=(1, 2),
        response_ids=(3, 4, 5, 6, 7),
        policy_mask=(True, True, False, True, True),
        logprobs=(-1.0, -1.0, 0.0, -1.0, -1.0),
        turns=(Turn("call", 0, 2, has_call=True), Turn("text", 3, 5, has_call=last_calls)),
        finish_reason="stop",
    )
    process = ProcessReward(0, 0, 0, 0, 0, 0, omission=0)
    return ScoredRollout(rollout, RewardBreakdown(process, tool, summary, total, EXTRA))


def collection(*members, **options):
    return Collection.of([scored(i, *member, **options) for i, member in enumerate(members)])


def advantages(made, *args, **options):
    SegmentAdvantage(*args, **options).on_rollouts(None, None, made)
    return made.advantages


def test_by_hand():
    made = collection((Score(1.0), Score(0.0), Score(1.0)), (Score(0.0), Score(0.5), Score(0.5)))
    got = advantages(made)
    # Two members: (1 - 0.5) / (0.7071 + 1e-6), and the other way round for the summaries.
    a, s = 0.5 / (0.5**0.5 + 1e-6), 0.25 / (0.5**0.5 / 2 + 1e-6)
    expected = torch.tensor([[a, a, 0.0, -s, -s], [-a, -a, 0.0, s, s]])
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=0)  # float32 holds seven digits
    assert got.dtype == torch.float32
    assert torch.equal(made.loss_mask, made.policy_mask)


def test_options_reach_the_estimator():
    rewards = ((Score(1.0), Score(0.0), Score(1.0)), (Score(0.0), Score(0.5), Score(0.5)))
    got = advantages(collection(*rewards), normalize_std=False, options={"weight_tool": 2.0, "weight_summary": 0.0})
    assert got.tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0], [-1.0, -1.0, 0.0, 0.0, 0.0]]


def test_the_boundary_decides_what_a_last_call_is():
    rewards = ((Score(1.0), Score.absent("call"), Score(1.0)), (Score(0.0), Score.absent("call"), Score(0.0)))
    structural = advantages(collection(*rewards, last_calls=True))
    last_run = advantages(collection(*rewards, last_calls=True), boundary="last_run")
    assert structural[0].tolist() == pytest.approx([0.7071, 0.7071, 0.0, 0.7071, 0.7071], abs=1e-3)
    assert last_run[0].tolist() == pytest.approx([0.7071, 0.7071, 0.0, 0.0, 0.0], abs=1e-3)


@pytest.mark.parametrize("estimator", known_estimators())
def test_a_failed_rollout_leaves_everything(estimator):
    ok = ((Score(1.0), Score(0.0), Score(1.0)), (Score(0.0), Score(0.5), Score(0.5)))
    made = collection(*ok, (FAILED, FAILED, FAILED))
    got = advantages(made, estimator)
    alone = advantages(collection(*ok), estimator)
    assert not made.loss_mask[2].any()
    assert torch.equal(made.loss_mask[:2], made.policy_mask[:2])
    if estimator in ("slca", "grpo", "rltr"):
        assert torch.equal(got[:2], alone)
        assert not got[2].any()


@pytest.mark.parametrize(("estimator", "kept"), [("slca", [True, True]), ("grpo", [False, False])])
def test_a_failed_judge_leaves_what_still_has_a_reward(estimator, kept):
    made = collection(
        (Score(1.0), Score(0.0), Score(1.0)), (Score(0.0), Score(0.5), Score(0.5)), (Score(0.5), FAILED, FAILED)
    )
    got = advantages(made, estimator)
    assert made.loss_mask[2].tolist() == [*kept, False, False, False]
    assert not got[2, 3:].any()


def test_an_unknown_estimator():
    with pytest.raises(ConfigError, match=r"'sclca'.*did you mean 'slca'.*grpo.*rltr.*slca.*toolpo"):
        SegmentAdvantage("sclca")


def test_an_unknown_option_or_boundary():
    with pytest.raises(
        ConfigError, match=r"slca has no options \['weight'\]; it has \['weight_summary', 'weight_tool'\]"
    ):
        SegmentAdvantage(options={"weight": 1.0})
    with pytest.raises(ConfigError, match="grpo has no options"):
        SegmentAdvantage("grpo", options={"weight_tool": 1.0})
    with pytest.raises(ConfigError, match="boundary must be 'structural' or 'last_run', got 'first'"):
        SegmentAdvantage(boundary="first")
