"""Shows how far a collection is: a live bar on a terminal, one line each in a log."""

from __future__ import annotations

import sys
import time

from lightning.pytorch import LightningModule, Trainer

from slca_lightning.callbacks._display import Display, live_display
from slca_lightning.hooks import RolloutCallback
from slca_lightning.metrics.collection import collection_scalars
from slca_lightning.rollout.collection import Collection
from slca_lightning.rollout.collector import ScoredRollout


class RolloutProgress(RolloutCallback):
    """Shows rollouts done, tokens per second and failures while rollouts are made, and a summary after each epoch.

    Only rank zero shows anything, and of the rollouts only its own. On a terminal the bar joins Lightning's rich bar,
    or takes the place of its tqdm bars, and goes away when it is done. Elsewhere each collection and each epoch writes
    one line to stderr.

    Args:
        plain: write lines also on a terminal; None does so where there is none.
    """

    def __init__(self, plain: bool | None = None) -> None:
        self.plain = plain
        self._display: Display | None = None
        self._under_way = False
        self._started = 0.0
        self._done = self._tokens = self._failed = 0
        self._epoch_scalars: dict[str, float] = {}

    def on_collection_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show an empty bar."""
        self._started = time.perf_counter()
        self._done = self._tokens = self._failed = 0
        self._under_way = True
        if not trainer.is_global_zero:
            return
        if self._display is None and not self.plain:
            self._display = live_display(trainer)
        if self._display is not None:
            self._display.start(f"{_title(trainer)} rollouts", _total(trainer))

    def on_rollout_scored(self, trainer: Trainer, pl_module: LightningModule, scored: ScoredRollout) -> None:
        """Move the bar."""
        self._done += 1
        self._tokens += sum(scored.rollout.policy_mask)
        self._failed += scored.reward.total.is_failed
        if self._display is not None:
            self._display.update(self._done, f"{self._speed:,.0f} tokens/s, {self._failed} failed")

    def on_rollouts(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        """Take the bar away."""
        self._finish(trainer)
        self._epoch_scalars = collection_scalars(collection)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the bar away."""
        self._finish(trainer)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the bar away."""
        self._finish(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the epoch's summary."""
        scalars = dict(self._epoch_scalars)
        if (kl := trainer.callback_metrics.get("train/kl")) is not None:  # on all ranks: it may be synced
            scalars["train/kl"] = float(kl)
        if trainer.is_global_zero:
            self._say(trainer, epoch_line(trainer.current_epoch, scalars))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        self._stop()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the terminal back."""
        self._stop()
        self._display = None  # the next fit may have another progress bar

    @property
    def _speed(self) -> float:
        return self._tokens / max(time.perf_counter() - self._started, 1e-9)

    def _finish(self, trainer: Trainer) -> None:
        if not self._under_way:  # a validation without rollouts
            return
        self._stop()
        if trainer.is_global_zero and self._display is None:
            seconds = time.perf_counter() - self._started
            line = f"{_title(trainer)}: {self._done} rollouts, {seconds:.1f} s, {self._speed:,.0f} tokens/s, "
            self._say(trainer, line + f"{self._failed} failed")

    def _stop(self) -> None:
        self._under_way = False
        if self._display is not None:
            self._display.stop()

    def _say(self, trainer: Trainer, line: str) -> None:
        bar = trainer.progress_bar_callback
        if self._display is not None and bar is not None:
            bar.print(line)  # above the bar
        else:
            sys.stderr.write(line + "\n")


def epoch_line(epoch: int, scalars: dict[str, float]) -> str:
    """Return an epoch's summary, of what is known of it."""
    names = {
        "success@0.9": "rollout/success@0.9",
        "R_tool": "reward/tool",
        "R_sum": "reward/summary",
        "KL": "train/kl",
    }
    known = [f"{label} {scalars[name]:.4g}" for label, name in names.items() if name in scalars]
    return f"epoch {epoch}: {', '.join(known) or 'no rollout was scored'}"


def _title(trainer: Trainer) -> str:
    if trainer.sanity_checking:
        return "sanity check"
    if trainer.testing:
        return "test"
    return "validation" if trainer.evaluating else f"epoch {trainer.current_epoch}"


def _total(trainer: Trainer) -> int | None:
    """Return how many rollouts this rank will make; None where the data module does not say."""
    source = getattr(trainer, "datamodule", None)
    if trainer.evaluating:
        tasks, size = getattr(source, "val_tasks", None), getattr(source, "val_batch_size", None)
        if tasks is None or size is None:
            return None
        batches = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        if trainer.testing:
            batches = trainer.num_test_batches
        return int(min(len(range(trainer.global_rank, len(tasks), trainer.world_size)), _sum(batches) * size))
    tasks_per_epoch, group_size = (getattr(source, name, None) for name in ("tasks_per_epoch", "group_size"))
    if tasks_per_epoch is None or group_size is None:
        return None
    return int(tasks_per_epoch * group_size // trainer.world_size)


def _sum(batches: int | float | list[int | float]) -> float:
    return sum(batches) if isinstance(batches, list) else batches
