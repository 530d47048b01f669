"""What is not finite stops the run; what failed leaves the loss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from slca_lightning.callbacks import SegmentAdvantage, WeightSync
from slca_lightning.errors import EngineError, JudgeError, NonFiniteError, SimulatorError
from slca_lightning.functional import segment_masks
from slca_lightning.hooks import RolloutCallback
from slca_lightning.rewards import HierR, RuleJudge
from slca_lightning.simulation import Backend, Simulator


class Break(RolloutCallback):
    """Spoils a weight, or a weight's gradient, in the second epoch."""

    def __init__(self, what):
        self.what = what

    def on_collection_ready(self, trainer, pl_module, collection):
        if trainer.current_epoch == 1:
            weight = next(iter(pl_module.model.parameters()))
            if self.what == "weight":
                weight.data.fill_(float("nan"))
            else:
                weight.register_hook(lambda gradient: gradient * float("inf"))


@pytest.mark.parametrize(
    ("what", "message"),
    [("weight", "the loss of epoch 1 micro-batch 0 is nan"), ("gradient", "the gradient of epoch 1 step 1 has norm")],
)
def test_what_is_not_finite_stops_the_run(lab, what, message):
    module = lab.module()
    with pytest.raises(NonFiniteError, match=message) as caught:
        lab.trainer([Break(what)], max_epochs=3, accumulate_grad_batches=2).fit(module, lab.data())
    path = Path(re.search(r"saved in (\S+\.pt)", str(caught.value))[1])
    assert path.is_relative_to(lab.folder)
    saved = torch.load(path, weights_only=True)
    assert len(saved) == (1 if what == "weight" else 2)
    for batch in saved:
        assert batch["input_ids"].shape == batch["advantages"].shape
        assert batch["indices"].shape == (4,)
    if what == "gradient":
        assert "embed_tokens" in str(caught.value)  # the parameter at fault
        assert all(p.isfinite().all() for p in module.model.parameters())  # no step was made


def test_a_learning_rate_that_explodes_is_noticed(lab):
    module = lab.module(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e38))
    with pytest.raises(NonFiniteError, match="epoch 0"):
        lab.trainer([Signs()], max_epochs=3).fit(module, lab.data())


class Signs(SegmentAdvantage):
    def on_rollouts(self, trainer, pl_module, collection):
        super().on_rollouts(trainer, pl_module, collection)
        signs = torch.tensor([1.0, -1.0]).repeat(len(collection) // 2)
        collection.advantages = signs[:, None] * collection.policy_mask


class Moody(RuleJudge):
    """Fails for every text of member 1."""

    async def rate(self, request):
        if "answer is 1" in request.final_text or "answer is 0" in request.final_text:
            raise JudgeError("no answer")
        return await super().rate(request)


class Broken(Backend):
    async def answer(self, request):
        raise SimulatorError("down")


def fit(lab, data, callbacks=(), estimator="slca", **options):
    recorder, module = lab.Recorder(), lab.module()
    trainer = lab.bare_trainer([WeightSync(1e9), SegmentAdvantage(estimator), *callbacks, recorder], **options)
    trainer.fit(module, data)
    (collection,) = recorder.collections
    assert len(recorder.batches) == trainer.num_training_batches == 2  # whatever failed
    assert all(p.isfinite().all() for p in module.model.parameters())
    used = sum(int(batch.policy_mask.sum()) for _, batch in recorder.batches)
    assert used == int(collection.loss_mask.sum())
    # Denominators hold the tokens of their own micro-batches; where there are none, 1 instead of 0.
    per_update = 2 // len(collection.denominators)
    sizes = [int(batch.policy_mask.sum()) for _, batch in recorder.batches]
    updates = [sum(sizes[i : i + per_update]) for i in range(0, 2, per_update)]
    assert collection.denominators.tolist() == [max(size, 1) for size in updates]
    return collection, recorder, module


@pytest.mark.parametrize("estimator", ["slca", "grpo", "toolpo"])
def test_a_failed_judge_takes_out_what_it_would_have_rated(lab, estimator):
    data = lab.data(reward=HierR(Moody(), min_summary_chars=0), max_failed_fraction=1.0)
    collection, *_ = fit(lab, data, estimator=estimator, accumulate_grad_batches=2)
    tool, summary = segment_masks(collection.policy_mask, collection.run_has_call)
    failed = torch.tensor([reward.summary.is_failed for reward in collection.rewards])
    with_tool = failed & tool.any(dim=1)
    assert with_tool.any()
    assert not failed.all()
    assert not collection.loss_mask[summary & failed[:, None]].any()
    assert torch.equal(collection.loss_mask[~failed], collection.policy_mask[~failed])
    # grpo has one reward for all, and of these rollouts it has none; slca still knows how the calls were.
    kept = collection.loss_mask[tool & failed[:, None]]
    assert not kept.any() if estimator == "grpo" else kept.all()


def test_a_failed_simulator_takes_out_the_rollout(lab):
    data = lab.data(simulator=Simulator(Broken()), max_failed_fraction=1.0)
    collection, *_ = fit(lab, data, accumulate_grad_batches=2)
    failed = torch.tensor([rollout.finish_reason == "failed" for rollout in collection.rollouts])
    assert 0 < int(failed.sum()) < len(failed)
    assert torch.equal(collection.loss_mask, collection.policy_mask & ~failed[:, None])


def test_an_update_of_failures_alone_is_no_update(lab):
    data = lab.data(fails=lambda task, member, turn: task == 0, max_failed_fraction=0.5)
    collection, recorder, _ = fit(lab, data)  # two updates: one a task
    assert collection.denominators[0] == 1.0
    assert collection.denominators[1] > 1.0
    assert recorder.losses[0] == 0.0
    assert all(not g.any() for g in recorder.gradients[0].values())
    assert any(g.any() for g in recorder.gradients[1].values())


def test_failures_everywhere_before_the_first_token(lab):
    data = lab.data(fails=lambda *_: True, max_failed_fraction=1.0)
    collection, recorder, _ = fit(lab, data)
    assert not collection.policy_mask.any()
    assert recorder.losses == [0.0, 0.0]


def test_too_many_failures_stop_the_run(lab):
    def two_of_eight(task, member, turn):
        return task == 0 and member < 2 and turn == (member + 1) % 2

    fit(lab, lab.data(fails=two_of_eight, max_failed_fraction=0.25))
    data = lab.data(fails=two_of_eight, max_failed_fraction=0.24)
    with pytest.raises(EngineError, match=r"2 of 8 rollouts failed.* 0\.24; the first: engine: the script says so"):
        fit(lab, data)
