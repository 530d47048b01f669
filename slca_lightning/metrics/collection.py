"""The numbers of an epoch's rollouts: columns of values, what adds up of them over ranks, and the scalars to log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from slca_lightning.functional import segment_masks
from slca_lightning.metrics.values import rollout_values
from slca_lightning.rollout.collection import Collection
from slca_lightning.types import FinishReason, RewardBreakdown, Score

PROCESS_PARTS = ("format", "name", "key", "value", "parallel")
ROLLOUT_VALUES = (
    *("success@0.9", "exact_calls", "joint_success", "omission", "truncation"),
    *("tool_turns", "calls", "redundant_calls", "response_tokens"),
)
"""Which of :func:`~slca_lightning.metrics.values.rollout_values` are reported here; rewards have their own place."""

SEGMENTS = ("tool", "summary")
_STD = tuple(f"advantage/{segment}" for segment in SEGMENTS)
_MEAN_AND_MAX = ("rollout/logprob_gap",)


@dataclass(frozen=True, slots=True)
class Stat:
    """What is needed of a column for its mean, standard deviation and maximum; merges over ranks."""

    count: float
    total: float
    squares: float
    """Sum of the squared values."""
    largest: float
    """-inf for an empty column."""

    @classmethod
    def of(cls, values: Tensor | Iterable[float]) -> Stat:
        """Summarise values of any shape."""
        column = torch.as_tensor(values if isinstance(values, Tensor) else list(values), dtype=torch.float64)
        largest = float(column.max()) if column.numel() else -math.inf
        return cls(float(column.numel()), float(column.sum()), float(column.square().sum()), largest)

    @property
    def mean(self) -> float:
        """Σ v / n."""
        return self.total / self.count

    @property
    def std(self) -> float:
        """The standard deviation √(Σ v² / n - mean²), of the values themselves (divided by n)."""
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2))


def collection_stats(collection: Collection, boundary: str = "structural") -> dict[str, Stat]:
    """Summarise a collection. The names are the same for every collection, also where a column is empty.

    ``reward/``: ``tool``, ``summary`` and ``total`` over the rollouts where they did not fail (an absent one counts 0),
    the five parts of the process reward likewise, and ``failed``, the share without a valid total.
    ``rollout/``: rollout values over the rollouts that did not fail, ``failed``, the share that did (engine or
    simulator), ``policy_tokens`` a rollout, the share of each finish reason and of ``template_drift``, the
    ``weights_version``, and ``logprob_gap``, |sampling - training log-probability| of the tokens in the loss.
    ``advantage/``, for tool and summary, of what is in the loss: the tokens' values, ``_zero``, the share of rollouts
    whose segment has nothing but zeros, and ``_no_signal``, the share of groups where that is so of all members.

    Args:
        collection: the rollouts; advantages and log-probabilities are left out where they are not there yet.
        boundary: how segments are told apart, as the advantages were computed.
    """
    columns: dict[str, Stat] = {}
    columns |= {f"reward/{name}": Stat.of(values) for name, values in _rewards(collection.rewards).items()}
    columns |= {f"rollout/{name}": Stat.of(values) for name, values in _rollouts(collection).items()}
    columns |= {f"advantage/{name}": Stat.of(values) for name, values in _advantages(collection, boundary).items()}
    columns["rollout/logprob_gap"] = Stat.of(_logprob_gap(collection))
    return columns


def stat_scalars(stats: Mapping[str, Stat]) -> dict[str, float]:
    """Return what is logged: a column's mean, for advantages the standard deviation, for the gap also the maximum.

    A column without values has no scalar: nothing to say is not a zero.
    """
    scalars: dict[str, float] = {}
    for name, stat in stats.items():
        if not stat.count:
            continue
        if name in _STD:
            scalars[f"{name}_std"] = stat.std
        elif name in _MEAN_AND_MAX:
            scalars |= {f"{name}_mean": stat.mean, f"{name}_max": stat.largest}
        else:
            scalars[name] = stat.mean
    return scalars


def collection_scalars(collection: Collection, boundary: str = "structural") -> dict[str, float]:
    """Return the scalars of one rank's collection, see :func:`collection_stats` and :func:`stat_scalars`."""
    return stat_scalars(collection_stats(collection, boundary))


