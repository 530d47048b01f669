"""Laws of the order in which epochs work through tasks, and of a source as a sequence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slca_lightning.tasks.base import TaskSource, epoch_indices
from slca_lightning.types import ToolTask

SIZES = st.integers(1, 30)
SEEDS = st.integers(0, 2**32)


def _joined(num_tasks: int, count: int, seed: int, epochs: int) -> list[int]:
    return [index for epoch in range(epochs) for index in epoch_indices(num_tasks, count, seed, epoch)]


@given(SIZES, st.integers(1, 70), SEEDS)
@settings(deadline=None, max_examples=60)
def test_each_pass_covers_all_tasks_once(num_tasks: int, count: int, seed: int) -> None:
    # count may exceed num_tasks: then one epoch spans several passes.
    joined = _joined(num_tasks, count, seed, epochs=2 + 2 * num_tasks // count)
    passes = [joined[i : i + num_tasks] for i in range(0, len(joined) - num_tasks + 1, num_tasks)]
    assert len(passes) >= 2
    assert all(sorted(one) == list(range(num_tasks)) for one in passes)


@given(SIZES, st.integers(1, 70), st.integers(1, 70), SEEDS)
@settings(deadline=None, max_examples=60)
def test_the_epoch_length_only_cuts_one_endless_order(num_tasks: int, count: int, other: int, seed: int) -> None:
    # Epochs partition one stream of tasks: joined, they are the same stream however long an epoch is.
    one = _joined(num_tasks, count, seed, epochs=3)
    two = _joined(num_tasks, other, seed, epochs=3)
    common = min(len(one), len(two))
    assert one[:common] == two[:common]


@given(SIZES, st.integers(1, 70), SEEDS, st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_an_epoch_is_a_function_of_its_arguments(num_tasks: int, count: int, seed: int, epoch: int) -> None:
    indices = epoch_indices(num_tasks, count, seed, epoch)
    assert indices == epoch_indices(num_tasks, count, seed, epoch)
    assert len(indices) == count
    assert all(0 <= index < num_tasks for index in indices)


@given(SIZES, st.integers(1, 30), SEEDS, st.integers(0, 50))
@settings(deadline=None, max_examples=60)
def test_no_task_is_ahead_of_another_by_more_than_one_pass(num_tasks: int, count: int, seed: int, epochs: int) -> None:
    seen = [0] * num_tasks
    for index in _joined(num_tasks, count, seed, epochs):
        seen[index] += 1
    assert max(seen) - min(seen) <= 1


def test_seeds_and_passes_differ() -> None:
    # 50! orders: equal ones would be a bug, not chance.
    assert epoch_indices(50, 50, 0, 0) != epoch_indices(50, 50, 1, 0)
    assert epoch_indices(50, 50, 0, 0) != epoch_indices(50, 50, 0, 1)


def test_the_order_is_frozen() -> None:
    # A change would silently give resumed runs other tasks than unbroken ones.
    assert epoch_indices(7, 10, 3, 1) == [0, 5, 4, 3, 0, 3, 5, 6, 4, 1]


@pytest.mark.parametrize(("num_tasks", "count"), [(0, 1), (-1, 1), (1, 0), (1, -2)])
def test_nothing_to_draw_is_an_error(num_tasks: int, count: int) -> None:
    with pytest.raises(ValueError, match="at least one task and a positive count"):
        epoch_indices(num_tasks, count, 0, 0)


class _Letters(TaskSource):
    def __len__(self) -> int:
        return 3

    def task(self, index: int) -> ToolTask:
        return ToolTask("abc"[index], (), (), (), ())


def test_a_source_is_a_sequence() -> None:
    source = _Letters()
    assert [task.task_id for task in source] == ["a", "b", "c"]
    assert [task.task_id for task in source[::-1]] == ["c", "b", "a"]
    assert source[-1] == source[2]
    assert source[1] in source
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"index {index} of a source of 3"):
            source[index]
