from __future__ import annotations

import doctest
import math
from typing import Any

import pytest
import torch

from slca_lightning.errors import ConfigError
from slca_lightning.functional import (
    AdvantageInputs,
    advantages,
    compute_advantages,
    estimator,
    estimator_inputs,
    known_estimators,
    segments,
)
from slca_lightning.functional.advantages import _registry
from slca_lightning.functional.advantages.base import spread

TWO: dict[str, Any] = {"policy_mask": [[1, 0, 1], [1, 0, 1]], "groups": ["x", "x"], "boundary": "last_run"}
SLCA: dict[str, Any] = {"reward_tool": [1.0, 0.0], "reward_summary": [0.25, 0.75]}


def test_slca_by_hand() -> None:
    result = compute_advantages("slca", rewards=SLCA, normalize_std=False, weight_tool=2.0, weight_summary=3.0, **TWO)
    # tool: mean .5, deviations ±.5, times 2; summary: mean .5, deviations ∓.25, times 3
    assert result.tolist() == [[1.0, 0.0, -0.75], [-1.0, 0.0, 0.75]]


def test_grpo_by_hand() -> None:
    result = compute_advantages("grpo", rewards={"reward_total": [1.25, 0.75]}, normalize_std=False, **TWO)
    assert result.tolist() == [[0.25, 0.0, 0.25], [-0.25, 0.0, -0.25]]  # mean 1


def test_toolpo_by_hand() -> None:
    rewards = {"reward_success": [1, 0], "reward_action": [0.0, 1.0]}
    result = compute_advantages("toolpo", rewards=rewards, normalize_std=False, action_weight=0.5, **TWO)
    # summary ±.5; tool ±.5 + .5 · ∓.5 = ±.25
    assert result.tolist() == [[0.25, 0.0, 0.5], [-0.25, 0.0, -0.5]]


def test_the_omission_flag_replaces_both_rewards() -> None:
    rewards = SLCA | {"omission": [0, 1], "reward_total": [1.25, -0.5]}
    result = compute_advantages("slca", rewards=rewards, normalize_std=False, **TWO)
    # tool 1 against 0: ±.5; summary .25 against -.5: mean -.125, deviations ±.375 (the .75 is gone)
    assert result.tolist() == [[0.5, 0.0, 0.375], [-0.5, 0.0, -0.375]]


def test_an_omission_needs_no_other_reward() -> None:
    """What the guard replaces may be missing: there is nothing to judge where nothing was called."""
    scored = SLCA | {"omission": [0, 1], "reward_total": [None, -0.5]}
    unscored = scored | {"reward_tool": [1.0, None], "reward_summary": [0.25, None]}
    with_scores, without = (compute_advantages("slca", rewards=rewards, **TWO) for rewards in (scored, unscored))
    assert torch.equal(with_scores, without)


def test_a_negative_total_alone_fires_nothing() -> None:
    rewards = SLCA | {"omission": [0, 0], "reward_total": [1.25, -0.5]}
    assert torch.equal(
        compute_advantages("slca", rewards=rewards, **TWO), compute_advantages("slca", rewards=SLCA, **TWO)
    )


def test_a_rollout_that_stops_in_a_call_has_no_summary() -> None:
    setting = TWO | {"boundary": "structural", "run_has_call": [[True, False], [True, True]]}
    result = compute_advantages("slca", rewards=SLCA, normalize_std=False, **setting)
    # the only summary of the group is alone: 0
    assert result.tolist() == [[0.5, 0.0, 0.0], [-0.5, 0.0, -0.5]]


def test_groups_are_any_hashable_in_any_order() -> None:
    setting: dict[str, Any] = {
        "policy_mask": [[1]] * 4,
        "rewards": {"reward_total": [1.0, 4.0, 0.0, 2.0]},
        "normalize_std": False,
    }
    expected = [[0.5], [1.0], [-0.5], [-1.0]]
    for groups in (["a", ("b", 1), "a", ("b", 1)], [7, 3, 7, 3], torch.tensor([7, 3, 7, 3])):
        assert compute_advantages("grpo", groups=groups, **setting).tolist() == expected


