from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.errors import ConfigError
from slca_lightning.functional import masked_mean, masked_sum, ppo_clip

LAW = settings(deadline=None, max_examples=50)  # no deadline: CI machines pause


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.5, 2.0, -2.4, True),  # min(1.5 · 2, 1.2 · 2) = 2.4: no reward for going further up
        (0.5, 2.0, -1.0, False),  # min(.5 · 2, .8 · 2) = 1: free to come back up
        (1.5, -2.0, 3.0, False),  # min(1.5 · -2, 1.2 · -2) = -3: free to come back down
        (0.5, -2.0, 1.6, True),  # min(.5 · -2, .8 · -2) = -1.6: no reward for going further down
        (1.1, 2.0, -2.2, False),  # inside the clip
        (1.1, -2.0, 2.2, False),
        (1.5, 0.0, 0.0, False),
    ],
)
def test_both_sides_of_the_clip_by_hand(ratio: float, advantage: float, loss: float, clipped: bool) -> None:
    logprobs = torch.tensor([math.log(ratio) - 1.0], dtype=torch.float64, requires_grad=True)
    objective = ppo_clip(logprobs, torch.tensor([-1.0], dtype=torch.float64), torch.tensor([advantage]))
    assert objective.loss.item() == pytest.approx(loss)
    assert objective.ratio.item() == pytest.approx(ratio)
    assert objective.clipped.tolist() == [clipped]
    objective.loss.sum().backward()
    assert logprobs.grad is not None
    # d(-r A)/d log π = -r A where the clip is not active
    assert logprobs.grad.item() == pytest.approx(0.0 if clipped else -ratio * advantage)


def test_bounds_may_differ() -> None:
    ratios = torch.tensor([1.25, 1.35, 0.85, 0.75], dtype=torch.float64)
    objective = ppo_clip(
        ratios.log(), torch.zeros(4).double(), torch.tensor([1.0, 1.0, -1.0, -1.0]), clip_low=0.2, clip_high=0.28
    )
    assert objective.clipped.tolist() == [False, True, False, True]
    assert objective.loss.tolist() == pytest.approx([-1.25, -1.28, 0.85, 0.8])


def test_on_policy_the_gradient_is_that_of_reinforce() -> None:
    logprobs = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, -1.0], [0.0, 2.0]], dtype=torch.float64)
    objective = ppo_clip(logprobs, logprobs, advantages)  # the old ones are detached inside
    assert objective.loss.shape == logprobs.shape
    assert objective.loss.dtype == torch.float32  # advantages come in float64 and must not widen the loss
    objective.loss.sum().backward()
    assert torch.equal(logprobs.grad, -advantages.float())  # type: ignore[arg-type]


def test_ppo_clip_checks_its_arguments() -> None:
    two, three = torch.zeros(2), torch.zeros(3)
    with pytest.raises(ConfigError, match=r"logprobs and old_logprobs .* \(2,\) and \(3,\)"):
        ppo_clip(two, three, two)
    with pytest.raises(ConfigError, match=r"logprobs and advantages .* \(2,\) and \(3,\)"):
        ppo_clip(two, two, three)
    with pytest.raises(ConfigError, match="clip_low"):
        ppo_clip(two, two, two, clip_low=-0.1)


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_what_is_masked_does_not_leak(junk: float) -> None:
    values = torch.tensor([1.0, junk, 3.0], requires_grad=True)
    mask = torch.tensor([True, False, True])
    total = masked_sum(values, mask)
    assert total.item() == 4.0
    assert masked_mean(values, mask).item() == 2.0
    total.backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 0.0, 1.0]


def test_an_empty_mask_gives_zero_with_zero_gradient() -> None:
    values = torch.tensor([math.nan, 2.0], requires_grad=True)
    mean = masked_mean(values, torch.zeros(2))
    assert mean.item() == 0.0
    mean.backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, 0.0]


def test_a_mask_of_another_shape_is_refused() -> None:
    for function in (masked_sum, masked_mean):
        # would broadcast in silence
        with pytest.raises(ConfigError, match=r"\(2, 3\) and \(3,\)"):
            function(torch.zeros(2, 3), torch.ones(3))


@LAW
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=20), st.integers(1, 5))
def test_sums_of_micro_batches_add_up(numbers: list[int], size: int) -> None:
    values = torch.tensor(numbers, dtype=torch.float64)  # small integers: sums are exact
    mask = values > 0
    parts = zip(values.split(size), mask.split(size), strict=True)
    assert sum(masked_sum(*part).item() for part in parts) == masked_sum(values, mask).item()
