"""Tensors in, tensors out: segments, advantages, losses, KL and log-probabilities.

Nothing here knows a trainer, a file or a model; only torch is imported.
"""

from __future__ import annotations

from slca_lightning.functional.advantages import (
    AdvantageInputs,
    EstimatorSpec,
    compute_advantages,
    estimator,
    estimator_inputs,
    group_normalize,
    known_estimators,
)
from slca_lightning.functional.kl import kl_divergence
from slca_lightning.functional.logprobs import entropy, token_logprobs
from slca_lightning.functional.losses import ClippedObjective, masked_mean, masked_sum, ppo_clip
from slca_lightning.functional.segments import policy_runs, segment_masks

__all__ = [
    "AdvantageInputs",
    "ClippedObjective",
    "EstimatorSpec",
    "compute_advantages",
    "entropy",
    "estimator",
    "estimator_inputs",
    "group_normalize",
    "kl_divergence",
    "known_estimators",
    "masked_mean",
    "masked_sum",
    "policy_runs",
    "ppo_clip",
    "segment_masks",
    "token_logprobs",
]
