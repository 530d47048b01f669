"""A folder that transformers and vLLM load, beside each of Lightning's checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch.distributed.tensor import DTensor

from slca_lightning.errors import ConfigError
from slca_lightning.models.loading import save_policy
from slca_lightning.modules.policy import PolicyModule


class HFExport(Callback):
    """Writes the policy and its tokenizer as ``FILE.hf/`` whenever ``FILE.ckpt`` is saved, and removes it with it.

    It stands between the strategy and its ``CheckpointIO``, which every way of saving a checkpoint goes through
    (``ModelCheckpoint``, also on exceptions, and ``trainer.save_checkpoint``). So an export always holds the weights of
    its checkpoint. Strategies that save sharded checkpoints past the ``CheckpointIO`` get no exports.

    Folders appear complete or not at all: they are written under another name and then renamed.

    Args:
        checkpoints: whether to export beside checkpoints.
        final: whether to write the final policy as ``hf/`` in the logger's folder (``default_root_dir`` without one).
    """

    def __init__(self, checkpoints: bool = True, final: bool = True) -> None:
        self.checkpoints = checkpoints
        self.final = final

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Start to take part in saving checkpoints.

        Raises:
            ConfigError: for a module that is no PolicyModule.
        """
        if not isinstance(pl_module, PolicyModule):
            raise ConfigError(f"HFExport exports a PolicyModule, not {type(pl_module).__name__}")
        if self.checkpoints and stage == "fit" and not isinstance(trainer.strategy.checkpoint_io, _ExportingIO):
            trainer.strategy.checkpoint_io = _ExportingIO(trainer.strategy.checkpoint_io, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the final policy."""
        folder = trainer.log_dir or trainer.default_root_dir  # asked on all ranks: it is broadcast
        if self.final and trainer.is_global_zero:
            export(cast(PolicyModule, pl_module), Path(folder) / "hf")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take part no longer."""
        if isinstance(io := trainer.strategy.checkpoint_io, _ExportingIO):
            trainer.strategy.checkpoint_io = io.inner


class _ExportingIO(CheckpointIO):
    """Passes everything on, and exports what is saved. The strategy calls it on rank zero only."""

    def __init__(self, inner: CheckpointIO, module: PolicyModule) -> None:
        self.inner = inner
        self.module = module

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        self.inner.save_checkpoint(checkpoint, path, storage_options)
        if (folder := export_folder(path)) is None:
            rank_zero_warn(f"no export beside {path}: exports are written to local folders only")
        else:
            export(self.module, folder)

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self.inner.load_checkpoint(path, *args, **kwargs)

    def remove_checkpoint(self, path: str | Path) -> None:
        self.inner.remove_checkpoint(path)
        if (folder := export_folder(path)) is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def teardown(self) -> None:
        self.inner.teardown()


def export_folder(checkpoint: str | Path) -> Path | None:
    """Return where the export of a checkpoint is: ``x/epoch=1.hf`` for ``x/epoch=1.ckpt``; None for remote ones."""
    if "://" in str(checkpoint):
        return None
    path = Path(checkpoint)
    # Not with_suffix: names such as "reward=0.5" without .ckpt would lose their end.
    return path.with_name(path.name.removesuffix(".ckpt") + ".hf")


def export(module: PolicyModule, folder: Path) -> None:
    """Write the policy into ``folder``, in place of what is there."""
    if any(isinstance(parameter, DTensor) for parameter in module.model.parameters()):
        rank_zero_warn(f"no export to {folder}: the policy is sharded over ranks; gather it first")
        return
    written, replaced = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for left_over in (written, replaced):  # of a run that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    save_policy(module.model, module.tokenizer, written)
    if folder.exists():  # a folder that is not empty cannot be replaced in one step
        folder.replace(replaced)
    written.replace(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    rank_zero_info(f"exported the policy to {folder}")
