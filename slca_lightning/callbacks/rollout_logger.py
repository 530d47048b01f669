"""Logs what an epoch's rollouts are like: scalars to every logger, histograms and texts to TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import astuple

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from slca_lightning.callbacks.advantage import SegmentAdvantage
from slca_lightning.errors import ConfigError
from slca_lightning.hooks import RolloutCallback, RolloutSource
from slca_lightning.metrics.collection import Stat, collection_stats, segment_advantages, stat_scalars
from slca_lightning.rollout.collection import Collection
from slca_lightning.rollout.collector import ScoredRollout
from slca_lightning.rollout.markdown import rollout_markdown


class RolloutLogger(RolloutCallback):
    """Logs every collection under ``reward/``, ``advantage/``, ``rollout/`` and ``perf/``.

    What each scalar is: :func:`slca_lightning.metrics.collection.collection_stats`. They are over the rollouts of all
    ranks, go through ``self.log`` to every logger, and can be monitored. Histograms of the advantages per segment and
    some rollouts as text (of rank zero) go to a ``TensorBoardLogger``; other loggers have no place for them and get the
    scalars alone. Without a logger nothing is written.

    Args:
        num_texts: rollouts written as text at each collection and each validation, the first ones; 0 writes none.
        histograms: whether to write histograms.
        max_prompt_chars: longer prompts are shortened in the middle.

    Raises:
        ConfigError: where a number is negative.
    """

    def __init__(self, num_texts: int = 3, histograms: bool = True, max_prompt_chars: int = 600) -> None:
        if num_texts < 0 or max_prompt_chars < 0:
            raise ConfigError(f"num_texts and max_prompt_chars cannot be negative: {num_texts}, {max_prompt_chars}")
        self.num_texts = num_texts
        self.histograms = histograms
        self.max_prompt_chars = max_prompt_chars
        self._started = self._rolled_out = 0.0
        self._validation: list[ScoredRollout] = []

    def on_collection_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._validation.clear()

    def on_rollouts(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        """Take the time of the collection."""
        self._rolled_out = time.perf_counter()

    def on_collection_ready(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        """Log the collection."""
        boundary = _boundary(trainer)
        stats = collection_stats(collection, boundary)
        stats["perf/collection_seconds"] = Stat.of([self._rolled_out - self._started])
        stats["perf/scoring_seconds"] = Stat.of([time.perf_counter() - self._rolled_out])
        stats = _over_ranks(trainer, pl_module, stats)
        scalars = stat_scalars(stats) | _speed(stats)
        for name, value in scalars.items():
            # Equal on all ranks already; syncing the mean of equals keeps Lightning from warning.
            pl_module.log(name, value, on_step=False, on_epoch=True, batch_size=1, sync_dist=trainer.world_size > 1)
        if self.histograms:
            for board in _boards(trainer):
                for segment, values in segment_advantages(collection, boundary).items():
                    if values.numel():
                        board.experiment.add_histogram(f"advantage/{segment}", values, trainer.global_step)
        scored = [ScoredRollout(*pair) for pair in zip(collection.rollouts, collection.rewards, strict=True)]
        self._write_texts(trainer, "train/rollouts", scored, collection.advantages)

    def on_validation_rollouts(
        self, trainer: Trainer, pl_module: LightningModule, scored: Sequence[ScoredRollout]
    ) -> None:
        """Keep the first rollouts of a validation."""
        self._validation += scored[: self.num_texts - len(self._validation)]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write them."""
        if not trainer.sanity_checking:
            self._write_texts(trainer, "val/rollouts", self._validation)
        self._validation.clear()

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write them."""
        self._write_texts(trainer, "test/rollouts", self._validation)
        self._validation.clear()

    def _write_texts(
        self, trainer: Trainer, tag: str, scored: Sequence[ScoredRollout], advantages: Tensor | None = None
    ) -> None:
        boards, source = _boards(trainer), getattr(trainer, "datamodule", None)
        chosen = scored[: self.num_texts]
        if not boards or not chosen or not isinstance(source, RolloutSource):
            return
        texts = [
            rollout_markdown(
                one.rollout,
                one.reward,
                lambda ids: str(source.tokenizer.decode(list(ids))),
                None if advantages is None else advantages[index],
                _boundary(trainer),
                self.max_prompt_chars,
            )
            for index, one in enumerate(chosen)
        ]
        for board in boards:
            board.experiment.add_text(tag, "\n\n---\n\n".join(texts), trainer.global_step)


def _boundary(trainer: Trainer) -> str:
    """Return how segments were told apart when the advantages were computed."""
    callbacks: list[object] = trainer.callbacks  # type: ignore[attr-defined]
    return next((c.boundary for c in callbacks if isinstance(c, SegmentAdvantage)), "structural")


def _boards(trainer: Trainer) -> list[TensorBoardLogger]:
    if not trainer.is_global_zero:
        return []
    return [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]


def _speed(stats: dict[str, Stat]) -> dict[str, float]:
    """Return the totals of all ranks over the time of the slowest."""
    seconds = {name: stats[f"perf/{name}"].largest for name in ("collection_seconds", "scoring_seconds")}
    tokens, elapsed = stats["rollout/policy_tokens"], max(seconds["collection_seconds"], 1e-9)
    return {
        **{f"perf/{name}": value for name, value in seconds.items()},
        "perf/tokens_per_second": tokens.total / elapsed,
        "perf/rollouts_per_second": tokens.count / elapsed,
    }


def _over_ranks(trainer: Trainer, pl_module: LightningModule, stats: dict[str, Stat]) -> dict[str, Stat]:
    """Merge the ranks' stats; all ranks have the same names."""
    if trainer.world_size == 1:
        return stats
    rows = torch.tensor([astuple(stat) for stat in stats.values()], dtype=torch.float64, device=pl_module.device)
    sums = trainer.strategy.reduce(rows[:, :3].clone(), reduce_op="sum")
    largest = trainer.strategy.reduce(rows[:, 3:].clone(), reduce_op="max")
    assert isinstance(sums, Tensor)
    assert isinstance(largest, Tensor)
    merged = torch.cat([sums, largest], dim=1).tolist()
    return {name: Stat(*row) for name, row in zip(stats, merged, strict=True)}
