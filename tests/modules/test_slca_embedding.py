"""Validation, and use in someone else's Lightning script."""

from __future__ import annotations

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader, Dataset

from slca_lightning.hooks import RolloutCallback, RolloutSource
from slca_lightning.metrics.values import rollout_values
from slca_lightning.models.loading import load_tokenizer
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.collection import Collection, micro_batches
from slca_lightning.rollout.collector import ScoredRollout
from slca_lightning.tasks.toolworld import ToolWorldTasks
from slca_lightning.types import ProcessReward, RewardBreakdown, Rollout, Score, Turn


class Validations(RolloutCallback):
    def __init__(self):
        self.scored, self.metrics, self.current = [], [], []

    def on_validation_rollouts(self, trainer, pl_module, scored):
        self.current += scored

    def on_validation_end(self, trainer, pl_module):
        self.scored.append(self.current)
        self.current = []
        self.metrics.append({n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith("val/")})


def test_each_validation_task_once(lab):
    seen, tasks = Validations(), ToolWorldTasks("test", size=5)
    data = lab.data(scripted=False, val_tasks=tasks, val_batch_size=2)
    # Learning rate 0: the weights stay, so the two validations have to agree.
    module = lab.module(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    lab.trainer([seen], max_epochs=2, num_sanity_val_steps=-1).fit(module, data)
    assert len(seen.scored) == 3
    wanted = [tasks[i].task_id for i in range(5)]
    for scored, metrics in zip(seen.scored, seen.metrics, strict=True):
        assert [one.rollout.task.task_id for one in scored] == wanted
        tokens = [[r.response_ids, r.logprobs] for r in (one.rollout for one in scored)]
        assert tokens == [[r.response_ids, r.logprobs] for r in (one.rollout for one in seen.scored[0])]
        rows = [rollout_values(one.rollout, one.reward) for one in scored]
        for name in ("process", "omission", "response_tokens", "truncation", "success@0.9", "failed"):
            values = [row[name] for row in rows if row[name] is not None]
            assert metrics[f"val/{name}"] == pytest.approx(sum(values) / len(values), rel=1e-6)  # logged in float32
        lengths = [len(one.rollout.response_ids) for one in scored]
        assert metrics["val/response_tokens"] == pytest.approx(sum(lengths) / 5)


def test_validate_and_test_alone(lab):
    data = lab.data(scripted=False, val_tasks=ToolWorldTasks("test", size=2))
    trainer = lab.trainer()
    module = lab.module()
    (validated,) = trainer.validate(module, data, verbose=False)
    (tested,) = trainer.test(module, data, verbose=False)
    assert validated == tested
    assert validated["val/failed"] == 0.0


def test_describing_a_data_module_makes_no_rollouts(lab):
    data = lab.data(val_tasks=ToolWorldTasks("test", size=2))
    assert "RolloutDataModule" in repr(data)
    data.setup()
    text = str(data)
    assert "Train dataloader" in text
    repr(data)
    assert not data.engine.order
    assert lab.data().val_dataloader() == []


class Batches(Dataset):
    def __init__(self, source):
        self.source = source

    def __len__(self):
        return 2

    def __getitem__(self, index):
        collection, pad_id = self.source.collection, self.source.tokenizer.pad_token_id
        return collection.batch(self.source.batches[index], pad_id, collection.denominators[index])


class Mine(LightningDataModule):
    """A user's own source: a hand-made collection, no RolloutDataModule anywhere."""

    temperature = 1.0

    def __init__(self, path, engine):
        super().__init__()
        self.engine, self.tokenizer = engine, load_tokenizer(str(path))
        self.collection, self.batches = None, []

    def train_dataloader(self):
        return DataLoader(Batches(self), batch_size=None)

    def collect(self, epoch, on_scored=None):
        task, chat = ToolWorldTasks(size=1)[0], ChatRenderer(self.tokenizer)
        scored = []
        for member, text in enumerate(("Hello Ann.", "Good day.", "No.", "Yes, of course.")):
            ids = (*chat.encode(text), chat.end_of_turn_id)
            size = len(ids)
            rollout = Rollout(
                task=task,
                member=member,
                weights_version=0,
                prompt_ids=tuple(chat.prompt_ids(task)),
                response_ids=ids,
                policy_mask=(True,) * size,
                logprobs=(-1.0,) * size,
                turns=(Turn(text, 0, size, has_call=False),),
                finish_reason="stop",
            )
            process = ProcessReward(0, 0, 0, 0, 0, 0, omission=0)
            score = Score(float(member))
            scored.append(ScoredRollout(rollout, RewardBreakdown(process, score, score, score)))
            if on_scored is not None:
                on_scored(scored[-1])
        return Collection.of(scored)

    def train_on(self, collection, num_updates):
        self.collection, self.batches = collection, micro_batches(collection, 2, num_updates)
        return self.batches

    def validate_on(self, indices, on_scored=None):
        return []


class MyAdvantage(RolloutCallback):
    def __init__(self):
        self.told = 0

    def on_rollout_scored(self, trainer, pl_module, scored):
        self.told += 1

    def on_rollouts(self, trainer, pl_module, collection):
        rewards = torch.tensor(collection.reward_columns()["reward_total"])
        collection.advantages = (rewards - rewards.mean())[:, None] * collection.policy_mask


def test_in_a_plain_lightning_script(lab):
    data, mine, module = Mine(lab.path, lab.data().engine), MyAdvantage(), lab.module()
    assert isinstance(data, RolloutSource)
    module.configure_model()
    before = {name: value.clone() for name, value in module.model.state_dict().items()}
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=lab.folder,
        callbacks=[mine],
    )
    trainer.fit(module, data)
    assert trainer.global_step == 2
    assert mine.told == 4
    assert any(not torch.equal(value, before[name]) for name, value in module.model.state_dict().items())
