"""What the Lightning parts promise each other: who makes rollouts, and who is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lightning.pytorch import Callback, LightningModule, Trainer
from transformers import PreTrainedTokenizerBase

from slca_lightning.rollout.collection import Collection
from slca_lightning.rollout.collector import OnScored, ScoredRollout
from slca_lightning.rollout.engines.base import GenerationEngine


@runtime_checkable
class RolloutSource(Protocol):
    """A data module that makes rollouts. ``RolloutDataModule`` is one; yours may be another."""

    engine: GenerationEngine
    tokenizer: PreTrainedTokenizerBase
    temperature: float
    """Of sampling; the policy's logits are divided by it when its rollouts are scored."""

    def collect(self, epoch: int, on_scored: OnScored | None = None) -> Collection:
        """Make this epoch's rollouts with the engine's present weights."""

    def train_on(self, collection: Collection, num_updates: int) -> list[list[int]]:
        """Let the training data loader serve ``collection``, and return its micro-batches as indices."""

    def validate_on(self, indices: Sequence[int], on_scored: OnScored | None = None) -> list[ScoredRollout]:
        """Roll out some of the validation tasks."""


class RolloutCallback(Callback):
    """A callback that takes part in collecting rollouts. All hooks are optional."""

    def on_collection_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Before the first rollout of an epoch, and before the first of a validation."""

    def on_rollout_scored(self, trainer: Trainer, pl_module: LightningModule, scored: ScoredRollout) -> None:
        """As soon as one rollout is scored, while others are under way."""

    def on_rollouts(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        """When an epoch's rollouts are all scored, before anything is computed from them."""

    def on_collection_ready(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        """When advantages and log-probabilities are there too, before the first update."""

    def on_validation_rollouts(
        self, trainer: Trainer, pl_module: LightningModule, scored: Sequence[ScoredRollout]
    ) -> None:
        """When a batch of validation rollouts is scored."""


def rollout_callbacks(trainer: Trainer) -> list[RolloutCallback]:
    """Return the trainer's callbacks that take part in collecting rollouts, in their order."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in callbacks if isinstance(callback, RolloutCallback)]
