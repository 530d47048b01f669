"""Checks that every function of this folder makes before it computes anything."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from slca_lightning.errors import ConfigError

MaskLike = Tensor | Sequence[Sequence[bool | int]]
"""A boolean tensor, or anything of zeros and ones that makes one: a number tensor or nested sequences."""


def as_bool_mask(mask: MaskLike, name: str) -> Tensor:
    """Return ``mask`` as a bool tensor (B, T); ``name`` is what an error calls it."""
    if not isinstance(mask, Tensor):
        try:
            mask = torch.as_tensor(mask)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name} is not a rectangle of zeros and ones, pad its rows to one length: {error}"
            ) from error
    if mask.ndim != 2:
        raise ConfigError(f"{name} must have shape (rollouts, tokens), got {tuple(mask.shape)}")
    if mask.dtype is torch.bool:
        return mask
    result = mask != 0
    # A fraction, a count or a NaN here means that something else was passed as a mask.
    if not torch.equal(result.to(mask.dtype), mask):
        raise ConfigError(f"{name} must hold only zeros and ones, got values of {mask.dtype} beyond them")
    return result


def check_same_shape(**tensors: Tensor) -> None:
    """Raise ConfigError unless all tensors have the shape of the first."""
    first, *others = tensors.items()
    for name, tensor in others:
        if tensor.shape != first[1].shape:
            raise ConfigError(
                f"{first[0]} and {name} must have the same shape, got {tuple(first[1].shape)} and {tuple(tensor.shape)}"
            )


def known_list(names: Sequence[str]) -> str:
    """Return names as an error lists them."""
    return ", ".join(sorted(names)) or "(none)"
