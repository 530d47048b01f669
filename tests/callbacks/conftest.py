"""A real run, as small as can be: a random policy of one layer, two tasks, four rollouts each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from slca_lightning.callbacks import SegmentAdvantage, WeightSync
from slca_lightning.datamodules.rollout import RolloutDataModule
from slca_lightning.models.tiny import build_tiny_policy
from slca_lightning.modules.slca import SLCAModule
from slca_lightning.rollout.loop import RolloutLimits
from slca_lightning.tasks.toolworld import ToolWorldTasks

Fit = Callable[..., Trainer]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny", hidden_size=32, num_layers=1)


@pytest.fixture(scope="session")
def fit(policy_path: Path) -> Fit:
    def run(
        folder: Path,
        callbacks: list[Callback],
        *,
        epochs: int = 1,
        val: bool = False,
        module: SLCAModule | None = None,
        **options: Any,
    ) -> Trainer:
        defaults: dict[str, Any] = {
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "num_sanity_val_steps": 0,
        }
        trainer = Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            devices=1,
            default_root_dir=folder,
            enable_model_summary=False,
            log_every_n_steps=1,
            callbacks=[WeightSync(), SegmentAdvantage(), *callbacks],
            **{**defaults, **options},
        )
        data = RolloutDataModule(
            str(policy_path),
            ToolWorldTasks(size=16),
            val_tasks=ToolWorldTasks("test", size=3) if val else None,
            limits=RolloutLimits(3, 60),
            tasks_per_epoch=2,
            group_size=4,
            micro_batch_size=4,
            val_batch_size=2,
        )
        trainer.fit(module or SLCAModule(str(policy_path)), data)
        return trainer

    return run
