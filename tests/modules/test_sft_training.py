"""The supervised stage: which tokens are learnt, what they weigh, and that it learns and resumes."""

from __future__ import annotations

import functools

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from slca_lightning.datamodules.sft import SFTDataModule
from slca_lightning.models.loading import LoRA
from slca_lightning.modules import SFTModule
from slca_lightning.tasks.toolworld import ToolWorldDemonstrations


class Steps(Callback):
    def __init__(self):
        self.gradients, self.rows, self.losses = [], [], []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.gradients.append([p.grad.clone() for p in pl_module.model.parameters()])

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.rows += [tuple(row.tolist()) for row in batch.input_ids]

    def on_train_epoch_end(self, trainer, pl_module):
        self.losses.append(float(trainer.callback_metrics["train/sft_loss"]))


def data(lab, size=8, **options):
    return SFTDataModule(str(lab.path), ToolWorldDemonstrations(size), **{"batch_size": 4, **options})


def fit(lab, source, ckpt_path=None, lora=None, **options):
    steps = Steps()
    optimizer = functools.partial(torch.optim.AdamW, lr=1e-2)
    module = SFTModule(str(lab.path), optimizer=optimizer, lora=lora)
    trainer = lab.bare_trainer([steps], **options)
    trainer.fit(module, source, ckpt_path=ckpt_path, weights_only=True)
    return trainer, module, steps


def negative_log_likelihoods(module, ids, mask):
    """One demonstration by the model's own forward pass: nothing of the package but the mask."""
    ids = torch.tensor([ids])
    with torch.no_grad():
        logprobs = module.model(input_ids=ids).logits.log_softmax(-1)
    return [-float(logprobs[0, t - 1, ids[0, t]]) for t in range(1, ids.shape[1]) if mask[t]]


def test_the_loss_is_that_of_the_assistants_tokens(lab):
    source = data(lab, batch_size=8)
    source.setup()
    module = SFTModule(str(lab.path))
    module.configure_model()
    (batch,) = source.train_dataloader()
    module.log = lambda *args, **options: logged.update({args[0]: (args[1], options["batch_size"])})
    logged = {}
    loss = module.training_step(batch, 0)
    values = [v for one in source._train for v in negative_log_likelihoods(module, *one)]
    # The whole set is one batch, whose denominator is then exactly its number of tokens.
    assert float(loss) == pytest.approx(sum(values) / len(values), rel=1e-5)
    assert logged["train/sft_loss"] == (pytest.approx(float(loss)), len(values))


def test_every_token_weighs_the_same(lab):
    """One batch of eight or four of two: the gradient of the step is the same."""
    *_, whole = fit(lab, data(lab, batch_size=8))
    *_, parts = fit(lab, data(lab, batch_size=2), accumulate_grad_batches=4)
    assert len(whole.gradients) == len(parts.gradients) == 1
    for one, other in zip(whole.gradients[0], parts.gradients[0], strict=True):
        # The same float32 terms, summed in another order.
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_training_lowers_the_loss(lab):
    source = data(lab, size=24, val_demonstrations=ToolWorldDemonstrations(4, split="test"))
    trainer, _, steps = fit(lab, source, max_epochs=4)
    assert steps.losses[-1] < 0.8 * steps.losses[0]
    assert float(trainer.callback_metrics["val/sft_loss"]) < 0.8 * steps.losses[0]


def test_a_resumed_run_is_an_unbroken_run(lab):
    straight, module, steps = fit(lab, data(lab, size=10), max_epochs=4)
    first, *_ = fit(lab, data(lab, size=10), max_epochs=2)
    path = lab.folder / "two.ckpt"
    first.save_checkpoint(path)
    resumed, again, rest = fit(lab, data(lab, size=10), ckpt_path=path, max_epochs=4)
    assert rest.rows == steps.rows[20:]
    assert steps.rows[:10] != steps.rows[10:20]
    for name, value in module.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    ours, theirs = (t.optimizers[0].state_dict()["state"] for t in (straight, resumed))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key][name], theirs[key][name]) for key in ours for name in ours[key])
    assert torch.load(path, weights_only=True)["state_dict"].keys() == module.state_dict().keys()


@pytest.mark.parametrize("lora", [None, LoRA(rank=2, target_modules=["q_proj"])])
def test_a_checkpoint_loads_by_itself(lab, lora):
    trainer, module, _ = fit(lab, data(lab), lora=lora) if lora is None else fit_adapter(lab, lora)
    trainer.save_checkpoint(lab.folder / "one.ckpt")
    loaded = SFTModule.load_from_checkpoint(lab.folder / "one.ckpt", weights_only=True)
    assert loaded.lora == lora
    for name, value in module.model.state_dict().items():
        assert torch.equal(value, loaded.model.state_dict()[name]), name


def fit_adapter(lab, lora):
    module = SFTModule(str(lab.path), lora=lora)
    trainer = lab.bare_trainer([])
    trainer.fit(module, data(lab))
    return trainer, module, None
