"""An engine that serves other weights than the policy's is caught in the epoch it happens."""

import copy

import pytest
import torch

from slca_lightning.callbacks import WeightSync
from slca_lightning.errors import ConfigError, EngineError
from slca_lightning.hooks import RolloutCallback


class StaleEngine(RolloutCallback):
    """Undoes every sync after the first, as a weight transfer that silently does nothing would."""

    def __init__(self):
        self.first = None

    def on_collection_start(self, trainer, pl_module):
        self.first = copy.deepcopy(pl_module.model) if self.first is None else self.first
        pl_module.rollout_source.engine.sync_weights(self.first, trainer.global_step)

    @torch.no_grad()
    def on_train_epoch_end(self, trainer, pl_module):
        # A real update of this size would take many epochs.
        for parameter in pl_module.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def test_stale_weights_stop_the_run(fit, tmp_path):
    fit(tmp_path, [StaleEngine()], epochs=1)  # the first sync was a good one
    with pytest.raises(EngineError, match="does not sample from the policy"):
        fit(tmp_path, [StaleEngine()], epochs=2)


def test_the_engine_sleeps_while_the_policy_trains(fit, tmp_path):
    class Watch(RolloutCallback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            held.append(len(pl_module.rollout_source.engine._cache._keys))

    held: list[int] = []
    fit(tmp_path, [Watch()])
    assert held == [0, 0]


def test_limit_must_be_positive():
    with pytest.raises(ConfigError, match="max_logprob_gap"):
        WeightSync(max_logprob_gap=0.0)
