"""Loose equality by hand, and that it is an honest relation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.rewards.compare import loose_key, values_match

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
LEAVES |= st.sampled_from(["true", " TRUE ", "1", "1.0", 1, 1.0, True, "0", False, "10", 10, "1e1", "-0", "nan", "inf"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (" OSLO ", "oslo"),
        (10, "10"),
        (10, 10.0),
        ("10", "10.0"),
        (0.1 + 0.2, 0.3),
        (True, "true"),
        (True, 1),
        ("False", 0),
        ([1, {"a": " X"}], ["1", {"a": "x"}]),
        (None, None),
        ("1e3", 1000),
        (10**400, 10**400),
    ],
)
def test_equal(left: Any, right: Any) -> None:
    assert values_match(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("oslo", "bergen"),
        (3, 4),
        (1.0, 1.0 + 2e-9),
        (True, False),
        (True, "yes"),
        (None, ""),
        (None, "null"),
        (None, 0),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ([1], 1),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {"A": 1}),
        ({}, []),
        ("12345678901234567890", "12345678901234567891"),
        (10**400, 1.5),
        ("nan", float("inf")),
    ],
)
def test_different(left: Any, right: Any) -> None:
    assert not values_match(left, right)
    assert not values_match(right, left)


def test_depth_is_no_limit() -> None:
    deep: Any = 1
    other: Any = "1"
    for _ in range(100_000):
        deep, other = [deep], [other]
    assert values_match(deep, other)


@given(VALUES, VALUES)
@settings(max_examples=300, deadline=None)
def test_symmetric_and_reflexive(left: Any, right: Any) -> None:
    assert values_match(left, left)
    assert values_match(left, right) == values_match(right, left)


@given(VALUES, VALUES)
@settings(max_examples=300, deadline=None)
def test_the_key_agrees(left: Any, right: Any) -> None:
    if loose_key(left) == loose_key(right):
        assert values_match(left, right)
