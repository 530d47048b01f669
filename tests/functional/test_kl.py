from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.errors import ConfigError
from slca_lightning.functional import kl_divergence

LAW = settings(deadline=None, max_examples=50)  # no deadline: CI machines pause

LOGPROB = st.floats(-30, 0, width=32)


@pytest.mark.parametrize(
    ("kind", "value", "gradient"),
    [
        # log π = -1, log π_ref = -3, so d = -2
        ("k1", 2.0, 1.0),
        ("k2", 2.0, 2.0),  # (-2)² / 2, and -d
        ("k3", math.exp(-2) + 1, 1 - math.exp(-2)),  # exp(-2) + 2 - 1, and 1 - exp(d)
    ],
)
def test_value_and_gradient_by_hand(kind: str, value: float, gradient: float) -> None:
    logprobs = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-3.0], dtype=torch.float64, requires_grad=True)
    estimate = kl_divergence(logprobs, reference, kind)
    assert estimate.item() == pytest.approx(value)
    estimate.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(gradient)
    assert reference.grad is None


@LAW
@given(st.lists(st.tuples(LOGPROB, LOGPROB), min_size=1, max_size=20))
def test_k2_and_k3_are_never_negative(pairs: list[tuple[float, float]]) -> None:
    logprobs, reference = torch.tensor(pairs).unbind(dim=1)
    for kind in ("k2", "k3"):
        assert (kl_divergence(logprobs, reference, kind) >= 0).all()


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_equal_policies_are_exactly_zero_apart(kind: str) -> None:
    logprobs = torch.tensor([[-0.1, -7.3], [-1 / 3, -25.0]])
    assert (kl_divergence(logprobs, logprobs.clone(), kind) == 0).all()


def test_k3_keeps_its_digits_near_zero() -> None:
    # d = 1e-4: d² / 2 = 5e-9, below the float32 rounding of exp(d) at 1
    estimate = kl_divergence(torch.tensor([0.0]), torch.tensor([1e-4]))
    assert estimate.item() == pytest.approx(5e-9, rel=1e-2)  # float32 spaces numbers near 1e-4 by 7e-12


@pytest.mark.parametrize(("kind", "tolerance"), [("k1", 1e-12), ("k3", 1e-12)])
def test_k1_and_k3_average_to_the_divergence(kind: str, tolerance: float) -> None:
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    reference = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    expectation = (policy * kl_divergence(policy.log(), reference.log(), kind)).sum()
    # .5 ln 2.5 + 0 + .2 ln .4 = (.5 - .2) ln 2.5
    assert expectation.item() == pytest.approx(0.3 * math.log(2.5), abs=tolerance)


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="unknown KL estimator 'k4'; known: k1, k2, k3"):
        kl_divergence(torch.zeros(1), torch.zeros(1), "k4")
    with pytest.raises(ConfigError, match=r"\(2, 1\) and \(2,\)"):
        kl_divergence(torch.zeros(2, 1), torch.zeros(2))
