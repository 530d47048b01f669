"""Laws of the order in which demonstrations come."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler

from slca_lightning.datamodules.length_grouping import LengthGroupedSampler

LENGTHS = st.lists(st.integers(1, 500), min_size=1, max_size=300)
SIZES = st.integers(1, 9)
SEEDS = st.integers(0, 5)


def order(lengths, size, seed=0, epoch=0, rank=0, ranks=1):
    sampler = LengthGroupedSampler(lengths, size, seed, rank, ranks)
    sampler.set_epoch(epoch)
    items = list(sampler)
    assert len(items) == len(sampler)
    return items


@given(LENGTHS, SIZES, SEEDS, SEEDS)
def test_every_item_once(lengths, size, seed, epoch):
    assert sorted(order(lengths, size, seed, epoch)) == list(range(len(lengths)))


@given(LENGTHS, SIZES, SEEDS, SEEDS, st.integers(1, 4))
def test_ranks_share_without_overlap(lengths, size, seed, epoch, ranks):
    shares = [order(lengths, size, seed, epoch, rank, ranks) for rank in range(ranks)]
    assert {len(share) for share in shares} == {len(lengths) // ranks}
    joined = [item for share in shares for item in share]
    assert len(set(joined)) == len(joined) >= len(lengths) - ranks + 1


@given(LENGTHS, SIZES, SEEDS)
def test_batches_are_neighbours_in_length(lengths, size, seed):
    """Within a stretch of 32 batches: here, with few items, no two full batches overlap in length."""
    items = order(lengths[: 32 * size], size, seed)
    batches = [[lengths[i] for i in items[at : at + size]] for at in range(0, len(items), size)]
    assert all(len(batch) == size for batch in batches[:-1])  # the loader cuts by count: a short one only at the end
    full = sorted((min(b), max(b)) for b in batches if len(b) == size)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(full))


@given(LENGTHS, SIZES, SEEDS, SEEDS)
def test_only_seed_and_epoch_decide(lengths, size, seed, epoch):
    random.seed(1)
    first = order(lengths, size, seed, epoch)
    random.seed(2)
    sampler = LengthGroupedSampler(lengths, size, seed)
    for earlier in range(epoch + 1):  # an unbroken run, where the other one resumed
        sampler.set_epoch(earlier)
        last = list(sampler)
    assert first == last


def test_epochs_and_seeds_differ():
    lengths = list(range(200))
    orders = {tuple(order(lengths, 8, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    # Not only the order of the batches: what meets in a batch differs as well, where there are several stretches.
    lengths = list(range(1000))
    together = [
        {frozenset(items[at : at + 8]) for at in range(0, 1000, 8)}
        for items in (order(lengths, 8, 0, e) for e in (0, 1))
    ]
    assert len(together[0] & together[1]) < 30


def test_little_padding():
    rng = random.Random(0)
    lengths = [int(rng.lognormvariate(4, 1)) + 1 for _ in range(2000)]

    def padding(items):
        batches = [[lengths[i] for i in items[at : at + 16]] for at in range(0, len(items), 16)]
        return sum(max(batch) * len(batch) - sum(batch) for batch in batches)

    shuffled = rng.sample(range(2000), 2000)
    assert padding(order(lengths, 16)) < 0.25 * padding(shuffled)


def test_lightning_leaves_the_sampler_alone():
    """It would share out any sampler again that is not a DistributedSampler, and half of the data would be lost."""
    sampler = LengthGroupedSampler([3, 1, 2], 2, rank=1, world_size=2)
    assert isinstance(sampler, DistributedSampler)
    assert len(DataLoader([0, 1, 2], batch_size=2, sampler=sampler)) == 1
