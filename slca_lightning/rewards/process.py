"""The process score R_tool: how well the calls of a rollout match the gold calls (HierR of arXiv 2609.29050)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from slca_lightning.errors import ConfigError, DataError
from slca_lightning.rewards.compare import values_match
from slca_lightning.rewards.matching import best_assignment
from slca_lightning.rewards.parser import ParsedTurn, parse_turn
from slca_lightning.types import ProcessReward, ToolCall

GoldCall = ToolCall | Mapping[str, Any]
"""A call, or its JSON: ``{"name": ..., "arguments": {...}}``."""

_VALUE_TIE_BREAK = 1e-6
"""Among matchings of equal key + value the one of greater value wins, so that the order of calls never matters."""


@dataclass(frozen=True, slots=True)
class ProcessWeights:
    """Weights of the five parts, each finite and at least 0; the paper's by default (they sum to 1)."""

    format: float = 0.10
    name: float = 0.25
    key: float = 0.15
    value: float = 0.20
    parallel: float = 0.30

    def __post_init__(self) -> None:
        if not all(math.isfinite(weight) and weight >= 0 for weight in astuple(self)):
            raise ConfigError(f"process weights must be finite and at least 0, got {self}")

    def combine(self, format: float, name: float, key: float, value: float, parallel: float) -> float:  # noqa: A002
        """Return the weighted sum of the parts, in [0, sum of the weights]."""
        return self.format * format + self.name * name + self.key * key + self.value * value + self.parallel * parallel


PAPER_WEIGHTS = ProcessWeights()


def process_reward(
    assistant_turns: Sequence[str],
    gold_tool_calls: Sequence[Sequence[GoldCall]],
    allowed_tools: Collection[str],
    weights: ProcessWeights | None = None,
    *,
    no_call_format: float = 1.0,
) -> ProcessReward:
    """Score the calls of a rollout: 0.10 format + 0.25 name + 0.15 key + 0.20 value + 0.30 parallel.

    Source: arXiv 2609.29050, HierR; one-to-one matching by the best assignment instead of a greedy one.

    Args:
        assistant_turns: The policy's texts, in order. The calls of one turn are one parallel step.
        gold_tool_calls: Steps in order, each a sequence of calls; empty where the task needs no call.
        allowed_tools: Names that may be called.
        weights: Of the five parts; the paper's by default.
        no_call_format: Format score, in [0, 1], of a task that needs no call and gets none. Published: 0.0.

    Returns:
        The five parts, each in [0, 1], their weighted sum, and whether needed calls were omitted.

    Raises:
        DataError: where a gold call is not a call.
        ConfigError: where ``no_call_format`` is outside [0, 1].
    """
    turns = [parse_turn(text, allowed_tools) for text in assistant_turns]
    steps = [[as_call(call) for call in step] for step in gold_tool_calls]
    return process_reward_from_parsed(turns, steps, weights, no_call_format=no_call_format)


def process_reward_from_parsed(
    turns: Sequence[ParsedTurn],
    gold_steps: Sequence[Sequence[ToolCall]],
    weights: ProcessWeights | None = None,
    *,
    no_call_format: float = 1.0,
) -> ProcessReward:
    """Do what :func:`process_reward` does, for turns already parsed with the task's allowed tools."""
    if not 0.0 <= no_call_format <= 1.0:
        raise ConfigError(f"no_call_format must be in [0, 1], got {no_call_format}")
    gold = [call for step in gold_steps for call in step]
    steps = [calls for turn in turns if (calls := turn.valid_calls)]
    predicted = [call for step in steps for call in step]
    first_gold = next((len(step) for step in gold_steps if step), 0)
    key, value = _argument_scores(predicted, gold)
    parts = (
        _format_score(turns, needs_call=bool(gold), no_call_format=no_call_format),
        _name_f1(predicted, gold),
        key,
        value,
        float((len(steps[0]) if steps else 0) == first_gold),
    )
    omission = bool(gold) and not any(turn.has_attempt for turn in turns)
    return ProcessReward(*parts, process=(weights or PAPER_WEIGHTS).combine(*parts), omission=int(omission))


def as_call(call: GoldCall) -> ToolCall:
    """Return a gold call as a :class:`ToolCall`; DataError where it has no name or its arguments are not an object."""
    if isinstance(call, ToolCall):
        return call
    name = call.get("name") if isinstance(call, Mapping) else None
    arguments = (call.get("arguments") or {}) if isinstance(call, Mapping) else None
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise DataError(
            f"a gold call is {{'name': str, 'arguments': object}}, got {call!r:.200}; check gold_tool_calls"
        )
    return ToolCall(name, arguments)


def _format_score(turns: Sequence[ParsedTurn], *, needs_call: bool, no_call_format: float) -> float:
    tags = max(sum(turn.num_open for turn in turns), sum(turn.num_close for turn in turns))
    if tags == 0:
        return 0.0 if needs_call else no_call_format
    return sum(turn.num_valid for turn in turns) / tags


def _name_f1(predicted: Sequence[ToolCall], gold: Sequence[ToolCall]) -> float:
    if not predicted and not gold:
        return 1.0
    unmatched = [call.name for call in gold]
    for call in predicted:
        if call.name in unmatched:
            unmatched.remove(call.name)
    return 2 * (len(gold) - len(unmatched)) / (len(predicted) + len(gold))


def _argument_scores(predicted: Sequence[ToolCall], gold: Sequence[ToolCall]) -> tuple[float, float]:
    """Return the mean key and value scores over the gold calls that have arguments; (1, 1) where none has."""
    gold_by_name: dict[str, list[ToolCall]] = {}
    for call in gold:
        if call.arguments:
            gold_by_name.setdefault(call.name, []).append(call)
    if not gold_by_name:
        return 1.0, 1.0
    keys = values = 0.0
    for name, wanted in gold_by_name.items():
        made = [call for call in predicted if call.name == name]
        pairs = [[_compare_arguments(call, target) for call in made] for target in wanted]
        matched = best_assignment([[key + (1 + _VALUE_TIE_BREAK) * value for key, value in row] for row in pairs])
        for row, column in zip(pairs, matched, strict=True):
            if column is not None:
                keys += row[column][0]
                values += row[column][1]
    count = sum(map(len, gold_by_name.values()))
    return keys / count, values / count


def _compare_arguments(call: ToolCall, gold: ToolCall) -> tuple[float, float]:
    """Return the Jaccard index of the argument names and the share of gold arguments whose value matches."""
    ours, theirs = call.arguments, gold.arguments
    common = [name for name in theirs if name in ours]
    matching = sum(values_match(ours[name], theirs[name]) for name in common)
    return len(common) / (len(ours) + len(theirs) - len(common)), matching / len(theirs)
