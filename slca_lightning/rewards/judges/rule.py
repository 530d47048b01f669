"""A judge made of rules: offline, free and repeatable. The embedded default, and a testbed for noise and bias."""

from __future__ import annotations

import math
import random

from slca_lightning.errors import ConfigError
from slca_lightning.rewards.judges.base import RATINGS, Judge, JudgeRequest
from slca_lightning.rewards.judges.facts import FactReport, fact_report
from slca_lightning.seeding import derive_seed
from slca_lightning.types import ResultStatus, Score

_LEVELS = tuple(RATINGS.values())
_TOP = len(_LEVELS) - 1
_POOR = 1


class RuleJudge(Judge):
    """Rates how completely and faithfully a text reports the facts of the tool results.

    - With facts: level 4 (excellent) iff all are reported and no number is invented; 0 iff none is reported; otherwise
      the share of reported facts, less a quarter for each invented number, rounded to level 1, 2 or 3.
    - Without facts to report: excellent, less one level for each invented number. Where tools were called and none
      answered, it starts from *poor*: an honest text about a failure is no answer, yet better than an invention.

    Args:
        noise: Probability, in [0, 1], that the level moves by one, up or down alike (inwards at either end).
        length_bias: Levels added per 100 characters of text, rounded; a known flaw of real judges, to be studied.

    Raises:
        ConfigError: where an argument is out of range.
    """

    def __init__(self, noise: float = 0.0, length_bias: float = 0.0) -> None:
        if not 0.0 <= noise <= 1.0:
            raise ConfigError(f"noise is a probability in [0, 1], got {noise}")
        if not math.isfinite(length_bias):
            raise ConfigError(f"length_bias must be finite, got {length_bias}")
        self.noise = noise
        self.length_bias = length_bias

    async def rate(self, request: JudgeRequest) -> Score:
        """Return one of the five ratings; the reason holds the counts behind it. Never fails."""
        report = fact_report(request.results, request.question, request.final_text)
        called_in_vain = bool(request.results) and all(r.status is not ResultStatus.OK for r in request.results)
        level = _level(report, called_in_vain=called_in_vain)
        shift = _round_half_up(self.length_bias * len(request.final_text) / 100)
        level = self._with_noise(min(max(level + shift, 0), _TOP), request.seed)
        reason = f"{report.reported} of {report.total} facts reported, {report.invented} numbers invented"
        return Score(_LEVELS[level], reason=reason)

    def _with_noise(self, level: int, seed: int) -> int:
        if self.noise == 0.0:
            return level
        rng = random.Random(derive_seed("rule-judge", seed))
        if rng.random() >= self.noise:
            return level
        # Inwards at the ends: clamping there would halve the noise of exactly the best and the worst texts.
        step = {0: 1, _TOP: -1}.get(level, rng.choice((-1, 1)))
        return level + step


def _level(report: FactReport, *, called_in_vain: bool) -> int:
    if report.total == 0:
        return max((_POOR if called_in_vain else _TOP) - report.invented, 0)
    if report.reported == 0:
        return 0
    if report.faithful:
        return _TOP
    share = report.reported / report.total - 0.25 * report.invented
    return min(max(_round_half_up(share * _TOP), 1), _TOP - 1)


def _round_half_up(value: float) -> int:
    return math.floor(value + 0.5)
