"""An epoch's rollouts as columns of tensors, and the micro-batches that are trained on.

Shapes: N rollouts, R response tokens (padded on the right to the longest), B rollouts in a micro-batch, L tokens of
prompt and response (padded on the right).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from slca_lightning.errors import ConfigError
from slca_lightning.rewards.hier import reward_streams
from slca_lightning.rollout.collector import ScoredRollout
from slca_lightning.types import RewardBreakdown, Rollout


class TrainBatch(NamedTuple):
    """A micro-batch. All are (B, L) unless said otherwise; what belongs to a token stands at the token's own place."""

    input_ids: Tensor
    attention_mask: Tensor
    """1 for tokens, 0 for padding."""
    policy_mask: Tensor
    """True where the policy sampled the token and the loss may use it."""
    advantages: Tensor
    old_logprobs: Tensor
    reference_logprobs: Tensor
    denominator: Tensor
    """Scalar: tokens that the loss uses in the whole update, over all its micro-batches and ranks."""
    indices: Tensor
    """(B,): which rollouts of the collection these are."""


@dataclass
class Collection:
    """All rollouts of an epoch. What is computed after sampling is None until it is there."""

    rollouts: tuple[Rollout, ...]
    rewards: tuple[RewardBreakdown, ...]
    policy_mask: Tensor = field(init=False)
    """(N, R) bool: True where the policy sampled the token."""
    sampling_logprobs: Tensor = field(init=False)
    """(N, R) float32: as the engine reported them."""
    loss_mask: Tensor = field(init=False)
    """(N, R) bool: the policy tokens that take part in the loss and its denominator."""
    advantages: Tensor | None = None
    """(N, R) float32."""
    old_logprobs: Tensor | None = None
    """(N, R) float32: of the policy before the first update."""
    reference_logprobs: Tensor | None = None
    """(N, R) float32: of the reference; zeros where the loss needs none."""
    denominators: Tensor | None = None
    """(updates,) float32: tokens in the loss of each update, over all ranks."""

    def __post_init__(self) -> None:
        self.policy_mask = _padded([r.policy_mask for r in self.rollouts], torch.bool)
        self.sampling_logprobs = _padded([r.logprobs for r in self.rollouts], torch.float32)
        usable = torch.tensor([not reward.tool.is_failed for reward in self.rewards], dtype=torch.bool)
        self.loss_mask = self.policy_mask & usable[:, None]

    @classmethod
    def of(cls, scored: Sequence[ScoredRollout]) -> Collection:
        """Make a collection of scored rollouts, in their order."""
        return cls(tuple(s.rollout for s in scored), tuple(s.reward for s in scored))

    def __len__(self) -> int:
        return len(self.rollouts)

    @property
    def groups(self) -> list[str]:
        """The group of each rollout."""
        return [rollout.group for rollout in self.rollouts]

    @property
    def run_has_call(self) -> list[tuple[bool, ...]]:
        """Per rollout and policy run, whether the run holds a tool-call attempt."""
        return [rollout.run_has_call for rollout in self.rollouts]

    def reward_columns(self) -> dict[str, list[float]]:
        """Return every per-rollout input that estimators may ask for, by name."""
        streams = [reward_streams(reward) for reward in self.rewards]
        return {name: [stream[name] for stream in streams] for name in streams[0]} if streams else {}

    def batch(self, indices: Sequence[int], pad_id: int, denominator: Tensor | None = None) -> TrainBatch:
        """Return the micro-batch of some rollouts. Columns that are not there yet are zeros."""
        rollouts = [self.rollouts[i] for i in indices]
        ids = [(*rollout.prompt_ids, *rollout.response_ids) for rollout in rollouts]
        input_ids = _padded(ids, torch.long, pad_id)
        lengths = torch.tensor([len(row) for row in ids])
        prompt_lengths = [len(rollout.prompt_ids) for rollout in rollouts]

        def column(source: Tensor | None, dtype: torch.dtype) -> Tensor:
            placed = torch.zeros(input_ids.shape, dtype=dtype)
            if source is not None:
                for row, (index, start, rollout) in enumerate(zip(indices, prompt_lengths, rollouts, strict=True)):
                    size = len(rollout.response_ids)
                    placed[row, start : start + size] = source[index, :size]
            return placed

        return TrainBatch(
            input_ids=input_ids,
            attention_mask=(torch.arange(input_ids.shape[1]) < lengths[:, None]).long(),
            policy_mask=column(self.loss_mask, torch.bool),
            advantages=column(self.advantages, torch.float32),
            old_logprobs=column(self.old_logprobs, torch.float32),
            reference_logprobs=column(self.reference_logprobs, torch.float32),
            denominator=torch.tensor(1.0) if denominator is None else denominator,
            indices=torch.tensor(list(indices)),
        )

    def gather(self, batch: TrainBatch, values: Tensor, into: Tensor) -> None:
        """Write (B, L) values of a micro-batch back to the (N, R) column ``into``."""
        for row, index in enumerate(batch.indices.tolist()):
            start, size = len(self.rollouts[index].prompt_ids), len(self.rollouts[index].response_ids)
            into[index, :size] = values[row, start : start + size].to(into)


def by_length(collection: Collection, indices: Sequence[int]) -> list[int]:
    """Return ``indices`` sorted by length, longest first, so that micro-batches hold little padding."""

    def length(index: int) -> int:
        rollout = collection.rollouts[index]
        return len(rollout.prompt_ids) + len(rollout.response_ids)

    return sorted(indices, key=length, reverse=True)


def micro_batches(collection: Collection, micro_batch_size: int, num_updates: int) -> list[list[int]]:
    """Split a collection into updates, and each update into micro-batches of similar length.

    An update takes consecutive rollouts: whole groups, where its size is a multiple of the group's.

    Args:
        collection: N rollouts, group by group.
        micro_batch_size: rollouts in a micro-batch.
        num_updates: optimiser steps; N must be a multiple of ``num_updates * micro_batch_size``.

    Raises:
        ConfigError: where the numbers are not positive or do not divide each other.
    """
    if micro_batch_size < 1 or num_updates < 1:
        raise ConfigError(f"need at least one update and one rollout in it, got {num_updates} and {micro_batch_size}")
    if len(collection) % (num_updates * micro_batch_size):
        raise ConfigError(
            f"{len(collection)} rollouts cannot be split into {num_updates} updates of micro-batches of "
            f"{micro_batch_size}; choose a micro_batch_size and a number of updates that divide them"
        )
    size = len(collection) // num_updates
    batches = []
    for update in range(num_updates):
        ordered = by_length(collection, range(update * size, (update + 1) * size))
        batches += [ordered[i : i + micro_batch_size] for i in range(0, size, micro_batch_size)]
    return batches


def _padded(rows: Sequence[Sequence[float]], dtype: torch.dtype, value: float = 0) -> Tensor:
    width = max((len(row) for row in rows), default=0)
    padded = torch.full((len(rows), width), value, dtype=dtype)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = torch.tensor(row, dtype=dtype)
    return padded
