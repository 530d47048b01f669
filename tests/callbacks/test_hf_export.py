"""Exports: beside their checkpoints, with their weights, gone when they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from slca_lightning.callbacks import HFExport
from slca_lightning.callbacks.hf_export import export, export_folder
from slca_lightning.errors import ConfigError
from slca_lightning.hooks import RolloutCallback
from slca_lightning.modules.slca import SLCAModule
from slca_lightning.rollout.collection import Collection

Fit = Callable[..., Trainer]
PREFIX = "policy."


class PushAway(RolloutCallback):
    """Advantages that move the weights; those of a random policy are zero."""

    def on_rollouts(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        collection.advantages = collection.policy_mask.float()


def policy_state(checkpoint: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(checkpoint, weights_only=True)["state_dict"]
    return {name.removeprefix(PREFIX): value for name, value in state.items() if name.startswith(PREFIX)}


def assert_holds(folder: Path, state: dict[str, torch.Tensor]) -> None:
    loaded = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], value) for name, value in state.items())
    assert AutoTokenizer.from_pretrained(folder).chat_template


@pytest.fixture(scope="module")
def run(fit: Fit, policy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SLCAModule]:
    folder = tmp_path_factory.mktemp("export")
    module = SLCAModule(str(policy_path), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    steps = ModelCheckpoint(folder / "steps", every_n_train_steps=1, save_top_k=-1)
    latest = ModelCheckpoint(folder / "latest", save_last=True)  # keeps one, removes the earlier one
    callbacks: list[Any] = [PushAway(), HFExport(), steps, latest]
    fit(folder, callbacks, epochs=2, module=module, enable_checkpointing=True)
    return folder, module


def test_every_checkpoint_has_an_export_with_its_weights(run: tuple[Path, SLCAModule]) -> None:
    folder, _ = run
    checkpoints = sorted(folder.rglob("*.ckpt"))
    assert len(checkpoints) == 4 + 2
    for checkpoint in checkpoints:
        assert_holds(checkpoint.with_name(checkpoint.name.removesuffix(".ckpt") + ".hf"), policy_state(checkpoint))
    first, last = (policy_state(sorted((folder / "steps").glob("*.ckpt"))[i]) for i in (0, -1))
    assert any(not torch.equal(first[name], last[name]) for name in first)  # or the test says nothing


def test_an_export_goes_with_its_checkpoint(run: tuple[Path, SLCAModule]) -> None:
    folder, _ = run
    names = sorted(path.name for path in (folder / "latest").iterdir())
    assert names == ["epoch=1-step=4.ckpt", "epoch=1-step=4.hf", "last.ckpt", "last.hf"]


def test_the_final_policy_is_bit_identical(run: tuple[Path, SLCAModule]) -> None:
    folder, module = run
    assert_holds(folder / "hf", module.model.state_dict())


def test_nothing_half_written_is_left(run: tuple[Path, SLCAModule]) -> None:
    assert not list(run[0].rglob(".*"))


def test_both_can_be_switched_off(fit: Fit, tmp_path: Path) -> None:
    trainer = fit(
        tmp_path,
        [HFExport(checkpoints=False, final=False), ModelCheckpoint(tmp_path / "c")],
        enable_checkpointing=True,
    )
    assert list(tmp_path.rglob("*.ckpt"))
    assert not list(tmp_path.rglob("*hf"))
    trainer.save_checkpoint(tmp_path / "by_hand.ckpt")
    assert not (tmp_path / "by_hand.hf").exists()


def test_the_strategy_gets_its_io_back(fit: Fit, tmp_path: Path) -> None:
    trainer = fit(tmp_path, [HFExport(final=False)])
    assert type(trainer.strategy.checkpoint_io).__module__.startswith("lightning.")


def test_an_export_that_fails_leaves_the_old_one(
    policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = SLCAModule(str(policy_path), kl_coef=0.0)
    module.configure_model()
    export(module, tmp_path / "a.hf")
    before = {path.name: path.read_bytes() for path in (tmp_path / "a.hf").iterdir()}

    def full(policy: object, tokenizer: object, path: Path) -> None:
        path.mkdir()
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr("slca_lightning.callbacks.hf_export.save_policy", full)
        with pytest.raises(OSError, match="disk full"):
            export(module, tmp_path / "a.hf")
    assert {path.name: path.read_bytes() for path in (tmp_path / "a.hf").iterdir()} == before
    export(module, tmp_path / "a.hf")  # what the failed one left does not matter
    assert [path.name for path in tmp_path.iterdir()] == ["a.hf"]


def test_where_exports_go() -> None:
    assert export_folder("x/epoch=1-reward=0.5.ckpt") == Path("x/epoch=1-reward=0.5.hf")
    assert export_folder("x/reward=0.5") == Path("x/reward=0.5.hf")
    assert export_folder("s3://bucket/a.ckpt") is None


def test_other_modules_are_refused(tmp_path: Path) -> None:
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
        callbacks=[HFExport()],
        max_steps=1,
    )
    with pytest.raises(ConfigError, match="BoringModel"):
        trainer.fit(BoringModel())
