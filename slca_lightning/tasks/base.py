"""What every source of tasks offers."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import overload

from slca_lightning.seeding import derive_seed
from slca_lightning.types import Demonstration, ToolTask


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
        return self.task(_checked(index, len(self)))


class DemonstrationSource(ABC, Sequence[Demonstration]):
    """A sized, indexable collection of demonstrations, the same each time it is asked."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of demonstrations."""

    @abstractmethod
    def demonstration(self, index: int) -> Demonstration:
        """Return the demonstration at ``index``, in ``range(len(self))``."""

    @overload
    def __getitem__(self, index: int) -> Demonstration: ...
    @overload
    def __getitem__(self, index: slice) -> list[Demonstration]: ...
    def __getitem__(self, index: int | slice) -> Demonstration | list[Demonstration]:
        """Return one demonstration, or a list of them for a slice; IndexError beyond the ends."""
        if isinstance(index, slice):
            return [self.demonstration(i) for i in range(*index.indices(len(self)))]
        return self.demonstration(_checked(index, len(self)))


def _checked(index: int, length: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"index {index} of a source of {length}")
    return index % length


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
