"""What an optimiser step is made of: the loss, its denominator, old and reference log-probabilities."""

from __future__ import annotations

import functools
from unittest.mock import patch

import pytest
import torch

from slca_lightning.callbacks import SegmentAdvantage, WeightSync
from slca_lightning.functional import segment_masks
from slca_lightning.models.loading import LoRA
from slca_lightning.rewards import HierR, RuleJudge


def equal(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], **tolerance)


def run(lab, micro, accumulate, **options):
    recorder = lab.Recorder()
    module = lab.module(**options.pop("module", {}))
    data = lab.data(tasks_per_epoch=4, group_size=8, micro_batch_size=micro, **options.pop("data", {}))
    lab.trainer([recorder], accumulate_grad_batches=accumulate, **options).fit(module, data)
    recorder.weights = {name: p.detach() for name, p in module.model.named_parameters()}
    return recorder


def test_the_loss_knows_no_micro_batches(lab):
    whole, eight, four = (run(lab, *sizes) for sizes in ((32, 1), (8, 4), (4, 8)))
    assert torch.cat([g.flatten() for g in whole.gradients[0].values()]).norm() > 1e-3
    for other in (eight, four):
        assert len(other.gradients) == 1
        # The same float32 terms, summed in another order and in padded matrices of other shapes.
        equal(other.gradients[0], whole.gradients[0], rtol=1e-3, atol=1e-6)
        equal(other.weights, whole.weights, rtol=1e-4, atol=1e-6)
        # The loss itself is near 0 at ratio 1 (advantages sum to about nothing), so the tolerance is absolute.
        assert other.logged[0]["train/loss"] == pytest.approx(whole.logged[0]["train/loss"], abs=1e-5)
        for name in ("train/kl", "train/entropy", "train/grad_norm"):
            assert other.logged[0][name] == pytest.approx(whole.logged[0][name], rel=1e-4, abs=1e-7)


def test_the_loss_is_the_formula(lab):
    recorder = run(lab, 8, 4)
    collection = recorder.collections[0]
    tokens = collection.loss_mask.sum()
    # Ratio 1 and KL 0 in the first update: what is left is the mean advantage.
    expected = -(collection.advantages * collection.loss_mask).sum() / tokens
    assert abs(float(expected)) > 1e-3
    assert recorder.logged[0]["train/loss"] == pytest.approx(float(expected), rel=1e-4)
    assert collection.denominators.tolist() == [float(tokens)]


@pytest.mark.parametrize("estimator", ["slca", "grpo"])
def test_the_summary_reward_moves_no_tool_token(lab, estimator):
    def tool_advantages(judge):
        recorder = lab.Recorder()
        data = lab.data(tasks_per_epoch=4, group_size=8, micro_batch_size=8, reward=HierR(judge, min_summary_chars=0))
        trainer = lab.bare_trainer([WeightSync(1e9), SegmentAdvantage(estimator), recorder])
        trainer.fit(lab.module(), data)
        (collection,) = recorder.collections
        tool, summary = segment_masks(collection.policy_mask, collection.run_has_call)
        return collection, collection.advantages[tool], collection.advantages[summary]

    plain, tool, summary = tool_advantages(RuleJudge())
    noisy, noisy_tool, noisy_summary = tool_advantages(RuleJudge(noise=1.0))
    assert [r.response_ids for r in plain.rollouts] == [r.response_ids for r in noisy.rollouts]
    assert [r.summary for r in plain.rewards] != [r.summary for r in noisy.rewards]
    assert tool.abs().max() > 0.1
    assert not torch.equal(summary, noisy_summary)
    assert torch.equal(tool, noisy_tool) == (estimator == "slca")


def test_rollouts_are_fresh(lab):
    recorder = lab.Recorder()
    data = lab.data(scripted=False)
    lab.trainer([recorder, Sharp()], max_epochs=4).fit(lab.module(), data)
    versions = [{r.weights_version for r in c.rollouts} for c in recorder.collections]
    assert versions == [{step} for step in recorder.steps_at_start]
    assert recorder.steps_at_start == [0, 2, 4, 6]
    assert [epoch for epoch, _ in recorder.batches] == [0, 0, 1, 1, 2, 2, 3, 3]
    for epoch, batch in recorder.batches:
        rollouts = recorder.collections[epoch].rollouts
        for row, index in enumerate(batch.indices.tolist()):
            wanted = (*rollouts[index].prompt_ids, *rollouts[index].response_ids)
            assert tuple(batch.input_ids[row][batch.attention_mask[row].bool()].tolist()) == wanted
    for epoch in range(4):
        indices = [i for e, batch in recorder.batches if e == epoch for i in batch.indices.tolist()]
        assert sorted(indices) == list(range(8))


