"""Rows keep their content, whatever grows, moves or is parked."""

import torch

from slca_lightning.rollout.engines.slot_cache import SlotCache

HEADS, SIZE, LAYERS = 2, 3, 2


def fill(cache, first_row, starts, count, rng):
    """Write ``count`` random tokens to each row, and return (n, heads, count, size) keys and values of each layer."""
    columns = torch.tensor(starts)[:, None] + torch.arange(count)
    cache.address(first_row, columns, int(columns.max()) + 1)
    written = []
    for layer in range(LAYERS):
        keys, values = (torch.randn(len(starts), HEADS, count, SIZE, generator=rng) for _ in range(2))
        read_keys, read_values = cache.update(keys, values, layer)
        assert read_keys.shape == read_values.shape == (len(starts), HEADS, int(columns.max()) + 1, SIZE)
        for row, start in enumerate(starts):
            assert torch.equal(read_keys[row, :, start : start + count], keys[row])
            assert torch.equal(read_values[row, :, start : start + count], values[row])
        written.append((keys, values))
    return written


def assert_row(cache, row, layers):
    length = layers[0][0].shape[1]
    for (keys, values), (expected_keys, expected_values) in zip(cache.take(row, length), layers, strict=True):
        assert torch.equal(keys, expected_keys)
        assert torch.equal(values, expected_values)


def row_of(written, row):
    return [(keys[row], values[row]) for keys, values in written]


def joined(first, second):
    return [(torch.cat([a, c], 1), torch.cat([b, d], 1)) for (a, b), (c, d) in zip(first, second, strict=True)]


def test_rows_grow_at_their_own_pace():
    rng, cache = torch.Generator().manual_seed(0), SlotCache()
    first = fill(cache, 0, [0, 0], 4, rng)
    late = fill(cache, 2, [0], 9, rng)  # another row joins, and is longer
    lengths = [4, 4, 9]
    rows = [row_of(first, 0), row_of(first, 1), row_of(late, 0)]
    for _ in range(20):
        new = fill(cache, 0, lengths, 1, rng)
        rows = [joined(row, row_of(new, i)) for i, row in enumerate(rows)]
        lengths = [length + 1 for length in lengths]
        for i, row in enumerate(rows):
            assert_row(cache, i, row)


def test_copy_take_and_put():
    rng, cache = torch.Generator().manual_seed(0), SlotCache()
    written = fill(cache, 0, [0, 0, 0], 5, rng)
    parked = cache.take(1, 3)
    cache.copy_row(2, 1, 5)  # the last row takes the place of a finished one
    assert_row(cache, 1, row_of(written, 2))
    assert_row(cache, 0, row_of(written, 0))
    for keys, values in parked:
        assert keys.shape == values.shape == (HEADS, 3, SIZE)
    assert torch.equal(parked[0][0], written[0][0][1, :, :3])  # a copy: what was taken stays
    cache.put(6, parked)  # beyond all rows so far
    assert_row(cache, 6, parked)
    cache.copy_row(6, 11, 3)
    assert_row(cache, 11, parked)
    assert_row(cache, 0, row_of(written, 0))
    assert_row(cache, 1, row_of(written, 2))


def test_growth_is_rare():
    rng, cache = torch.Generator().manual_seed(0), SlotCache()
    buffers = set()
    for length in range(200):
        fill(cache, 0, [length], 1, rng)
        buffers.add(cache._keys[0].data_ptr())
    assert len(buffers) <= 9  # doubled each time: 1, 2, 4 ... 256
