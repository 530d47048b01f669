"""A mean over the rollouts that have a value: laws, and what torchmetrics promises."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.metrics import ROLLOUT_METRICS, SUCCESS_THRESHOLDS, RolloutMetrics, success_at

NAMES = ("a", "b", "c")
VALUES = st.none() | st.floats(-1e6, 1e6)
ROLLOUTS = st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES), max_size=12)
# Float64 sums of at most 24 values up to 1e6: each addition is off by at most 2^-53 of a sum below 2.4e7.
TOLERANCE = 24 * 2.4e7 * 2**-53


def filled(rollouts: list[dict[str, float | None]], names: tuple[str, ...] = NAMES) -> RolloutMetrics:
    metrics = RolloutMetrics(names)
    for values in rollouts:
        metrics.update(values)
    return metrics


def means(metrics: RolloutMetrics) -> dict[str, float]:
    if not metrics.update_called:
        with pytest.warns(UserWarning, match="before the ``update``"):  # torchmetrics' own
            return {name: mean.item() for name, mean in metrics.compute().items()}
    return {name: mean.item() for name, mean in metrics.compute().items()}


def plain_means(rollouts: list[dict[str, float | None]]) -> dict[str, float]:
    """The reference: exact means of rational numbers."""
    result = {}
    for name in NAMES:
        column = [Fraction(value) for value in (values.get(name) for values in rollouts) if value is not None]
        if column:
            result[name] = float(sum(column) / len(column))
    return result


@given(ROLLOUTS)
@settings(deadline=None, max_examples=100)
def test_it_is_the_plain_mean(rollouts: list[dict[str, float | None]]) -> None:
    assert means(filled(rollouts)) == pytest.approx(plain_means(rollouts), rel=0, abs=TOLERANCE)


@given(ROLLOUTS, ROLLOUTS)
@settings(deadline=None, max_examples=60)
def test_two_ranks_merged_are_one(left: list[dict[str, float | None]], right: list[dict[str, float | None]]) -> None:
    merged = filled(left)
    merged.merge_state(filled(right))
    whole = filled(left + right)
    assert torch.equal(merged.counts, whole.counts)
    assert merged.sums.tolist() == pytest.approx(whole.sums.tolist(), rel=0, abs=TOLERANCE)


@given(ROLLOUTS, st.sampled_from(NAMES))
@settings(deadline=None, max_examples=60)
def test_none_and_a_missing_name_change_nothing(rollouts: list[dict[str, float | None]], name: str) -> None:
    metrics = filled(rollouts)
    sums, counts = metrics.sums.clone(), metrics.counts.clone()
    metrics.update({name: None})
    metrics.update({})
    assert torch.equal(metrics.sums, sums)
    assert torch.equal(metrics.counts, counts)


def test_by_hand() -> None:
    metrics = RolloutMetrics()
    metrics.update({"process": 1.0, "summary": None, "failed": 0.0, "omission": True})
    metrics.update({"process": 0.5, "summary": 0.25, "failed": 1.0, "omission": False})
    assert means(metrics) == {"process": 0.75, "summary": 0.25, "omission": 0.5, "failed": 0.5}
    assert list(metrics.compute()) == [n for n in ROLLOUT_METRICS if n in {"process", "summary", "omission", "failed"}]


def test_a_zero_is_a_value_and_a_column_of_none_is_left_out() -> None:
    assert means(filled([{"a": 0.0, "b": None}, {"b": None}])) == {"a": 0.0}
    assert means(RolloutMetrics()) == {}


def test_float64_keeps_what_float32_would_drop() -> None:
    # 2^24 + 1 is the first integer that float32 cannot hold.
    metrics = filled([{"a": 2.0**24}, {"a": 1.0}])
    assert metrics.sums.tolist()[0] == 2**24 + 1
    assert metrics.compute()["a"].dtype == torch.float64


@pytest.mark.parametrize("cast", ["half", "float", "bfloat16"])
def test_a_change_of_the_modules_precision_leaves_the_sums_alone(cast: str) -> None:
    holder = torch.nn.Module()
    holder.metrics = filled([{"a": 2.0**24}, {"a": 1.0}])
    getattr(holder, cast)()
    assert holder.metrics.sums.dtype == torch.float64
    assert means(holder.metrics) == {"a": (2**24 + 1) / 2}


def test_reset_and_pickle_and_copy() -> None:
    metrics = filled([{"a": 1.0}, {"a": 2.0, "b": 3.0}])
    for again in (pickle.loads(pickle.dumps(metrics)), copy.deepcopy(metrics)):  # noqa: S301 (our own bytes)
        assert means(again) == {"a": 1.5, "b": 3.0}
        again.update({"a": 3.0})
        assert means(again) == {"a": 2.0, "b": 3.0}
    assert means(metrics) == {"a": 1.5, "b": 3.0}
    metrics.reset()
    assert metrics.counts.tolist() == [0.0, 0.0, 0.0]
    metrics.update({"a": 7.0})
    assert means(metrics) == {"a": 7.0}


def test_forward_returns_the_rollout_and_accumulates() -> None:
    metrics = RolloutMetrics(NAMES)
    assert metrics({"a": 1.0})["a"].item() == 1.0
    assert metrics({"a": 3.0})["a"].item() == 3.0
    assert means(metrics) == {"a": 2.0}


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_update_follows_the_device(device: str) -> None:
    # `meta` stands in for an accelerator: mixing it with a CPU tensor fails in the same way.
    metrics = RolloutMetrics(NAMES).to(device)
    metrics.update({"a": 1.0})
    assert metrics.sums.device.type == metrics.counts.device.type == device


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    metrics = RolloutMetrics(NAMES).to("cuda")
    metrics.update({"a": 1.0})
    metrics.update({"a": 2.0, "b": None})
    assert metrics.compute()["a"].device.type == "cuda"
    assert means(metrics) == {"a": 1.5}


def test_states_gathered_from_ranks_are_summed() -> None:
    # What torchmetrics does after gathering: it stacks the ranks' states and applies each state's reduction.
    ranks = [filled([{"a": 1.0}]), filled([{"a": 2.0}, {"a": 6.0, "b": 1.0}]), RolloutMetrics(NAMES)]
    merged = RolloutMetrics(NAMES)
    for state, reduce in merged._reductions.items():
        setattr(merged, state, reduce(torch.stack([getattr(rank, state) for rank in ranks])))  # type: ignore[operator]
    merged.update({})
    assert means(merged) == {"a": 3.0, "b": 1.0}


def test_an_unknown_name_lists_the_known_and_adds_nothing() -> None:
    metrics = RolloutMetrics(NAMES)
    with pytest.raises(ValueError, match=r"\['d', 'e'\]; known: a, b, c"):
        metrics.update({"a": 1.0, "e": 1.0, "d": None})
    assert metrics.counts.sum() == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_refused(value: float) -> None:
    metrics = RolloutMetrics(NAMES)
    with pytest.raises(ValueError, match=r"'b' is .*pass None"):
        metrics.update({"a": 1.0, "b": value})
    assert metrics.counts.sum() == 0


@pytest.mark.parametrize("names", [(), ("a", "a")])
def test_names_are_checked(names: Any) -> None:
    with pytest.raises(ValueError, match="each only once"):
        RolloutMetrics(names)


def test_the_names_are_frozen() -> None:
    # Dashboards and the docs refer to them.
    names = (
        "success@0.7 success@0.8 success@0.9 success@1.0 name_f1 key value arg_match format parallel process summary "
        "total joint_success exact_calls omission tool_turns calls redundant_calls truncation failed "
        "response_tokens"
    )
    assert tuple(names.split()) == ROLLOUT_METRICS


@pytest.mark.parametrize("threshold", SUCCESS_THRESHOLDS)
def test_success_at_the_threshold(threshold: float) -> None:
    assert success_at(threshold, threshold) == 1.0
    assert success_at(threshold + 0.01, threshold) == 1.0
    assert success_at(threshold - 1e-6, threshold) == 0.0


def test_success_forgives_rounding() -> None:
    process = 0.1 + 0.25 + 0.15 + 0.1 + 0.3
    assert process < 0.9  # it is 0.8999999999999999
    assert success_at(process, 0.9) == 1.0


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
@settings(deadline=None, max_examples=60)
def test_success_is_monotone(process: float, low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert success_at(process, low) >= success_at(process, high)
    assert success_at(process, process) == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_success_of_no_score_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        success_at(bad, 0.9)
    with pytest.raises(ValueError, match="must be finite"):
        success_at(0.9, bad)
