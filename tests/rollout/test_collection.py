"""Columns are where their tokens are, and micro-batches hold every rollout once."""

import random

import pytest
import torch

from slca_lightning.errors import ConfigError
from slca_lightning.rollout.collection import Collection, micro_batches
from slca_lightning.types import ProcessReward, RewardBreakdown, Rollout, Score, ToolTask, Turn

PAD = 99


def rollout(group, prompt, response, mask, logprobs):
    task = ToolTask(group, ({"role": "user", "content": "?"},), (), (), ())
    turn = Turn("x", 0, 1, has_call=False)
    return Rollout(task, 0, 1, tuple(prompt), tuple(response), tuple(mask), tuple(logprobs), (turn,), "stop")


def reward(failed=False):
    score = Score.failed("down") if failed else Score(1.0)
    return RewardBreakdown(ProcessReward(1, 1, 1, 1, 1, 1, 0), score, score, score)


@pytest.fixture
def collection():
    rollouts = (
        rollout("a", [1, 2, 3], [4, 5], [True, True], [-0.5, -0.25]),
        rollout("a", [1, 2, 3], [6, 7, 8, 9], [True, False, False, True], [-1.0, 0.0, 0.0, -2.0]),
        rollout("b", [10], [11, 12, 13], [True, True, True], [-3.0, -4.0, -5.0]),
    )
    return Collection(rollouts, (reward(), reward(), reward(failed=True)))


def test_columns(collection):
    assert collection.policy_mask.tolist() == [[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 1, 0]]
    assert collection.loss_mask.tolist() == [[1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]]  # a failed one has no loss
    expected = [[-0.5, -0.25, 0, 0], [-1, 0, 0, -2], [-3, -4, -5, 0]]
    assert collection.sampling_logprobs.tolist() == expected
    assert collection.groups == ["a", "a", "b"]
    assert collection.reward_columns()["valid"] == [1.0, 1.0, 0.0]


def test_batch_by_hand(collection):
    collection.advantages = torch.tensor([[0.1, 0.2, 0, 0], [0.3, 0, 0, 0.4], [0.5, 0.6, 0.7, 0]])
    collection.old_logprobs = collection.sampling_logprobs
    batch = collection.batch([2, 1], PAD, torch.tensor(7.0))
    assert batch.input_ids.tolist() == [[10, 11, 12, 13, PAD, PAD, PAD], [1, 2, 3, 6, 7, 8, 9]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 0, 0, 0], [1] * 7]
    assert batch.policy_mask.tolist() == [[False] * 7, [False, False, False, True, False, False, True]]
    advantages = torch.tensor([[0, 0.5, 0.6, 0.7, 0, 0, 0], [0, 0, 0, 0.3, 0, 0, 0.4]])
    assert torch.equal(batch.advantages, advantages)
    assert batch.old_logprobs.tolist() == [[0, -3, -4, -5, 0, 0, 0], [0, 0, 0, -1, 0, 0, -2]]
    assert not batch.reference_logprobs.any()  # not there yet
    assert batch.denominator == 7.0
    assert batch.indices.tolist() == [2, 1]


def test_gather_is_the_inverse_of_batch(collection):
    column = torch.zeros(3, 4).masked_scatter(collection.policy_mask, torch.arange(1.0, 10.0))
    collection.old_logprobs = column
    back = torch.full((3, 4), -1.0)
    for indices in ([2, 0], [1]):
        batch = collection.batch(indices, PAD)
        collection.gather(batch, batch.old_logprobs, back)
    for i, one in enumerate(collection.rollouts):
        size = len(one.response_ids)
        assert torch.equal(back[i, :size], column[i, :size])
        assert (back[i, size:] == -1).all()  # nothing is written beyond the response


def test_an_empty_collection():
    empty = Collection.of([])
    assert len(empty) == 0
    assert empty.reward_columns() == {}


def many(groups, size, rng):
    rollouts = []
    for group in range(groups):
        for _ in range(size):
            length = rng.randrange(1, 30)
            rollouts.append(rollout(str(group), [1] * 3, [2] * length, [True] * length, [-1.0] * length))
    return Collection(tuple(rollouts), tuple(reward() for _ in rollouts))


@pytest.mark.parametrize(("micro", "updates"), [(1, 1), (2, 3), (4, 2), (4, 6), (24, 1), (8, 3)])
def test_micro_batches(micro, updates):
    collection = many(6, 4, random.Random(0))
    batches = micro_batches(collection, micro, updates)
    assert sorted(i for batch in batches for i in batch) == list(range(24))
    assert {len(batch) for batch in batches} == {micro}
    per_update = len(batches) // updates
    for update in range(updates):
        taken = [i for batch in batches[update * per_update : (update + 1) * per_update] for i in batch]
        lengths = [len(collection.rollouts[i].response_ids) for i in taken]
        assert lengths == sorted(lengths, reverse=True)
        groups = [collection.groups[i] for i in taken]
        assert all(groups.count(group) == 4 for group in groups)  # an update holds whole groups


@pytest.mark.parametrize(("micro", "updates"), [(5, 1), (1, 5), (4, 4), (48, 1), (0, 1), (1, 0), (-1, 1)])
def test_numbers_that_do_not_fit(micro, updates):
    with pytest.raises(ConfigError, match=str(micro)):
        micro_batches(many(6, 4, random.Random(0)), micro, updates)
