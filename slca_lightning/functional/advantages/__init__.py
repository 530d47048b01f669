"""Advantage estimators, one file each: from per-rollout rewards to per-token advantages.

A new estimator is one new file here that decorates a function with :func:`estimator`; it is found by itself. Code
elsewhere may use the decorator as well.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Hashable, Mapping, Sequence
from importlib import import_module

import torch
from torch import Tensor

from slca_lightning.errors import ConfigError
from slca_lightning.functional._checks import MaskLike, as_bool_mask, known_list
from slca_lightning.functional.advantages._registry import near_match
from slca_lightning.functional.advantages.base import (
    AdvantageInputs,
    EstimatorSpec,
    estimator,
    estimator_inputs,
    group_normalize,
    known_estimators,
)
from slca_lightning.functional.segments import RunFlags, segment_masks

__all__ = [
    "AdvantageInputs",
    "EstimatorSpec",
    "compute_advantages",
    "estimator",
    "estimator_inputs",
    "group_normalize",
    "known_estimators",
]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

Column = Tensor | Sequence[float | bool | None]
"""A number per rollout; None where nothing was scored."""


def compute_advantages(
    estimator: str,
    *,
    policy_mask: MaskLike,
    groups: Sequence[Hashable] | Tensor,
    rewards: Mapping[str, Column],
    run_has_call: RunFlags | None = None,
    boundary: str = "structural",
    normalize_std: bool = True,
    **options: float,
) -> Tensor:
    """Turn the rewards of B rollouts into one advantage a token.

    The formula is the estimator's: see the functions in :mod:`slca_lightning.functional.advantages`. For all of them,
    tokens the policy did not sample get exactly 0, and so do groups without a signal.

    Args:
        estimator: a name out of :func:`known_estimators`.
        policy_mask: (B, T), True where the policy sampled the token.
        groups: B hashable ids in any order; rollouts with equal ids are compared with each other.
        rewards: the estimator's per-rollout inputs by name, each (B,); :func:`estimator_inputs` lists them. Inputs of
            other estimators are ignored. None or NaN is fine where a reward is not used: its segment is absent, or a
            flag marks it invalid.
        run_has_call: per rollout, per policy run, whether it holds a tool-call attempt; see :func:`segment_masks`.
        boundary: ``structural`` or ``last_run``; see :func:`segment_masks`.
        normalize_std: divide by the group's standard deviation.
        **options: the estimator's options, such as ``weight_tool``.

    Returns:
        (B, T) float64 on the device of ``policy_mask``, without gradient.

    Raises:
        ConfigError: for an unknown estimator, option, reward name or boundary; a missing reward; shapes that do not
            fit; a NaN or infinity in a reward that is used.

    Example:
        >>> compute_advantages(
        ...     "slca",
        ...     policy_mask=[[1, 0, 1], [1, 0, 1]],
        ...     groups=["task", "task"],
        ...     rewards={"reward_tool": [1.0, 0.0], "reward_summary": [0.25, 0.75]},
        ...     boundary="last_run",
        ...     normalize_std=False,
        ... )
        tensor([[ 0.5000,  0.0000, -0.2500],
                [-0.5000,  0.0000,  0.2500]], dtype=torch.float64)
    """
    spec = estimator_inputs(estimator)
    _check_names(spec, rewards, options)
    mask = as_bool_mask(policy_mask, "policy_mask")
    num_rollouts = mask.shape[0]
    inputs = AdvantageInputs(
        policy_mask=mask,
        group_index=_index_groups(groups, num_rollouts),
        columns={name: _as_column(name, rewards[name], num_rollouts) for name in spec.inputs if name in rewards},
        normalize_std=normalize_std,
        segments=segment_masks(mask, run_has_call, boundary) if spec.needs_segments else None,
    )
    return spec.function(inputs, **options)


def _check_names(spec: EstimatorSpec, rewards: Mapping[str, Column], options: Mapping[str, float]) -> None:
    for option, value in options.items():
        if option not in spec.options:
            hint = near_match(option, spec.options)
            known = known_list([*spec.options])
            raise ConfigError(f"estimator {spec.name!r} has no option {option!r}{hint}; its options: {known}")
        # YAML reads 1e-3 as a text.
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"option {option!r} of estimator {spec.name!r} must be a finite number, got {value!r}")
    needs = f"it needs {known_list(spec.required)} and accepts {known_list(spec.optional)}"
    missing = [name for name in spec.required if name not in rewards]
    if missing:
        raise ConfigError(f"estimator {spec.name!r} misses the rewards {known_list(missing)}; {needs}")
    # One set of columns may serve several estimators, but a misspelt validity flag must not be dropped in silence.
    known_columns = {column for name in known_estimators() for column in estimator_inputs(name).inputs}
    for name in rewards:
        if name not in known_columns:
            hint = near_match(name, known_columns)
            raise ConfigError(f"no estimator reads the reward {name!r}{hint}; {spec.name!r}: {needs}")


def _index_groups(groups: Sequence[Hashable] | Tensor, num_rollouts: int) -> Tensor:
    ids = groups.tolist() if isinstance(groups, Tensor) else list(groups)
    if len(ids) != num_rollouts:
        raise ConfigError(f"groups has {len(ids)} ids but policy_mask has {num_rollouts} rollouts")
    first_seen: dict[Hashable, int] = {}
    return torch.tensor([first_seen.setdefault(group, len(first_seen)) for group in ids], dtype=torch.int64)


def _as_column(name: str, values: Column, num_rollouts: int) -> Tensor:
    if not isinstance(values, Tensor):
        try:
            values = torch.tensor(
                [math.nan if value is None else float(value) for value in values], dtype=torch.float64
            )
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the reward {name!r} must be one number per rollout: {error}") from error
    if values.shape != (num_rollouts,):
        raise ConfigError(f"the reward {name!r} must have shape {(num_rollouts,)}, got {tuple(values.shape)}")
    return values.detach().to("cpu", torch.float64)
