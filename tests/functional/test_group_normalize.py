from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.errors import ConfigError
from slca_lightning.functional import group_normalize

LAW = settings(deadline=None, max_examples=50)  # no deadline: CI machines pause

# Rewards on a grid: differences are 0 or far above the tie tolerance, so that no law fails on the border of a tie.
REWARD = st.integers(-200, 200).map(lambda step: step / 100)


@st.composite
def groups(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    size = draw(st.integers(0, 20))
    rewards = torch.tensor(draw(st.lists(REWARD, min_size=size, max_size=size)), dtype=torch.float64)
    present = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=torch.bool)
    index = torch.tensor(draw(st.lists(st.integers(0, 4), min_size=size, max_size=size)), dtype=torch.int64)
    return rewards, present, index


def test_by_hand() -> None:
    rewards, present, index = (
        torch.tensor([1.0, 0.0, 0.5, 9.0]),
        torch.tensor([True, True, True, False]),
        torch.zeros(4, dtype=torch.int64),
    )
    # mean .5; deviations .5, -.5, 0; the fourth member is absent
    assert group_normalize(rewards, present, index, normalize_std=False).tolist() == [0.5, -0.5, 0.0, 0.0]
    # unbiased variance (.25 + .25 + 0) / (3 - 1) = .25, std .5; .5 / (.5 + 1e-6) = .999998...
    assert group_normalize(rewards, present, index).tolist() == pytest.approx([0.5 / 0.500001, -0.5 / 0.500001, 0, 0])


def test_two_members_get_plus_and_minus_one_over_root_two() -> None:
    # deviations ±.5, unbiased variance (.25 + .25) / 1 = .5, so A = ±.5 / √.5 = ±.7071, less the epsilon's share
    result = group_normalize(
        torch.tensor([1.0, 0.0]), torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
    )
    assert result.tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=2e-6)


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, 0.9359, 1e6 / 7])
@pytest.mark.parametrize("normalize_std", [True, False])
def test_seven_equal_rewards_are_exactly_zero(value: float, normalize_std: bool) -> None:
    for dtype in (torch.float32, torch.float64):
        rewards = torch.full((7,), value, dtype=dtype)
        result = group_normalize(
            rewards, torch.ones(7, dtype=torch.bool), torch.zeros(7, dtype=torch.int64), normalize_std
        )
        assert result.tolist() == [0.0] * 7


def test_the_tie_tolerance_has_two_sides() -> None:
    present, index = torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
    within = torch.tensor([0.5, 0.5 + 0.9e-8], dtype=torch.float64)
    beyond = torch.tensor([0.5, 0.5 + 1.1e-8], dtype=torch.float64)
    assert group_normalize(within, present, index).tolist() == [0.0, 0.0]
    assert (group_normalize(beyond, present, index) != 0).all()


@LAW
@given(groups(), st.booleans())
def test_a_group_sums_to_zero_and_outsiders_are_exactly_zero(
    case: tuple[torch.Tensor, torch.Tensor, torch.Tensor], normalize_std: bool
) -> None:
    rewards, present, index = case
    result = group_normalize(rewards, present, index, normalize_std)
    assert result.dtype == torch.float64
    assert (result[~present] == 0).all()
    for group in range(5):
        members = (index == group) & present
        # up to 20 terms of size at most 20, each rounded at 1e-16 of it
        assert abs(float(result[members].sum())) < 1e-10
        if members.sum() < 2 or rewards[members].unique().numel() == 1:
            assert (result[members] == 0).all()


@LAW
@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_rollouts_does_not_matter_to_the_last_bit(
    case: tuple[torch.Tensor, torch.Tensor, torch.Tensor], random: object
) -> None:
    rewards, present, index = case
    order = torch.randperm(len(rewards), generator=torch.Generator().manual_seed(random.randint(0, 999)))  # type: ignore[attr-defined]
    result = group_normalize(rewards, present, index)
    assert torch.equal(group_normalize(rewards[order], present[order], index[order]), result[order])


@LAW
@given(groups(), st.sampled_from([math.nan, math.inf, -math.inf, 1e300]))
def test_what_absent_members_hold_is_never_read(
    case: tuple[torch.Tensor, torch.Tensor, torch.Tensor], junk: float
) -> None:
    rewards, present, index = case
    poisoned = torch.where(present, rewards, junk)
    assert torch.equal(group_normalize(poisoned, present, index), group_normalize(rewards, present, index))


@LAW
@given(groups(), st.integers(-8, 8), st.sampled_from([0.5, 2.0, 8.0]))
def test_shift_and_scale_cancel_under_std_normalisation(
    case: tuple[torch.Tensor, torch.Tensor, torch.Tensor], shift: int, scale: float
) -> None:
    rewards, present, index = case
    moved = group_normalize(rewards * scale + shift, present, index)
    # epsilon does not scale: with a std of at least .002 it is 1e-6 / .002 = 5e-4 of an advantage of at most 4.3
    torch.testing.assert_close(moved, group_normalize(rewards, present, index), rtol=0, atol=5e-3)


def test_shapes_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"\(3,\), \(2,\), \(3,\)"):
        group_normalize(torch.zeros(3), torch.ones(2, dtype=torch.bool), torch.zeros(3, dtype=torch.int64))
