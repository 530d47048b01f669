"""Log-probabilities and entropies from logits.

V is the size of the vocabulary. Half-precision logits are raised to float32 first: in bfloat16 a log-probability of
-10 has a step of 1/16, more than the clip of the objective can bear.
"""

from __future__ import annotations

import torch
from torch import Tensor

from slca_lightning.errors import ConfigError


def token_logprobs(logits: Tensor, token_ids: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute the log-probability of one token per position.

    log p(y) = x_y / τ − log Σᵥ exp(x_v / τ). Computed as gather minus logsumexp, so that no log-softmax over the whole
    vocabulary is kept.

    Args:
        logits: (..., V), of floating type.
        token_ids: (...) integers in [0, V); position i of the logits must be the one that *predicts* token i.
        temperature: τ, above 0; the one that the tokens were sampled with.

    Returns:
        (...) float32, or float64 for float64 logits; in nats, at most 0 up to rounding.

    Raises:
        ConfigError: where shapes do not fit or the temperature is not positive.
    """
    if logits.ndim == 0 or logits.shape[:-1] != token_ids.shape:
        raise ConfigError(
            f"logits must have the shape of token_ids and one more axis, got {tuple(logits.shape)} and "
            f"{tuple(token_ids.shape)}"
        )
    scaled = _scaled(logits, temperature)
    chosen = scaled.gather(-1, token_ids[..., None].long()).squeeze(-1)
    return chosen - scaled.logsumexp(dim=-1)


def entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute the entropy of the next-token distribution at each position.

    H = log Σᵥ exp(x_v / τ) − Σᵥ pᵥ x_v / τ with p = softmax(x / τ). Logits must be finite.

    Args:
        logits: (..., V), of floating type.
        temperature: τ, above 0.

    Returns:
        (...) float32, or float64 for float64 logits; in nats, in [0, log V] up to rounding.

    Raises:
        ConfigError: where the logits are a scalar or the temperature is not positive.
    """
    if logits.ndim == 0:
        raise ConfigError("logits must have shape (..., V), got a scalar")
    scaled = _scaled(logits, temperature)
    return scaled.logsumexp(dim=-1) - (scaled.softmax(dim=-1) * scaled).sum(dim=-1)


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    """Return logits / temperature in float32 or better; the logits themselves where nothing is to be done."""
    if not 0.0 < temperature < float("inf"):
        raise ConfigError(f"temperature must be positive and finite, got {temperature}")
    raised = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return raised if temperature == 1.0 else raised / temperature
