"""A KV cache in which every sequence has a row of its own and grows at its own pace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

from slca_lightning.errors import ConfigError

LayerKV = tuple[Tensor, Tensor]
"""Keys and values of one layer for one sequence, each (heads, length, size of a head)."""


class SlotCache(Cache):
    """Keys and values of many sequences, one row each, filled from the left.

    A row's tokens are at columns 0, 1, 2 ... whatever the other rows hold: nothing is shifted or copied when sequences
    of different lengths decode side by side, and a finished row is filled by moving one other row. Buffers grow by
    doubling. Before each forward pass, :meth:`address` says which rows and columns it writes.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._rows = slice(0, 0)
        self._row_ids = torch.empty(0, 1, dtype=torch.long)
        self._columns = torch.empty(0, 0, dtype=torch.long)
        self._width = 0

    def address(self, first_row: int, columns: Tensor, width: int) -> None:
        """Set where the next forward pass writes.

        Args:
            first_row: its sequences are the rows from here on.
            columns: (n, q), the column of each new token.
            width: columns that the pass may read, at least ``columns.max() + 1``.
        """
        self._rows = slice(first_row, first_row + columns.shape[0])
        self._row_ids = torch.arange(first_row, first_row + columns.shape[0], device=columns.device)[:, None]
        self._columns = columns
        self._width = width

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new keys and values, each (n, heads, q, size), and return those of the rows' whole width."""
        while len(self._keys) <= layer_idx:
            self._keys.append(key_states.new_empty(0, key_states.shape[1], 0, key_states.shape[3]))
            self._values.append(value_states.new_empty(0, value_states.shape[1], 0, value_states.shape[3]))
        return (
            self._write(self._keys, layer_idx, key_states),
            self._write(self._values, layer_idx, value_states),
        )

    def _write(self, buffers: list[Tensor], layer: int, new: Tensor) -> Tensor:
        buffers[layer] = _grown(buffers[layer], self._rows.stop, self._width)
        buffer = buffers[layer]
        buffer[self._row_ids, :, self._columns] = new.transpose(1, 2)
        return buffer[self._rows, :, : self._width]

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` columns of one row to another."""
        for buffers in (self._keys, self._values):
            for layer, buffer in enumerate(buffers):
                buffers[layer] = _grown(buffer, target + 1, length)
                buffers[layer][target, :, :length] = buffers[layer][source, :, :length]

    def take(self, row: int, length: int) -> list[LayerKV]:
        """Return a copy of a row's first ``length`` columns, a pair for each layer."""
        return [
            (keys[row, :, :length].clone(), values[row, :, :length].clone())
            for keys, values in zip(self._keys, self._values, strict=True)
        ]

    def put(self, row: int, layers: list[LayerKV]) -> None:
        """Fill a row from what :meth:`take` returned."""
        for layer, (keys, values) in enumerate(layers):
            for buffers, new in ((self._keys, keys), (self._values, values)):
                buffers[layer] = _grown(buffers[layer], row + 1, new.shape[1])
                buffers[layer][row, :, : new.shape[1]] = new

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns that the next pass may read; models ask for it only where no positions are passed."""
        return self._width


def check_attention(config: Any) -> None:
    """Refuse models that would not read the cache as it is meant.

    Raises:
        ConfigError: for layers other than plain full attention, or an attention that takes no mask of ours.
    """
    layer_types = getattr(config, "layer_types", None)
    windowed = layer_types is None and getattr(config, "sliding_window", None) is not None
    if windowed or set(layer_types or ()) - {"full_attention"}:
        raise ConfigError(
            f"TransformersEngine decodes full attention only, and {type(config).__name__} has other layers; "
            "use a vLLM engine for this model"
        )
    if config._attn_implementation not in ("sdpa", "eager"):
        raise ConfigError(
            f"TransformersEngine needs attn_implementation 'sdpa' or 'eager', got {config._attn_implementation!r}"
        )


def visibility_mask(columns: Tensor, width: int, decoder: nn.Module) -> Tensor:
    """Return the mask (n, 1, q, width), as ``decoder`` takes it, by which a token sees all columns up to its own."""
    visible = columns[:, None, :, None] >= torch.arange(width, device=columns.device)
    config: Any = decoder.config
    if config._attn_implementation == "sdpa":
        return visible
    # Eager attention adds its mask to the scores: a boolean one would hide nothing.
    dtype = next(decoder.parameters()).dtype
    return torch.zeros(visible.shape, dtype=dtype, device=columns.device).masked_fill_(~visible, torch.finfo(dtype).min)


def _grown(buffer: Tensor, rows: int, columns: int) -> Tensor:
    """Return ``buffer`` with room for that many rows and columns, doubled so that growth is rare."""
    if rows <= buffer.shape[0] and columns <= buffer.shape[2]:
        return buffer
    num_rows = max(rows, 2 * buffer.shape[0]) if rows > buffer.shape[0] else buffer.shape[0]
    num_columns = max(columns, 2 * buffer.shape[2]) if columns > buffer.shape[2] else buffer.shape[2]
    # Zeros, not empty memory: masked columns are multiplied by zero weights, and zero times NaN is NaN.
    grown = buffer.new_zeros(num_rows, buffer.shape[1], num_columns, buffer.shape[3])
    grown[: buffer.shape[0], :, : buffer.shape[2]] = buffer
    return grown
