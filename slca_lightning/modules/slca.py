"""SLCA-GRPO as a LightningModule: policy, reference and loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from slca_lightning.errors import ConfigError
from slca_lightning.functional import kl_divergence, masked_sum, ppo_clip
from slca_lightning.hooks import RolloutSource, rollout_callbacks
from slca_lightning.metrics import RolloutMetrics
from slca_lightning.metrics.values import rollout_values
from slca_lightning.models.forward import token_scores
from slca_lightning.models.loading import Dtype, LoRA, frozen_copy
from slca_lightning.modules.finite import check_loss, gradient_norm
from slca_lightning.modules.policy import PolicyModule
from slca_lightning.rollout.collection import Collection, TrainBatch
from slca_lightning.rollout.collector import ScoredRollout


class SLCAModule(PolicyModule):
    """Trains a tool-calling policy on rollouts with per-token advantages.

    The loss of an update is, over the policy tokens t of all its rollouts (method: arXiv 2609.29050, section 6)::

        L = 1/|T| Σ_t [ -min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t) + kl_coef · KL_t(policy ‖ reference) ]

    with r_t the ratio of the policy's probability to the one it had when the rollouts were made. |T| counts the tokens
    of the whole update, so the loss is the same whatever the micro-batch size, accumulation or number of ranks.

    At the start of each training epoch the module asks the data module (a :class:`RolloutSource`) for rollouts, lets
    the callbacks turn rewards into advantages, and scores the tokens with policy and reference. How advantages are
    computed is the business of the ``SegmentAdvantage`` callback.

    Args:
        model_path: folder or hub name of the model and its tokenizer.
        optimizer: makes an optimiser of the trainable parameters.
        lr_scheduler: makes a scheduler of it, stepped after each optimiser step.
        clip_low: how far below 1 the ratio may count, in [0, 1).
        clip_high: how far above 1 the ratio may count, at least 0.
        kl_coef: weight of the KL divergence to the reference; 0 keeps no reference at all.
        kl_kind: estimator of the divergence: ``k1``, ``k2`` or ``k3``.
        lora: train a fresh adapter; the reference is then the policy with its adapter off, and costs no memory.
        dtype: of the weights.
        attn_implementation: as transformers names them.
        random_weights: start from random weights, for tests.
        trust_remote_code: run code that the model's folder brings.

    Raises:
        ConfigError: for settings out of range.
    """

    def __init__(
        self,
        model_path: str,
        optimizer: OptimizerCallable = torch.optim.AdamW,
        lr_scheduler: LRSchedulerCallable | None = None,
        clip_low: float = 0.2,
        clip_high: float = 0.2,
        kl_coef: float = 0.001,
        kl_kind: Literal["k1", "k2", "k3"] = "k3",
        lora: LoRA | dict[str, Any] | None = None,
        dtype: Dtype = "float32",
        attn_implementation: str = "sdpa",
        random_weights: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__(
            model_path, optimizer, lr_scheduler, lora, dtype, attn_implementation, random_weights, trust_remote_code
        )
        if not 0 <= clip_low < 1 or clip_high < 0 or kl_coef < 0:
            raise ConfigError(
                f"need 0 <= clip_low < 1, clip_high >= 0 and kl_coef >= 0, got {clip_low}, {clip_high} and {kl_coef}"
            )
        self.clip_low = clip_low
        self.clip_high = clip_high
        self.kl_coef = kl_coef
        self.kl_kind: Literal["k1", "k2", "k3"] = kl_kind
        self.reference: nn.Module | None = None
        self.val_metrics = RolloutMetrics()
        self._update: list[TrainBatch] = []

    def configure_model(self) -> None:
        """Load the policy, and freeze a copy of it as the reference where one is needed."""
        super().configure_model()
        if self.reference is None and self.kl_coef > 0 and self.lora is None:
            self.reference = frozen_copy(self.model)

    def frozen_modules(self) -> dict[str, nn.Module]:
        """The reference never changes."""
        return {} if self.reference is None else {"reference": self.reference}

    @property
    def rollout_source(self) -> RolloutSource:
        """The data module that makes the rollouts."""
        source = getattr(self.trainer, "datamodule", None)
        if not isinstance(source, RolloutSource):
            raise ConfigError(
                "SLCAModule needs a data module that makes rollouts, such as RolloutDataModule, not "
                f"{type(source).__name__}"
            )
        return source

    def on_train_epoch_start(self) -> None:
        """Collect this epoch's rollouts with the present weights, and score their tokens.

        Raises:
            ConfigError: where no callback computed advantages, or the Trainer would leave rollouts out.
        """
        source = self.rollout_source
        num_updates = self._num_updates()
        callbacks = rollout_callbacks(self.trainer)
        for callback in callbacks:
            callback.on_collection_start(self.trainer, self)
        collection = source.collect(self.current_epoch, self._tell_scored)
        for callback in callbacks:
            callback.on_rollouts(self.trainer, self, collection)
        if collection.advantages is None:
            raise ConfigError(
                "the rollouts have no advantages; add the callback SegmentAdvantage (or your own RolloutCallback that "
                "sets collection.advantages) to the Trainer"
            )
        batches = source.train_on(collection, num_updates)
        if len(batches) != self.trainer.num_training_batches:
            raise ConfigError(
                f"the epoch has {len(batches)} micro-batches, but the Trainer would train on "
                f"{self.trainer.num_training_batches}: limit_train_batches, overfit_batches and fast_dev_run would cut "
                "updates short; lower tasks_per_epoch of the data module instead"
            )
        self._score_tokens(collection, batches)
        self._count_tokens(collection, batches, num_updates)
        for callback in callbacks:
            callback.on_collection_ready(self.trainer, self, collection)

    def training_step(self, batch: TrainBatch, batch_idx: int) -> Tensor:
        """Return a micro-batch's share of the update's loss."""
        scores = token_scores(
            self.model, batch.input_ids, batch.attention_mask, batch.policy_mask, self.rollout_source.temperature
        )
        objective = ppo_clip(
            scores.logprobs, batch.old_logprobs, batch.advantages, clip_low=self.clip_low, clip_high=self.clip_high
        )
        losses = objective.loss
        tokens = {"entropy": scores.entropy, "clip_share": objective.clipped.float()}
        if self.kl_coef > 0:
            kl = kl_divergence(scores.logprobs, batch.reference_logprobs, self.kl_kind)
            losses = losses + self.kl_coef * kl
            tokens["kl"] = kl.detach()
        ranks = self.trainer.world_size
        # Lightning divides by the number of accumulated micro-batches, and averages gradients over ranks.
        share = self.trainer.accumulate_grad_batches * ranks
        loss = masked_sum(losses, batch.policy_mask) / batch.denominator * share
        self._update.append(batch)
        name = f"epoch {self.current_epoch} micro-batch {batch_idx}"
        check_loss(loss.detach(), batch._asdict(), self._debug_folder, name)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True, batch_size=1, sync_dist=ranks > 1)
        count = int(batch.policy_mask.sum())
        if count:
            for key, values in tokens.items():
                mean = masked_sum(values, batch.policy_mask) / count
                self.log(f"train/{key}", mean, on_step=False, on_epoch=True, batch_size=count)
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Log the gradient's norm before clipping, and stop where it is not finite."""
        name = f"epoch {self.current_epoch} step {self.global_step}"
        norm = gradient_norm(
            self.model.named_parameters(), [b._asdict() for b in self._update], self._debug_folder, name
        )
        self._update.clear()
        self.log("train/grad_norm", norm, on_step=False, on_epoch=True, batch_size=1)

    def on_validation_start(self) -> None:
        """Let the callbacks hand the present weights to the engine."""
        for callback in rollout_callbacks(self.trainer):
            callback.on_collection_start(self.trainer, self)

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        """Roll out a batch of validation tasks, given as indices."""
        scored = self.rollout_source.validate_on(batch.tolist(), self._tell_scored)
        for one in scored:
            self.val_metrics.update(rollout_values(one.rollout, one.reward))
        for callback in rollout_callbacks(self.trainer):
            callback.on_validation_rollouts(self.trainer, self, scored)

    def on_validation_epoch_end(self) -> None:
        """Log the means over all validation rollouts."""
        for name, value in self.val_metrics.compute().items():
            self.log(f"val/{name}", value.float(), batch_size=1)
        self.val_metrics.reset()

    on_test_start = on_validation_start
    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end

    def _tell_scored(self, scored: ScoredRollout) -> None:
        for callback in rollout_callbacks(self.trainer):
            callback.on_rollout_scored(self.trainer, self, scored)

    def _num_updates(self) -> int:
        """Return the optimiser steps of an epoch, the same in every epoch."""
        batches = int(self.trainer.num_training_batches)
        accumulate = self.trainer.accumulate_grad_batches
        if batches % accumulate:
            raise ConfigError(
                f"an epoch has {batches} micro-batches on each rank, which accumulate_grad_batches = {accumulate} does "
                "not divide; change it, or micro_batch_size, tasks_per_epoch or group_size of the data module"
            )
        return batches // accumulate

    @torch.no_grad()
    def _score_tokens(self, collection: Collection, batches: list[list[int]]) -> None:
        """Score all policy tokens with the policy as it is, and with the reference."""
        pad_id = self.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        collection.old_logprobs = torch.zeros_like(collection.sampling_logprobs)
        collection.reference_logprobs = reference = torch.zeros_like(collection.sampling_logprobs)
        with self.trainer.strategy.precision_plugin.forward_context():
            for indices in batches:
                batch: TrainBatch = move_data_to_device(collection.batch(indices, pad_id), self.device)
                collection.gather(batch, self._logprobs(self.model, batch), collection.old_logprobs)
                if self.reference is not None:
                    collection.gather(batch, self._logprobs(self.reference, batch), reference)
                elif self.kl_coef > 0:
                    with self.model.disable_adapter():  # type: ignore[operator]
                        collection.gather(batch, self._logprobs(self.model, batch), reference)

    def _logprobs(self, model: nn.Module, batch: TrainBatch) -> Tensor:
        temperature = self.rollout_source.temperature
        return token_scores(model, batch.input_ids, batch.attention_mask, batch.policy_mask, temperature).logprobs

    def _count_tokens(self, collection: Collection, batches: list[list[int]], updates: int) -> None:
        """Set each update's denominator: its tokens in the loss, over all ranks."""
        per_update = len(batches) // updates
        counts = collection.loss_mask.sum(dim=1).float()
        local = torch.stack(
            [
                counts[[i for batch in batches[u * per_update : (u + 1) * per_update] for i in batch]].sum()
                for u in range(updates)
            ]
        )
        total = self.trainer.strategy.reduce(local.to(self.device), reduce_op="sum")
        assert isinstance(total, Tensor)
        # An update whose rollouts all failed has no tokens; its loss is then 0 / 1.
        collection.denominators = total.clamp(min=1.0).cpu()

    @property
    def _debug_folder(self) -> Path:
        return Path(self.trainer.log_dir or self.trainer.default_root_dir) / "nonfinite"
