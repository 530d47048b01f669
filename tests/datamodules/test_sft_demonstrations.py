"""Demonstrations as batches: what is learnt is what the assistant writes, and nothing else."""

from __future__ import annotations

import pytest

from slca_lightning.datamodules import SFTDataModule
from slca_lightning.errors import ConfigError, DataError
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.tasks.toolworld import ToolWorldDemonstrations


@pytest.fixture(scope="module")
def folder(tiny_tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer.save_pretrained(path)
    return str(path)


def test_learnt_tokens_are_the_assistants_turns(folder):
    demonstrations = ToolWorldDemonstrations(24)
    data = SFTDataModule(folder, demonstrations, batch_size=24)
    data.setup()
    (batch,) = data.train_dataloader()
    decode, chat = data.tokenizer.decode, ChatRenderer(data.tokenizer)
    wanted = [demonstrations[i] for i in range(24)]
    assert any(len(one.turns) > 2 for one in wanted)
    seen = set()
    for ids, attention, mask in zip(batch.input_ids, batch.attention_mask, batch.assistant_mask, strict=True):
        learnt = decode(ids[mask])
        read = decode(ids[attention.bool() & ~mask])
        prompts = [chat.prompt_ids(one.task) for one in wanted]
        (demonstration,) = (
            one for one, prompt in zip(wanted, prompts, strict=True) if ids[: len(prompt)].tolist() == prompt
        )
        seen.add(demonstration.task.task_id)
        assert learnt == "".join(f"{turn.text}<|im_end|>" for turn in demonstration.turns)
        for turn in demonstration.turns:
            assert all(f"<tool_response>\n{result}\n</tool_response>" in read for result in turn.results)
            assert turn.text not in read
        assert not mask[attention == 0].any()
        assert int(attention.sum()) == len(ids) - int((ids == data.tokenizer.pad_token_id).sum())
    assert len(seen) == 24
    assert float(batch.denominator) == pytest.approx(int(batch.assistant_mask.sum()))


def test_every_epoch_has_all_demonstrations_in_another_order(folder):
    data = SFTDataModule(folder, ToolWorldDemonstrations(10), batch_size=4)
    data.setup()
    loader = data.train_dataloader()
    epochs = []
    for epoch in (0, 1, 0):
        loader.sampler.set_epoch(epoch)
        epochs.append([tuple(row[row != data.tokenizer.pad_token_id].tolist()) for b in loader for row in b.input_ids])
    assert epochs[0] == epochs[2] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert len(set(epochs[0])) == 10
    assert data.val_dataloader() == []


def test_a_long_demonstration_is_an_error(folder):
    data = SFTDataModule(folder, ToolWorldDemonstrations(4), max_tokens=50)
    with pytest.raises(DataError, match=r"toolworld-train-1-0 has \d+ tokens, more than max_tokens = 50"):
        data.setup()


def test_setup_twice_encodes_once(folder):
    data = SFTDataModule(folder, ToolWorldDemonstrations(2))
    data.setup("fit")
    encoded = data._train
    data.setup("validate")
    assert data._train is encoded


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"max_tokens": 0}])
def test_numbers(folder, options):
    with pytest.raises(ConfigError, match="at least 1"):
        SFTDataModule(folder, ToolWorldDemonstrations(2), **options)


def test_nothing_to_learn_from(folder):
    with pytest.raises(DataError, match="no demonstrations"):
        SFTDataModule(folder, [])
