"""Where a rollout's tool segment ends and its summary begins.

Shapes: B rollouts, T response tokens, R policy runs (padded). ``policy_mask`` is True where the policy sampled the
token; a *policy run* is a maximal run of such tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from slca_lightning.errors import ConfigError
from slca_lightning.functional._checks import MaskLike, as_bool_mask, known_list

RunFlags = Tensor | Sequence[Sequence[bool | int]]
"""Per rollout, per policy run: whether the run holds a tool-call attempt. Ragged, or a padded bool tensor (B, R)."""

KNOWN_BOUNDARIES = ("structural", "last_run")


def policy_runs(policy_mask: MaskLike) -> Tensor:
    """Number the policy runs of each rollout.

    Args:
        policy_mask: (B, T), True where the policy sampled the token.

    Returns:
        (B, T) int64: 0 on the tokens of the first run, 1 on those of the second ..., -1 outside of runs.

    Raises:
        ConfigError: where the mask is not (B, T) or holds more than zeros and ones.

    Example:
        >>> policy_runs([[1, 1, 0, 1], [0, 0, 0, 0]])
        tensor([[ 0,  0, -1,  1],
                [-1, -1, -1, -1]])
    """
    mask = as_bool_mask(policy_mask, "policy_mask")
    starts = mask.clone()
    starts[:, 1:] &= ~mask[:, :-1]
    return torch.where(mask, starts.cumsum(dim=1) - 1, -1)


def segment_masks(
    policy_mask: MaskLike, run_has_call: RunFlags | None = None, boundary: str = "structural"
) -> tuple[Tensor, Tensor]:
    """Split each rollout's policy tokens into the tool segment and the summary segment.

    ``last_run`` (arXiv 2609.29050): the last policy run is the summary, all earlier runs are the tool segment.
    ``structural`` (the default): the same, except that a last run which holds a tool-call attempt belongs to the tool
    segment and the rollout has no summary. That is what a rollout looks like that stopped at its turn or length limit;
    the paper's rule would book its last call as a summary. Where every rollout ends in text, both rules agree.

    A rollout without policy tokens has neither segment. Every policy token is in exactly one segment.

    Args:
        policy_mask: (B, T), True where the policy sampled the token.
        run_has_call: per rollout, per policy run, whether the run holds a tool-call attempt: ragged sequences with
            exactly one entry a run, or a tensor (B, R) padded with False. Only ``structural`` reads it.
        boundary: ``structural`` or ``last_run``.

    Returns:
        ``(tool_mask, summary_mask)``, both (B, T) bool, on the device of ``policy_mask``.

    Raises:
        ConfigError: for an unknown boundary, a mask that is not (B, T), ``structural`` without ``run_has_call``, or a
            ``run_has_call`` that does not fit the runs of the mask.

    Example:
        >>> tool, summary = segment_masks([[1, 0, 1], [1, 0, 1]], [[True, False], [True, True]])
        >>> tool.int(), summary.int()
        (tensor([[1, 0, 0],
                [1, 0, 1]], dtype=torch.int32), tensor([[0, 0, 1],
                [0, 0, 0]], dtype=torch.int32))
    """
    if boundary not in KNOWN_BOUNDARIES:
        raise ConfigError(f"unknown boundary {boundary!r}; known: {known_list(KNOWN_BOUNDARIES)}")
    mask = as_bool_mask(policy_mask, "policy_mask")
    if mask.shape[1] == 0:
        return mask.clone(), mask.clone()
    runs = policy_runs(mask)
    last_run = runs.amax(dim=1)
    summary = mask & (runs == last_run[:, None])
    if boundary == "structural":
        if run_has_call is None:
            raise ConfigError(
                "boundary='structural' needs run_has_call (per policy run, whether it holds a tool-call attempt); "
                "pass it, or use boundary='last_run'"
            )
        flags = _padded_flags(run_has_call, num_runs=last_run + 1)
        ends_in_call = flags.gather(1, last_run.clamp_min(0)[:, None])
        summary &= ~ends_in_call
    return mask & ~summary, summary


def _padded_flags(run_has_call: RunFlags, num_runs: Tensor) -> Tensor:
    """Return the flags as (B, R) bool with R >= 1, checked against ``num_runs`` (B,)."""
    if isinstance(run_has_call, Tensor):
        return _checked_padding(as_bool_mask(run_has_call, "run_has_call"), num_runs)
    rows = [[bool(flag) for flag in row] for row in run_has_call]
    expected = num_runs.tolist()
    if len(rows) != len(expected):
        raise ConfigError(f"run_has_call has {len(rows)} rows but policy_mask has {len(expected)} rollouts")
    wrong = [index for index, row in enumerate(rows) if len(row) != expected[index]]
    if wrong:
        index = wrong[0]
        raise ConfigError(
            f"run_has_call[{index}] has {len(rows[index])} entries but rollout {index} has {expected[index]} policy "
            f"runs ({len(wrong)} rollouts differ)"
        )
    width = max([1, *expected])
    padded = [row + [False] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.bool, device=num_runs.device).reshape(len(rows), width)


def _checked_padding(flags: Tensor, num_runs: Tensor) -> Tensor:
    most_runs = int(num_runs.max()) if num_runs.numel() else 0
    if flags.shape[0] != num_runs.shape[0] or flags.shape[1] < most_runs:
        raise ConfigError(
            f"run_has_call must have shape (rollouts, runs) of at least {(num_runs.shape[0], most_runs)}, "
            f"got {tuple(flags.shape)}"
        )
    flags = flags.to(num_runs.device)
    beyond = torch.arange(flags.shape[1], device=flags.device) >= num_runs[:, None]
    stray = (flags & beyond).any(dim=1).nonzero()
    if stray.numel():
        index = int(stray[0])
        raise ConfigError(
            f"run_has_call[{index}] marks a call in a run that does not exist: rollout {index} has "
            f"{int(num_runs[index])} policy runs; pad with False"
        )
    return flags if flags.shape[1] else flags.new_zeros(flags.shape[0], 1)
