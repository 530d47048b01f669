"""What every source of tasks offers."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import overload

from slca_lightning.seeding import derive_seed
from slca_lightning.types import ToolTask


class TaskSource(ABC, Sequence[ToolTask]):
    """A sized, indexable collection of tasks. ``source[i]`` is the same task every time it is asked for."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of tasks."""

    @abstractmethod
    def task(self, index: int) -> ToolTask:
        """Return the task at ``index``, in ``range(len(self))``."""

    @overload
    def __getitem__(self, index: int) -> ToolTask: ...
    @overload
    def __getitem__(self, index: slice) -> list[ToolTask]: ...
    def __getitem__(self, index: int | slice) -> ToolTask | list[ToolTask]:
        """Return one task, or a list of them for a slice; IndexError beyond the ends, as for any sequence."""
        if isinstance(index, slice):
            return [self.task(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"task {index} of a source with {len(self)} tasks")
        return self.task(index % len(self))


def epoch_indices(num_tasks: int, count: int, seed: int, epoch: int) -> list[int]:
    """Return which ``count`` of ``num_tasks`` tasks epoch ``epoch`` works on.

    Tasks come in passes: each pass is a seeded permutation of all tasks, and epoch ``e`` takes the positions
    ``[e * count, (e + 1) * count)`` of the concatenated passes. So no task comes twice before every other came once,
    and any epoch's tasks are known without having run the earlier ones.

    Raises:
        ValueError: where there is no task, or ``count`` is not positive.
    """
    if num_tasks < 1 or count < 1:
        raise ValueError(f"need at least one task and a positive count, got {num_tasks} tasks and count {count}")
    indices: list[int] = []
    position = epoch * count
    while len(indices) < count:
        which_pass, offset = divmod(position + len(indices), num_tasks)
        order = list(range(num_tasks))
        random.Random(derive_seed("task-order", seed, which_pass)).shuffle(order)
        indices += order[offset : offset + count - len(indices)]
    return indices
