"""The process score against values from a separate, slow implementation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slca_lightning.rewards import process_reward

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "process_reward.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else []


@pytest.mark.skipif(not CASES, reason="the golden values (../shared/golden) are not part of the repository")
def test_there_are_golden_cases() -> None:
    assert len(CASES) >= 24


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_golden(case: dict[str, Any]) -> None:
    reward = process_reward(case["assistant_turns"], case["gold_tool_calls"], case["allowed_tools"])
    for name, expected in case["expected"].items():
        # 1e-9: two orders of summing five products in float64 differ by far less.
        assert getattr(reward, name) == pytest.approx(expected, abs=1e-9), name