def test_tokens_are_scored_once_before_the_first_update(lab):
    recorder, ratios, calls = lab.Recorder(), [], []
    module = lab.module(optimizer=functools.partial(torch.optim.SGD, lr=5.0))
    score = type(module)._logprobs

    def counted(self, model, batch):
        calls.append(("reference" if model is self.reference else "policy", self.global_step))
        return score(self, model, batch)

    from slca_lightning.modules import slca

    clip = slca.ppo_clip

    def recorded(logprobs, old, *args, **options):
        ratios.append((logprobs - old).detach().exp())
        return clip(logprobs, old, *args, **options)

    with patch.object(type(module), "_logprobs", counted), patch.object(slca, "ppo_clip", recorded):
        # 4 micro-batches, two to an update: two updates on one collection
        data = lab.data(scripted=False, micro_batch_size=2)
        lab.trainer([recorder, Sharp()], accumulate_grad_batches=2).fit(module, data)
    assert len(recorder.gradients) == 2
    assert calls == [("policy", 0), ("reference", 0)] * 4
    (collection,) = recorder.collections
    mask = collection.policy_mask
    # The engine decodes with a cache, token by token, in other shapes than the scoring pass: float32 rounding.
    torch.testing.assert_close(collection.old_logprobs[mask], collection.sampling_logprobs[mask], rtol=0, atol=1e-4)
    assert collection.old_logprobs[~mask].abs().sum() == 0
    # The same forward pass on the same batch and weights.
    assert all((ratio - 1).abs().max() < 1e-6 for ratio in ratios[:2])
    assert max((ratio - 1).abs().max() for ratio in ratios[2:]) > 1e-3


class Sharp(SegmentAdvantage):
    """Advantages that are never all zero, as those of a random policy are."""

    def on_rollouts(self, trainer, pl_module, collection):
        signs = torch.tensor([1.0, -1.0]).repeat(len(collection) // 2)
        collection.advantages = signs[:, None] * collection.policy_mask


def test_divergence_is_nothing_at_first_and_grows(lab):
    recorder = lab.Recorder()
    module = lab.module(optimizer=functools.partial(torch.optim.SGD, lr=1.0), kl_coef=0.01)
    lab.trainer([recorder, Sharp()], max_epochs=2, accumulate_grad_batches=2).fit(module, lab.data())
    # The reference is a copy, scored by the same forward pass: not even rounding differs.
    assert abs(recorder.logged[0]["train/kl"]) < 1e-6
    assert recorder.logged[1]["train/kl"] > 1e-5


def test_no_divergence_wanted_no_reference_kept(lab):
    recorder, module = lab.Recorder(), lab.module(kl_coef=0.0)
    lab.trainer([recorder]).fit(module, lab.data())
    assert module.reference is None
    assert "train/kl" not in recorder.logged[0]
    assert recorder.collections[0].reference_logprobs.abs().sum() == 0


def test_an_adapter_leaves_the_policy_as_it_was(lab):
    recorder = lab.Recorder()
    module = lab.module(lora=LoRA(rank=2), kl_coef=0.01, optimizer=functools.partial(torch.optim.SGD, lr=1.0))
    module.configure_model()
    policy = module.policy
    module.configure_model()
    assert module.policy is policy
    before = {name: p.detach().clone() for name, p in module.model.named_parameters()}
    lab.trainer([recorder, Sharp()], max_epochs=2).fit(module, lab.data())
    assert module.policy is policy
    assert module.reference is None
    for name, parameter in module.model.named_parameters():
        assert parameter.requires_grad == ("lora_" in name)
        if "lora_B" in name:
            assert not torch.equal(parameter, before[name]), name
        elif "lora_" not in name:
            assert torch.equal(parameter, before[name]), name
    assert set(recorder.gradients[0]) == {name for name in before if "lora_" in name}
    first, second = recorder.collections
    assert torch.equal(first.old_logprobs, first.reference_logprobs)  # a fresh adapter adds exact zeros
    assert not torch.equal(second.old_logprobs, second.reference_logprobs)


def test_configure_model_twice_changes_nothing(lab):
    module = lab.module()
    module.configure_model()
    policy, reference = module.policy, module.reference
    module.configure_model()
    assert (module.policy, module.reference) == (policy, reference)
    assert all(not p.requires_grad for p in reference.parameters())


def test_clipping_and_schedule_are_the_trainers(lab):
    class Watch(lab.Recorder):
        def __init__(self):
            super().__init__()
            self.rates = []

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    watch = Watch()
    module = lab.module(
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        lr_scheduler=functools.partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: 0.5**step),
    )
    module.configure_model()
    before = [p.detach().clone() for p in module.model.parameters()]
    trainer = lab.trainer([watch, Sharp()], accumulate_grad_batches=2, gradient_clip_val=1e-3)
    trainer.fit(module, lab.data(micro_batch_size=4))
    moved = [p.detach() - old for p, old in zip(module.model.parameters(), before, strict=True)]
    assert trainer.global_step == 1
    assert watch.logged[0]["train/grad_norm"] > 1e-2  # logged before clipping
    # SGD at learning rate 1 moves by the clipped gradient; the weights' own rounding is 1e-8 each.
    assert float(torch.nn.utils.get_total_norm(moved)) == pytest.approx(1e-3, rel=1e-2)
    assert watch.rates == [1.0, 0.5]  # once for the one optimiser step, not for the first micro-batch


def test_two_schedule_steps_in_two_updates(lab):
    module = lab.module(lr_scheduler=functools.partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda s: 0.5**s))
    trainer = lab.trainer(max_epochs=1)
    trainer.fit(module, lab.data(micro_batch_size=4))
    assert trainer.global_step == 2
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.25)
