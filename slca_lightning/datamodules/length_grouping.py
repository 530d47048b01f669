"""Batches of similar length, in an order that is still random."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from torch.utils.data import DistributedSampler

from slca_lightning.seeding import derive_seed

_CHUNK = 32
"""Batches that are sorted together: enough for little padding, few enough that batches differ from epoch to epoch."""


class LengthGroupedSampler(DistributedSampler[int]):
    """Shuffles, sorts stretches of the result by length, and shuffles the batches cut from them.

    The order depends on the seed and the epoch alone, so a resumed run goes on where it stopped. It is a
    ``DistributedSampler`` because Lightning would share the items of any other one among the ranks a second time.

    Args:
        lengths: of all items.
        batch_size: of the batches that the data loader will cut.
        seed: decides the order, with the epoch that Lightning sets.
        rank: which share of the batches to serve.
        world_size: number of shares. Each has the same number of items: a rest is left out, another one each epoch.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, seed: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__(lengths, num_replicas=world_size, rank=rank, seed=seed)  # type: ignore[arg-type]
        self.lengths = lengths
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.lengths) // self.num_replicas

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(derive_seed("length-grouping", self.seed, self.epoch))
        order = list(range(len(self.lengths)))
        rng.shuffle(order)
        mine = order[self.rank :: self.num_replicas][: len(self)]
        stretch = _CHUNK * self.batch_size
        batches = []
        for start in range(0, len(mine), stretch):
            ordered = sorted(mine[start : start + stretch], key=self.lengths.__getitem__)
            batches += [ordered[i : i + self.batch_size] for i in range(0, len(ordered), self.batch_size)]
        # Only the last batch of all can be short, and it has to stay last: the data loader counts items, not batches.
        full = [batch for batch in batches if len(batch) == self.batch_size]
        short = [batch for batch in batches if len(batch) < self.batch_size]
        rng.shuffle(full)
        return (index for batch in [*full, *short] for index in batch)
