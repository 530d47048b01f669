"""Laws of the estimators: what may and what may not move a token's advantage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.functional import compute_advantages, known_estimators, segment_masks

LAW = settings(deadline=None, max_examples=50)  # no deadline: CI machines pause

REWARD = st.integers(0, 100).map(lambda step: step / 100)
TOOLPO_AND_RLTR = ("completeness", "error_penalty", "repeat_penalty", "reward_action", "reward_success")


@dataclass(frozen=True)
class Batch:
    policy_mask: torch.Tensor
    groups: list[str]
    run_has_call: list[list[bool]]
    rewards: dict[str, list[float]]

    def advantages(self, estimator: str = "slca", **changes: Any) -> torch.Tensor:
        arguments: dict[str, Any] = {
            "policy_mask": self.policy_mask,
            "groups": self.groups,
            "run_has_call": self.run_has_call,
            "rewards": self.rewards,
        }
        return compute_advantages(estimator, **(arguments | changes))

    def with_rewards(self, **columns: list[float]) -> dict[str, list[float]]:
        return self.rewards | columns

    @property
    def segments(self) -> tuple[torch.Tensor, torch.Tensor]:
        return segment_masks(self.policy_mask, self.run_has_call)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    size, width = draw(st.integers(1, 8)), draw(st.integers(1, 9))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=size, max_size=size))

    mask = torch.tensor(column(st.lists(st.booleans(), min_size=width, max_size=width)), dtype=torch.bool)
    num_runs = (mask & ~torch.nn.functional.pad(mask, (1, -1))).sum(dim=1).tolist()
    rewards = {name: column(REWARD) for name in ("reward_tool", "reward_summary", *TOOLPO_AND_RLTR)}
    rewards["reward_total"] = [
        sum(pair) for pair in zip(rewards["reward_tool"], rewards["reward_summary"], strict=True)
    ]
    flags = ("omission", "tool_valid", "summary_valid", "valid", "success_valid", "action_valid", "format_valid")
    rewards |= {name: column(st.integers(0, 1)) for name in flags}
    return Batch(
        policy_mask=mask,
        groups=column(st.sampled_from("ab")),
        run_has_call=[draw(st.lists(st.booleans(), min_size=n, max_size=n)) for n in num_runs],
        rewards=rewards,
    )


@LAW
@given(batches(), st.data())
def test_summary_rewards_never_move_a_tool_token(batch: Batch, data: st.DataObject) -> None:
    size = len(batch.groups)
    other = data.draw(st.lists(REWARD, min_size=size, max_size=size))
    perturbed = batch.with_rewards(reward_summary=other, reward_total=other)
    tool, _ = batch.segments
    assert torch.equal(batch.advantages()[tool], batch.advantages(rewards=perturbed)[tool])


@LAW
@given(batches(), st.data())
def test_tool_rewards_never_move_a_summary_token(batch: Batch, data: st.DataObject) -> None:
    size = len(batch.groups)
    perturbed = batch.with_rewards(reward_tool=data.draw(st.lists(REWARD, min_size=size, max_size=size)))
    _, summary = batch.segments
    assert torch.equal(batch.advantages()[summary], batch.advantages(rewards=perturbed)[summary])


@pytest.mark.parametrize("estimator", ["grpo", "toolpo"])
def test_the_baselines_do_leak(estimator: str) -> None:
    """The positive control: the perturbation that the lock withstands does reach the tool tokens of the baselines."""
    setting: dict[str, Any] = {
        "policy_mask": [[1, 0, 1], [1, 0, 1]],
        "groups": [0, 0],
        "boundary": "last_run",
        "normalize_std": False,
    }
    # equal tool rewards; only what the summaries earned differs
    rewards = {"reward_total": [1.0, 0.0], "reward_success": [1.0, 0.0], "reward_action": [0.5, 0.5]}
    assert compute_advantages(estimator, rewards=rewards, **setting)[:, 0].tolist() == [0.5, -0.5]
    locked = {"reward_tool": [0.5, 0.5], "reward_summary": [0.5, -0.5]}
    assert compute_advantages("slca", rewards=locked, **setting)[:, 0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("estimator", known_estimators())
@LAW
@given(batch=batches())
def test_tokens_the_policy_did_not_sample_get_exactly_zero(estimator: str, batch: Batch) -> None:
    result = batch.advantages(estimator)
    assert result.shape == batch.policy_mask.shape
    assert result.dtype == torch.float64
    assert (result[~batch.policy_mask] == 0).all()


@LAW
@given(batches(), st.booleans())
def test_each_segment_of_a_group_sums_to_zero(batch: Batch, normalize_std: bool) -> None:
    result = batch.advantages(normalize_std=normalize_std)
    for segment, valid in zip(batch.segments, ("tool_valid", "summary_valid"), strict=True):
        present = segment.any(dim=1)
        # every token of a segment holds the same value: take one a member
        one_each = torch.stack(
            [row[tokens][0] if tokens.any() else row.new_zeros(()) for row, tokens in zip(result, segment, strict=True)]
        )
        assert all(len(row[tokens].unique()) <= 1 for row, tokens in zip(result, segment, strict=True))
        for group in "ab":
            members = present & torch.tensor([name == group for name in batch.groups])
            # at most 8 terms of size at most 3, rounded at 1e-16 of the size
            assert abs(float(one_each[members].sum())) < 1e-12
            counted = members & torch.tensor(batch.rewards[valid], dtype=torch.bool)
            if counted.sum() < 2:
                assert (one_each[members] == 0).all()


@pytest.mark.parametrize("estimator", known_estimators())
@LAW
@given(batch=batches(), data=st.data())
def test_permuting_rollouts_permutes_advantages_bit_for_bit(estimator: str, batch: Batch, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(batch.groups))))
    shuffled = Batch(
        policy_mask=batch.policy_mask[order],
        groups=[batch.groups[index] for index in order],
        run_has_call=[batch.run_has_call[index] for index in order],
        rewards={name: [values[index] for index in order] for name, values in batch.rewards.items()},
    )
    assert torch.equal(shuffled.advantages(estimator), batch.advantages(estimator)[order])


@LAW
@given(batches())
def test_weights_act_after_the_normalisation(batch: Batch) -> None:
    plain = batch.advantages()
    tool, summary = batch.segments
    # factors of two are exact in floating point
    weighted = batch.advantages(weight_tool=2.0, weight_summary=0.25)
    assert torch.equal(weighted[tool], 2.0 * plain[tool])
    assert torch.equal(weighted[summary], 0.25 * plain[summary])
    silent = batch.advantages(weight_tool=0.0)
    assert (silent[tool] == 0).all()
    assert torch.equal(silent[summary], plain[summary])


@pytest.mark.parametrize(
    ("estimator", "flag", "columns"),
    [
        ("slca", "tool_valid", ["reward_tool"]),
        ("slca", "summary_valid", ["reward_summary", "reward_total"]),
        ("grpo", "valid", ["reward_total"]),
        ("toolpo", "success_valid", ["reward_success"]),
        ("toolpo", "action_valid", ["reward_action"]),
        ("rltr", "valid", ["completeness", "repeat_penalty", "error_penalty"]),
    ],
)
@LAW
@given(batch=batches(), junk=st.sampled_from([math.nan, math.inf, None, 7.0]))
def test_the_reward_of_an_invalid_member_changes_nothing(
    estimator: str, flag: str, columns: list[str], batch: Batch, junk: float
) -> None:
    poisoned = {
        name: [v if ok else junk for v, ok in zip(batch.rewards[name], batch.rewards[flag], strict=True)]
        for name in columns
    }
    assert torch.equal(batch.advantages(estimator, rewards=batch.with_rewards(**poisoned)), batch.advantages(estimator))


@LAW
@given(batches())
def test_an_absent_segment_needs_no_reward(batch: Batch) -> None:
    tool, summary = (segment.any(dim=1).tolist() for segment in batch.segments)
    unscored: dict[str, Any] = {
        "reward_tool": [v if here else None for v, here in zip(batch.rewards["reward_tool"], tool, strict=True)],
        "reward_summary": [
            v if here else None for v, here in zip(batch.rewards["reward_summary"], summary, strict=True)
        ],
    }
    assert torch.equal(batch.advantages(rewards=batch.with_rewards(**unscored)), batch.advantages())


@pytest.mark.parametrize("estimator", known_estimators())
def test_no_rollouts(estimator: str) -> None:
    empty = Batch(torch.zeros(0, 4, dtype=torch.bool), [], [], {})
    columns = ("reward_tool", "reward_summary", "reward_total", "format_valid", *TOOLPO_AND_RLTR)
    assert empty.advantages(estimator, rewards={name: [] for name in columns}).shape == (0, 4)


def test_rltr_leaves_the_summary_alone() -> None:
    result = compute_advantages(
        "rltr",
        policy_mask=[[1, 0, 1], [1, 0, 1]],
        groups=[0, 0],
        boundary="last_run",
        normalize_std=False,
        rewards={
            # 1 - .1 - .2 = .7 against -1 for a broken format: mean -.15, deviations ±.85
            "completeness": [1.0, 1.0],
            "repeat_penalty": [-0.1, 0.0],
            "error_penalty": [-0.2, 0.0],
            "format_valid": [1, 0],
        },
    )
    torch.testing.assert_close(result, torch.tensor([[0.85, 0, 0], [-0.85, 0, 0]], dtype=torch.float64))
