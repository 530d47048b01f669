"""The estimators against a separate, slow, plain-Python implementation of the same text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from slca_lightning.functional import compute_advantages, estimator_inputs

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "advantages.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["cases"] if GOLDEN.is_file() else []

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_file(), reason="golden values are not part of the repository; set beside it as ../shared"
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_golden_case(case: dict[str, Any]) -> None:
    spec = estimator_inputs(case["estimator"])
    result = compute_advantages(
        case["estimator"],
        policy_mask=case["policy_mask"],
        groups=case["group"],
        rewards={name: case[name] for name in spec.inputs if name in case},
        run_has_call=case.get("run_has_call"),
        boundary=case.get("boundary", "last_run"),
        normalize_std=case["normalize_std"],
        **{name: case[name] for name in spec.options if name in case},
    )
    expected = torch.tensor(case["expected"], dtype=torch.float64).reshape(result.shape)
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-6)  # the precision the golden values promise
    assert torch.equal(result == 0, expected == 0), "exact zeros"


def test_every_estimator_has_golden_cases() -> None:
    assert {case["estimator"] for case in CASES} == {"slca", "grpo", "toolpo", "rltr"}
