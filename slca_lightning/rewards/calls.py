"""Counts over the calls of a rollout: what the metrics and the baselines' rewards are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from slca_lightning.rewards.compare import loose_key, values_match
from slca_lightning.rewards.parser import ParsedTurn
from slca_lightning.types import ToolCall


@dataclass(frozen=True, slots=True)
class CallStatistics:
    """Counts over the calls of one rollout. Calls are all that could be read, those of unknown tools included."""

    exact_match: bool
    """Whether the calls are the gold calls: none missing, none too many, every argument loosely equal; in any order."""
    redundant_calls: int
    """Calls that are loosely equal to an earlier call of the rollout."""
    num_calls: int
    tool_turns: int
    """Turns with a tool-call attempt."""
    invalid_blocks: int
    """Call blocks with a problem, unknown tools included."""


def call_statistics(turns: Sequence[ParsedTurn], gold_steps: Sequence[Sequence[ToolCall]]) -> CallStatistics:
    """Count over the parsed turns of one rollout. How calls are spread over steps makes no difference here."""
    calls = [call for turn in turns for call in turn.calls]
    gold = list(chain.from_iterable(gold_steps))
    return CallStatistics(
        exact_match=len(calls) == len(gold) and count_correct(calls, gold) == len(gold),
        redundant_calls=len(calls) - len({(call.name, loose_key(call.arguments)) for call in calls}),
        num_calls=len(calls),
        tool_turns=sum(turn.has_attempt for turn in turns),
        invalid_blocks=sum(len(turn.blocks) - turn.num_valid for turn in turns),
    )


def calls_match(left: ToolCall, right: ToolCall) -> bool:
    """Return whether two calls name the same tool and have loosely equal arguments, none missing, none extra."""
    return left.name == right.name and values_match(left.arguments, right.arguments)


def count_correct(calls: Sequence[ToolCall], gold: Sequence[ToolCall]) -> int:
    """Return how many gold calls were made exactly, one to one.

    Taking the first equal call is optimal here: unlike a score, equality of calls is an equivalence (but for numbers
    that differ by about the tolerance).
    """
    left = list(calls)
    for target in gold:
        for index, call in enumerate(left):
            if calls_match(call, target):
                del left[index]
                break
    return len(calls) - len(left)
