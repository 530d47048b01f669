"""Hands the policy's weights to the engine before rollouts are made."""

from __future__ import annotations

from lightning.pytorch import LightningModule, Trainer

from slca_lightning.errors import ConfigError
from slca_lightning.hooks import RolloutCallback
from slca_lightning.modules.slca import SLCAModule


class WeightSync(RolloutCallback):
    """Gives the engine the present weights, stamped with the number of optimiser steps they have seen."""

    def on_collection_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sync before an epoch's first rollout, and before a validation's."""
        if not isinstance(pl_module, SLCAModule):
            raise ConfigError(f"WeightSync works with SLCAModule, not {type(pl_module).__name__}")
        engine = pl_module.rollout_source.engine
        engine.wake()
        engine.sync_weights(pl_module.model, trainer.global_step)
