"""Hands the policy's weights to the engine before rollouts are made, and checks that it used them."""

from __future__ import annotations

from lightning.pytorch import LightningModule, Trainer

from slca_lightning.errors import ConfigError, EngineError
from slca_lightning.functional import masked_mean
from slca_lightning.hooks import RolloutCallback
from slca_lightning.modules.slca import SLCAModule
from slca_lightning.rollout.collection import Collection


class WeightSync(RolloutCallback):
    """Gives the engine the present weights, stamped with the number of optimiser steps they have seen.

    The engine is woken before rollouts and put to sleep after them, so that its memory is free while the policy trains.

    Args:
        max_logprob_gap: largest mean |log p(engine) - log p(policy)| (nats) over an epoch's sampled tokens. An engine
            that serves other weights than the policy's is beyond it at once; differences of precision stay far below.

    Raises:
        ConfigError: for a limit that is not positive.
    """

    def __init__(self, max_logprob_gap: float = 0.1) -> None:
        if max_logprob_gap <= 0:
            raise ConfigError(f"max_logprob_gap must be positive, got {max_logprob_gap}")
        self.max_logprob_gap = max_logprob_gap

    def on_collection_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sync before an epoch's first rollout, and before a validation's."""
        module = _slca_module(pl_module)
        engine = module.rollout_source.engine
        engine.wake()
        engine.sync_weights(module.model, trainer.global_step)

    def on_rollouts(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        """Let the engine sleep while the policy trains."""
        _slca_module(pl_module).rollout_source.engine.sleep()

    def on_collection_ready(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        """Compare what engine and policy say of the sampled tokens.

        Raises:
            EngineError: where they are further apart than the limit.
        """
        if collection.old_logprobs is None:
            return
        gap = masked_mean((collection.sampling_logprobs - collection.old_logprobs).abs(), collection.loss_mask).item()
        if not gap <= self.max_logprob_gap:  # also where it is NaN
            raise EngineError(
                f"the engine's log-probabilities are {gap:.3g} nats from the policy's on average, more than "
                f"max_logprob_gap = {self.max_logprob_gap}: it does not sample from the policy that is trained. "
                "Check that it takes over the weights, and that both use the same temperature"
            )

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the engine sleep. Other modules validate without one: the command line gives each run this callback."""
        if isinstance(pl_module, SLCAModule):
            pl_module.rollout_source.engine.sleep()

    on_test_end = on_validation_end


def _slca_module(module: LightningModule) -> SLCAModule:
    if not isinstance(module, SLCAModule):
        raise ConfigError(f"WeightSync works with SLCAModule, not {type(module).__name__}")
    return module
