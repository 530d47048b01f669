"""Stopping at the first number that is not finite, with the batch that caused it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from slca_lightning.errors import NonFiniteError


def check_loss(loss: Tensor, batch: Mapping[str, Tensor], folder: Path, name: str) -> None:
    """Raise where the loss is NaN or infinite.

    Args:
        loss: a scalar.
        batch: what it was computed from; saved as ``folder/name.pt`` where the check fails.
        folder: made where it is missing.
        name: of the batch, for people.

    Raises:
        NonFiniteError: names the batch and the file.
    """
    if not torch.isfinite(loss):
        raise NonFiniteError(f"the loss of {name} is {loss.item()}; {_save([batch], folder, name)}")


def gradient_norm(
    parameters: Iterable[tuple[str, nn.Parameter]], batches: Sequence[Mapping[str, Tensor]], folder: Path, name: str
) -> Tensor:
    """Return the 2-norm of all gradients, and raise where it is NaN or infinite.

    Raises:
        NonFiniteError: names the first parameter at fault, the update and the file its micro-batches were saved to.
    """
    gradients = {key: p.grad for key, p in parameters if p.grad is not None}
    norm = torch.nn.utils.get_total_norm(gradients.values())
    if not torch.isfinite(norm):
        fault = next((key for key, grad in gradients.items() if not torch.isfinite(grad).all()), "all together")
        raise NonFiniteError(
            f"the gradient of {name} has norm {norm.item()} (first at fault: {fault}); {_save(batches, folder, name)}"
        )
    return norm


def _save(batches: Sequence[Mapping[str, Tensor]], folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace(' ', '-')}.pt"
    torch.save([{key: value.detach().cpu() for key, value in batch.items()} for batch in batches], path)
    return (
        f"its {len(batches)} micro-batches are saved in {path} (torch.load(..., weights_only=True) reads them). "
        "Try a lower learning rate, gradient clipping, or float32"
    )
