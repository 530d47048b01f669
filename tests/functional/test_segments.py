from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.errors import ConfigError
from slca_lightning.functional import policy_runs, segment_masks

LAW = settings(deadline=None, max_examples=50)  # no deadline: CI machines pause


@st.composite
def masks(draw: st.DrawFn) -> torch.Tensor:
    rows, columns = draw(st.integers(0, 5)), draw(st.integers(0, 12))
    cells = draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    return torch.tensor(cells, dtype=torch.bool).reshape(rows, columns)


def slow_runs(row: list[bool]) -> list[int]:
    runs, current = [], -1
    for index, sampled in enumerate(row):
        current += sampled and (index == 0 or not row[index - 1])
        runs.append(current if sampled else -1)
    return runs


def test_policy_runs_by_hand() -> None:
    #          first run, injected, second run, injected
    assert policy_runs([[1, 1, 0, 0, 1, 0]]).tolist() == [[0, 0, -1, -1, 1, -1]]


@LAW
@given(masks())
def test_policy_runs_match_a_loop(mask: torch.Tensor) -> None:
    runs = policy_runs(mask)
    assert runs.dtype == torch.int64
    assert runs.tolist() == [slow_runs(row) for row in mask.tolist()]


@LAW
@given(masks(), st.data(), st.sampled_from(["structural", "last_run"]))
def test_every_policy_token_is_in_exactly_one_segment(mask: torch.Tensor, data: st.DataObject, boundary: str) -> None:
    flags = [
        data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
        for n in (max(slow_runs(r), default=-1) + 1 for r in mask.tolist())
    ]
    tool, summary = segment_masks(mask, flags, boundary)
    assert tool.dtype == summary.dtype == torch.bool
    assert not (tool & summary).any()
    assert torch.equal(tool | summary, mask)


@LAW
@given(masks())
def test_both_rules_agree_where_every_rollout_ends_in_text(mask: torch.Tensor) -> None:
    well_formed = [[True] * (max(slow_runs(row), default=-1)) + [False] for row in mask.tolist()]
    flags = [row if any(sampled) else [] for row, sampled in zip(well_formed, mask.tolist(), strict=True)]
    for one, other in zip(segment_masks(mask, flags), segment_masks(mask, boundary="last_run"), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("flags", "boundary", "tool", "summary"),
    [
        ([True, True, False], "structural", [1, 0, 1, 0, 0], [0, 0, 0, 0, 1]),  # two calls, then an answer
        ([True, True, True], "structural", [1, 0, 1, 0, 1], [0, 0, 0, 0, 0]),  # stopped at the turn limit, in a call
        ([True, True, True], "last_run", [1, 0, 1, 0, 0], [0, 0, 0, 0, 1]),  # what the paper's rule makes of it
        ([False, False, False], "structural", [1, 0, 1, 0, 0], [0, 0, 0, 0, 1]),  # only the last run's flag counts
    ],
)
def test_three_runs(flags: list[bool], boundary: str, tool: list[int], summary: list[int]) -> None:
    masks = segment_masks([[1, 0, 1, 0, 1]], [flags], boundary)
    assert [mask.int().tolist() for mask in masks] == [[tool], [summary]]


def test_one_run_is_the_summary_unless_it_attempts_a_call() -> None:
    tool, summary = segment_masks([[0, 1, 1], [0, 1, 1], [0, 0, 0]], [[False], [True], []])
    assert tool.int().tolist() == [[0, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert summary.int().tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 0]]


def test_padded_flags_say_the_same_as_ragged_ones() -> None:
    mask = [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    ragged = segment_masks(mask, [[True, True], [False], []])
    padded = segment_masks(mask, torch.tensor([[True, True, False], [False, False, False], [False] * 3]))
    assert all(torch.equal(one, other) for one, other in zip(ragged, padded, strict=True))


def test_no_rollouts_and_no_tokens() -> None:
    for shape in [(0, 3), (2, 0), (0, 0)]:
        tool, summary = segment_masks(torch.zeros(shape), [[]] * shape[0])
        assert tool.shape == summary.shape == shape
    assert segment_masks(torch.zeros(2, 3), torch.zeros(2, 0, dtype=torch.bool))[0].sum() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy_mask": [[1, 0]]}, "needs run_has_call"),
        ({"policy_mask": [[1, 0]], "boundary": "last"}, "unknown boundary 'last'; known: last_run, structural"),
        ({"policy_mask": [1, 0]}, r"policy_mask must have shape \(rollouts, tokens\), got \(2,\)"),
        ({"policy_mask": [[1, 0], [1]]}, "not a rectangle"),
        ({"policy_mask": [[1, 2]]}, "only zeros and ones"),
        ({"policy_mask": torch.tensor([[1.0, float("nan")]])}, "only zeros and ones"),
        ({"policy_mask": [[1, 0, 1]], "run_has_call": [[True]]}, r"run_has_call\[0\] has 1 entries .* 2 policy runs"),
        ({"policy_mask": [[1, 0, 1]], "run_has_call": [[True, False], []]}, "2 rows but policy_mask has 1"),
        ({"policy_mask": [[1, 0, 1]], "run_has_call": torch.ones(1, 1)}, r"at least \(1, 2\), got \(1, 1\)"),
        ({"policy_mask": [[1, 0, 0]], "run_has_call": torch.ones(1, 2)}, "run that does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        segment_masks(**arguments)
