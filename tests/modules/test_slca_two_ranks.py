"""Two processes share the groups of an epoch, and make the step that one process makes."""

from __future__ import annotations

import pytest
import torch

from slca_lightning.hooks import RolloutCallback
from slca_lightning.rewards import HierR, RuleJudge
from slca_lightning.tasks.toolworld import ToolWorldTasks


class Write(RolloutCallback):
    """Leaves in a file what a process did: nothing else comes back from it."""

    def __init__(self, folder):
        self.folder = folder
        self.groups, self.rows, self.validated, self.losses = [], [], [], []

    def on_collection_ready(self, trainer, pl_module, collection):
        self.groups.append(collection.groups)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.rows += [(trainer.current_epoch, index) for index in batch.indices.tolist()]

    def on_validation_rollouts(self, trainer, pl_module, scored):
        self.validated += [one.rollout.group for one in scored]

    def on_train_epoch_end(self, trainer, pl_module):
        self.losses.append(float(trainer.callback_metrics["train/loss"]))

    def on_train_end(self, trainer, pl_module):
        notes = {"groups": self.groups, "rows": self.rows, "validated": self.validated, "losses": self.losses}
        notes |= {"steps": trainer.global_step, "weights": pl_module.model.state_dict()}
        self.folder.mkdir(exist_ok=True)
        torch.save(notes, self.folder / f"{trainer.global_rank}.pt")


def test_two_ranks_make_the_steps_of_one(lab):
    def run(name, micro_batch_size, **options):
        data = lab.data(
            tasks_per_epoch=4,
            micro_batch_size=micro_batch_size,
            val_tasks=ToolWorldTasks(size=3),
            val_batch_size=1,
            reward=HierR(RuleJudge(), min_summary_chars=0),
        )
        folder = lab.folder / name
        lab.trainer([Write(folder)], max_epochs=2, **options).fit(lab.module(), data)
        return [torch.load(path, weights_only=True) for path in sorted(folder.iterdir())]

    # Forked, not spawned: another process could not import this file.
    first, second = run("two", 4, accumulate_grad_batches=2, devices=2, strategy="ddp_fork")
    (alone,) = run("one", 16)
    assert first["steps"] == second["steps"] == alone["steps"] == 2
    for ours, theirs, whole in zip(first["groups"], second["groups"], alone["groups"], strict=True):
        assert not set(ours) & set(theirs)  # a group never leaves its rank
        assert set(ours) | set(theirs) == set(whole)
    for one in (first, second):  # each trains on all of its own, once
        assert sorted(one["rows"]) == [(epoch, index) for epoch in range(2) for index in range(8)]
    assert sorted(first["validated"] + second["validated"]) == sorted(alone["validated"])
    # The loss is near 0 at ratio 1 (advantages sum to about nothing), so the tolerance is absolute.
    assert first["losses"] == second["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    for name, value in alone["weights"].items():
        # The same float32 terms, summed in another order.
        torch.testing.assert_close(first["weights"][name], value, rtol=1e-4, atol=1e-6)
        assert torch.equal(first["weights"][name], second["weights"][name])