def test_tensors_and_lists_are_the_same_input() -> None:
    tensors = {name: torch.tensor(values) for name, values in SLCA.items()}
    mask = torch.tensor(TWO["policy_mask"], dtype=torch.bool)
    assert torch.equal(
        compute_advantages("slca", rewards=tensors, **(TWO | {"policy_mask": mask})),
        compute_advantages("slca", rewards=SLCA, **TWO),
    )


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("slac", {}, "unknown estimator 'slac', did you mean 'slca'.*known: grpo, rltr, slca, toolpo"),
        (
            "slca",
            {"weight_tol": 1.0},
            "no option 'weight_tol', did you mean 'weight_tool'.*weight_summary, weight_tool",
        ),
        ("grpo", {"weight_tool": 1.0}, r"no option 'weight_tool'; its options: \(none\)"),
        ("slca", {"weight_tool": math.nan}, "must be a finite number, got nan"),
        ("slca", {"weight_tool": "1e-3"}, "must be a finite number, got '1e-3'"),
        (
            "slca",
            {"rewards": {"reward_tool": [1, 0]}},
            "misses the rewards reward_summary; it needs reward_summary, reward_tool",
        ),
        ("slca", {"rewards": SLCA | {"tool_vaild": [1, 1]}}, "'tool_vaild', did you mean 'tool_valid'"),
        ("slca", {"rewards": SLCA | {"reward_tool": [1.0, math.nan]}}, r"reward_tool\[1\] is nan although"),
        ("slca", {"rewards": SLCA | {"reward_summary": [None, 1.0]}}, r"reward_summary\[0\] is nan although"),
        ("slca", {"rewards": SLCA | {"reward_tool": [-math.inf, 1.0]}}, r"reward_tool\[0\] is -inf although"),
        ("slca", {"rewards": SLCA | {"omission": [1, 0]}}, "'reward_total' is needed"),
        ("slca", {"rewards": SLCA | {"tool_valid": [1, 0.5]}}, r"tool_valid\[1\] is 0.5; a flag is 0 or 1"),
        ("slca", {"rewards": SLCA | {"tool_valid": [1, None]}}, r"tool_valid\[1\] is nan; a flag"),
        ("slca", {"rewards": SLCA | {"reward_tool": [1.0]}}, r"'reward_tool' must have shape \(2,\), got \(1,\)"),
        ("slca", {"rewards": SLCA | {"reward_tool": 1.0}}, "one number per rollout"),
        ("slca", {"groups": ["x"]}, "groups has 1 ids but policy_mask has 2"),
        ("slca", {"boundary": "structural"}, "needs run_has_call"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compute_advantages(name, **(TWO | {"rewards": SLCA} | changes))


def test_grpo_needs_no_segments() -> None:
    compute_advantages("grpo", rewards={"reward_total": [1, 0]}, policy_mask=[[1], [1]], groups=[0, 0])


def test_an_estimator_says_what_it_reads() -> None:
    spec = estimator_inputs("slca")
    assert spec.required == ("reward_tool", "reward_summary")
    assert set(spec.inputs) >= {"omission", "tool_valid", "summary_valid", "reward_total"}
    assert spec.options == {"weight_tool": 1.0, "weight_summary": 1.0}


def test_a_new_estimator_is_one_decorated_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))

    @estimator("constant", required=("bonus",), needs_segments=False)
    def constant(inputs: AdvantageInputs, *, scale: float = 2.0) -> torch.Tensor:
        present = torch.ones_like(inputs.group_index, dtype=torch.bool)
        return spread(scale * inputs.reward("bonus", used=present), inputs.policy_mask)

    assert "constant" in known_estimators()
    result = compute_advantages("constant", policy_mask=[[1, 0]], groups=[0], rewards={"bonus": [1.5]})
    assert result.tolist() == [[3.0, 0.0]]
    with pytest.raises(ConfigError, match="'slca' is taken by slca_lightning"):
        estimator("slca", required=())(constant)


@pytest.mark.parametrize("module", [advantages, segments])
def test_examples_in_docstrings(module: Any) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
