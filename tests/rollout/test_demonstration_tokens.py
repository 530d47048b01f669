"""A demonstration has the very tokens of a rollout that says the same."""

import torch

from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.demonstration import collate_demonstrations, encode_demonstration
from slca_lightning.tasks.toolworld import ToolWorldDemonstrations
from slca_lightning.types import Demonstration, DemonstrationTurn


def test_equals_a_rollout(tiny_tokenizer, script):
    turns, answers = (
        [script.call(0) + "\n" + script.call(1), script.call(2), "All is well."],
        ["", "</tool_response>", "5"],
    )
    run = script.roll(tiny_tokenizer, turns, answers)
    results = [tuple(answers[:2]), tuple(answers[2:]), ()]
    told = tuple(DemonstrationTurn(text, contents) for text, contents in zip(turns, results, strict=True))
    encoded = encode_demonstration(Demonstration(run.task, told), run.chat)
    assert encoded.ids == (*run.rollout.prompt_ids, *run.rollout.response_ids)
    assert encoded.assistant_mask == (*[False] * len(run.rollout.prompt_ids), *run.rollout.policy_mask)


def test_collate(tiny_tokenizer):
    chat = ChatRenderer(tiny_tokenizer)
    encoded = [encode_demonstration(demonstration, chat) for demonstration in ToolWorldDemonstrations(5)]
    pad = tiny_tokenizer.pad_token_id
    batch = collate_demonstrations(encoded, pad, 12.0)
    for one, ids, attention, mask in zip(encoded, *batch[:3], strict=True):
        size = len(one.ids)
        assert tuple(ids[:size].tolist()) == one.ids
        assert tuple(mask[:size].tolist()) == one.assistant_mask
        assert attention.sum() == size == attention[:size].sum()
        assert (ids[size:] == pad).all()
        assert not mask[size:].any()
    assert batch.input_ids.shape[1] == max(len(one.ids) for one in encoded)
    assert batch.assistant_mask.dtype == torch.bool
    assert batch.denominator == 12.0
