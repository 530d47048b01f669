"""What a user can get wrong, and what the message says."""

from __future__ import annotations

import dataclasses

import pytest
from lightning.pytorch import LightningDataModule

from slca_lightning.callbacks import SegmentAdvantage, WeightSync
from slca_lightning.errors import ConfigError, DataError, EngineError
from slca_lightning.modules import SFTModule, SLCAModule
from slca_lightning.tasks.base import TaskSource
from slca_lightning.tasks.toolworld import ToolWorldTasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_size": 1}, "group_size must be at least 2, got 1"),
        ({"tasks_per_epoch": 0}, "at least 1"),
        ({"micro_batch_size": 0}, "at least 1"),
        ({"temperature": 0.0}, "temperature"),
        ({"max_failed_fraction": 1.5}, "max_failed_fraction"),
    ],
)
def test_numbers_of_the_data_module(lab, options, message):
    with pytest.raises(ConfigError, match=message):
        lab.data(**options)


@pytest.mark.parametrize("options", [{"clip_low": 1.0}, {"clip_low": -0.1}, {"clip_high": -0.1}, {"kl_coef": -1.0}])
def test_numbers_of_the_module(lab, options):
    with pytest.raises(ConfigError, match="clip_low"):
        lab.module(**options)


def test_micro_batches_have_to_divide_the_epoch(lab):
    with pytest.raises(ConfigError, match="micro_batch_size = 3 does not divide the 8 rollouts"):
        lab.trainer().fit(lab.module(), lab.data(micro_batch_size=3))


def test_accumulation_has_to_divide_the_epoch(lab):
    data = lab.data(micro_batch_size=2)
    with pytest.raises(ConfigError, match="accumulate_grad_batches = 3"):
        lab.trainer(accumulate_grad_batches=3).fit(lab.module(), data)
    assert not data.engine.order  # said before minutes of rollouts


@pytest.mark.parametrize("cut", [{"limit_train_batches": 1}, {"fast_dev_run": True}, {"overfit_batches": 1}])
def test_an_epoch_cannot_be_cut(lab, cut):
    with pytest.raises(ConfigError, match="limit_train_batches"):
        lab.trainer(**cut).fit(lab.module(), lab.data())


def test_without_advantages(lab):
    with pytest.raises(ConfigError, match="SegmentAdvantage"):
        lab.bare_trainer([WeightSync()]).fit(lab.module(), lab.data())


def test_without_weights(lab):
    with pytest.raises(EngineError, match="WeightSync"):
        lab.bare_trainer([SegmentAdvantage()]).fit(lab.module(), lab.data(scripted=False))


def test_without_a_source_of_rollouts(lab):
    with pytest.raises(ConfigError, match="makes rollouts, such as RolloutDataModule, not NoneType"):
        lab.trainer().fit(lab.module(), [1, 2])

    class Other(LightningDataModule):
        def train_dataloader(self):
            return [1, 2]

    with pytest.raises(ConfigError, match="not Other"):
        lab.trainer().fit(lab.module(), Other())


def test_weights_of_another_module(lab):
    class Rollouts(SFTModule):
        def on_train_epoch_start(self):
            WeightSync().on_collection_start(self.trainer, self)

    with pytest.raises(ConfigError, match="WeightSync works with SLCAModule, not Rollouts"):
        lab.trainer().fit(Rollouts(str(lab.path)), [1])


@pytest.mark.parametrize("kind", [SLCAModule, SFTModule])
def test_without_a_model(lab, kind):
    with pytest.raises(ConfigError, match=r"there is no model folder .*slca-tiny"):
        kind(str(lab.folder / "nowhere"))
    with pytest.raises(ConfigError, match="configure_model"):
        _ = kind(str(lab.path)).model


class SomeLong(TaskSource):
    """Toolworld's tasks, some with a question longer than any prompt of the others."""

    def __init__(self, size, is_long):
        self.tasks, self.is_long = ToolWorldTasks(size=size), is_long

    def __len__(self):
        return len(self.tasks)

    def task(self, index):
        task = self.tasks[index]
        if not self.is_long(index):
            return task
        return dataclasses.replace(task, messages=({"role": "user", "content": "I need 7. " * 600},))


def long_data(lab, is_long, **options):
    return lab.data(scripted=False, tasks=SomeLong(8, is_long), max_prompt_tokens=700, tasks_per_epoch=4, **options)


def test_a_long_prompt_is_an_error(lab):
    with pytest.raises(DataError, match=r"toolworld-train-0-\d has \d+ tokens.*on_long_prompt: drop"):
        lab.trainer().fit(lab.module(), long_data(lab, lambda i: True))


def test_a_long_prompt_is_dropped_for_another(lab):
    recorder = lab.Recorder()
    data = long_data(lab, lambda i: i % 2 == 0, on_long_prompt="drop")
    lab.trainer([recorder], max_epochs=2).fit(lab.module(), data)
    for collection in recorder.collections:
        groups = set(collection.groups)
        assert {int(name.rsplit("-", 1)[1]) for name in groups} == {1, 3, 5, 7}
        assert len(collection) == 16
    # Each of the four long ones at most once an epoch, and once in the two epochs that go through all eight tasks.
    assert 4 <= data.dropped_prompts <= 8


def test_all_prompts_are_too_long(lab):
    with pytest.raises(DataError, match="only 0 of 8 can be used"):
        lab.trainer().fit(lab.module(), long_data(lab, lambda i: True, on_long_prompt="drop"))


def test_more_tasks_than_there_are(lab):
    with pytest.raises(DataError, match="takes 17 tasks, but only 16 of 16"):
        lab.trainer().fit(lab.module(), lab.data(tasks_per_epoch=17))


def test_a_template_that_rewrites_the_past_can_be_refused(lab):
    template = lab.data()
    template.setup()
    rewriting = template.tokenizer.chat_template.replace(
        "message.content + '<|im_end|>", "message.content.replace('name', 'NAME') + '<|im_end|>"
    )
    assert rewriting != template.tokenizer.chat_template

    def data(choice):
        made = lab.data(on_template_drift=choice)
        made.setup()
        made.collector.chat.tokenizer.chat_template = rewriting
        made.engine.sync_weights(None, 0)
        return made

    with pytest.raises(ConfigError, match="on_template_drift: keep"):
        data("refuse").collect(0)
    kept = data("keep").collect(0)
    drifted = [rollout.template_drift for rollout in kept.rollouts]
    assert drifted == [len(rollout.turns) > 1 for rollout in kept.rollouts]
    assert any(drifted)