def segment_advantages(collection: Collection, boundary: str = "structural") -> dict[str, Tensor]:
    """Return, per segment, the advantages of its tokens in the loss (1-D); empty where none are computed yet."""
    if collection.advantages is None:
        return {segment: torch.empty(0) for segment in SEGMENTS}
    return {name: collection.advantages[mask] for name, mask in _loss_segments(collection, boundary).items()}


def _rewards(rewards: Iterable[RewardBreakdown]) -> dict[str, list[float]]:
    columns: dict[str, list[float]] = {name: [] for name in ("tool", "summary", "total", *PROCESS_PARTS, "failed")}
    for reward in rewards:
        scores: dict[str, Score] = {"tool": reward.tool, "summary": reward.summary, "total": reward.total}
        for name, score in scores.items():
            if not score.is_failed:
                columns[name].append(score.or_zero)  # a text that was not written earns nothing
        if not reward.tool.is_failed:
            for part in PROCESS_PARTS:
                columns[part].append(getattr(reward.process, part))
        columns["failed"].append(float(reward.total.is_failed))
    return columns


def _rollouts(collection: Collection) -> dict[str, list[float]]:
    columns: dict[str, list[float]] = {name: [] for name in ROLLOUT_VALUES}
    for rollout, reward in zip(collection.rollouts, collection.rewards, strict=True):
        values = rollout_values(rollout, reward)
        for name in ROLLOUT_VALUES:
            if (value := values.get(name)) is not None:
                columns[name].append(value)
    columns["failed"] = [float(reward.tool.is_failed) for reward in collection.rewards]
    columns["policy_tokens"] = collection.policy_mask.sum(dim=1).tolist()
    columns["template_drift"] = [float(rollout.template_drift) for rollout in collection.rollouts]
    columns["weights_version"] = [float(rollout.weights_version) for rollout in collection.rollouts]
    for reason in get_args(FinishReason):
        columns[f"finish_{reason}"] = [float(rollout.finish_reason == reason) for rollout in collection.rollouts]
    return columns


def _advantages(collection: Collection, boundary: str) -> dict[str, Tensor | list[float]]:
    columns: dict[str, Tensor | list[float]] = dict(segment_advantages(collection, boundary))
    if collection.advantages is None:
        return columns | {f"{name}_{what}": [] for name in SEGMENTS for what in ("zero", "no_signal")}
    for name, mask in _loss_segments(collection, boundary).items():
        moved = ((collection.advantages != 0) & mask).any(dim=1).tolist()
        present = mask.any(dim=1).tolist()
        groups: dict[str, bool] = {}
        for group, here, signal in zip(collection.groups, present, moved, strict=True):
            if here:
                groups[group] = groups.get(group, False) or signal
        columns[f"{name}_zero"] = [float(not signal) for here, signal in zip(present, moved, strict=True) if here]
        columns[f"{name}_no_signal"] = [float(not signal) for signal in groups.values()]
    return columns


def _loss_segments(collection: Collection, boundary: str) -> dict[str, Tensor]:
    masks = segment_masks(collection.policy_mask, collection.run_has_call, boundary)
    return {name: mask & collection.loss_mask for name, mask in zip(SEGMENTS, masks, strict=True)}


def _logprob_gap(collection: Collection) -> Tensor:
    if collection.old_logprobs is None:
        return torch.empty(0)
    # The policy scores only the tokens in the loss; elsewhere its column holds zeros that mean nothing.
    return (collection.sampling_logprobs - collection.old_logprobs).abs()[collection.loss_mask]
