"""Checkpoints: N epochs, stop, resume, N more are 2N epochs, bit for bit."""

from __future__ import annotations

import functools
import shutil

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from slca_lightning.callbacks import SegmentAdvantage
from slca_lightning.errors import ConfigError
from slca_lightning.models.loading import LoRA
from slca_lightning.models.tiny import build_tiny_policy
from slca_lightning.modules import SLCAModule
from slca_lightning.tasks.toolworld import ToolWorldTasks

ADAMW = functools.partial(torch.optim.AdamW, lr=3e-3)


class Signs(SegmentAdvantage):
    """Advantages that are never all zero, as those of a random policy are."""

    def on_rollouts(self, trainer, pl_module, collection):
        signs = torch.tensor([1.0, -1.0]).repeat(len(collection) // 2)
        collection.advantages = signs[:, None] * collection.policy_mask


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def fit(lab, epochs, ckpt_path=None, callbacks=(), data=None, **options):
    recorder = lab.Recorder()
    module = lab.module(optimizer=ADAMW, **options.pop("module", {}))
    trainer = lab.trainer([Signs(), recorder, *callbacks], max_epochs=epochs, **options)
    trainer.fit(module, data or lab.data(scripted=False), ckpt_path=ckpt_path, weights_only=True)
    return trainer, module, recorder


@pytest.mark.parametrize("lora", [None, LoRA(rank=2)])
def test_a_resumed_run_is_an_unbroken_run(lab, lora):
    torch.manual_seed(0)  # of a fresh adapter
    straight, module, recorder = fit(lab, 4, module={"lora": lora})
    path = lab.folder / "two.ckpt"
    torch.manual_seed(0)
    first, half, _ = fit(lab, 2, module={"lora": lora})
    first.save_checkpoint(path)
    resumed, again, rest = fit(lab, 4, ckpt_path=path, module={"lora": lora})
    assert len(rest.collections) == 2
    for ours, theirs in zip(rest.collections, recorder.collections[2:], strict=True):
        assert ours.rollouts == theirs.rollouts
        assert torch.equal(ours.old_logprobs, theirs.old_logprobs)
    assert {r.weights_version for r in rest.collections[0].rollouts} == {4}
    assert same(module.state_dict(), again.state_dict())
    assert not same(module.state_dict(), half.state_dict())
    assert same(straight.optimizers[0].state_dict(), resumed.optimizers[0].state_dict())


@pytest.mark.parametrize("with_validation", [False, True])
def test_lightnings_own_checkpoints_resume_as_well(lab, with_validation):
    """Those are saved inside of the loops: at the end of a training epoch, or of the validation after it."""
    val = {"val_tasks": ToolWorldTasks("test", size=2)} if with_validation else {}

    def go(epochs, folder, ckpt_path=None):
        keep = ModelCheckpoint(folder, save_last=True, save_top_k=-1, filename="{epoch}")
        data = lab.data(scripted=False, **val)
        return fit(lab, epochs, ckpt_path, [keep], data, enable_checkpointing=True)

    _, module, recorder = go(3, lab.folder / "a")
    _, again, rest = go(3, lab.folder / "b", lab.folder / "a" / "epoch=0.ckpt")
    assert len(rest.collections) == 2
    assert [c.rollouts for c in rest.collections] == [c.rollouts for c in recorder.collections[1:]]
    assert same(module.state_dict(), again.state_dict())


def test_the_middle_of_an_epoch_is_refused(lab):
    keep = ModelCheckpoint(lab.folder / "mid", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    fit(lab, 1, callbacks=[keep], enable_checkpointing=True)
    with pytest.raises(ConfigError, match="end of an epoch"):
        fit(lab, 2, ckpt_path=lab.folder / "mid" / "step=1.ckpt")


def test_what_a_checkpoint_holds(lab):
    trainer, module, _ = fit(lab, 1)
    path = lab.folder / "one.ckpt"
    trainer.save_checkpoint(path)
    content = torch.load(path, weights_only=True)
    assert all(name.startswith("policy.") for name in content["state_dict"])
    assert module.reference is not None
    plain = (str, int, float, bool, type(None))
    assert content["hyper_parameters"]
    assert all(isinstance(value, plain) for value in content["hyper_parameters"].values())
    loaded = SLCAModule.load_from_checkpoint(path, weights_only=True)
    assert same(loaded.model.state_dict(), module.model.state_dict())
    assert same(loaded.reference.state_dict(), module.reference.state_dict())
    assert not same(loaded.reference.state_dict(), module.model.state_dict())


def test_a_checkpoint_of_an_adapter_loads_by_itself(lab):
    trainer, module, _ = fit(lab, 1, module={"lora": LoRA(rank=2)})
    trainer.save_checkpoint(lab.folder / "lora.ckpt")
    loaded = SLCAModule.load_from_checkpoint(lab.folder / "lora.ckpt", weights_only=True)
    assert loaded.lora == LoRA(rank=2)
    assert same(loaded.model.state_dict(), module.model.state_dict())


@pytest.mark.parametrize(("change", "message"), [("tokenizer", "another tokenizer"), ("weights", "the reference of")])
def test_a_checkpoint_belongs_to_its_model(lab, change, message):
    home = lab.folder / "model"
    shutil.copytree(lab.path, home)
    trainer, *_ = fit(lab, 1, module={"model_path": home})
    path = lab.folder / "one.ckpt"
    trainer.save_checkpoint(path)
    if change == "tokenizer":
        build_tiny_policy(home, hidden_size=32, num_layers=1, vocab_size=1000)
    else:
        build_tiny_policy(home, tokenizer_path=lab.path, hidden_size=32, num_layers=1, seed=1)
    with pytest.raises(ConfigError, match=message):
        fit(lab, 2, ckpt_path=path, module={"model_path": home})
