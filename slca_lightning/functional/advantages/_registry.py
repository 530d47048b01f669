"""The registry of advantage estimators: each is one file that decorates one function."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from slca_lightning.errors import ConfigError
from slca_lightning.functional._checks import known_list

EstimatorFunction = Callable[..., Tensor]
"""``(inputs: AdvantageInputs, *, option: float = default, ...) -> (B, T) float64``."""


@dataclass(frozen=True, slots=True)
class EstimatorSpec:
    """A registered estimator and what it reads."""

    name: str
    function: EstimatorFunction
    required: tuple[str, ...]
    """Per-rollout inputs that must be passed."""
    optional: tuple[str, ...]
    """Per-rollout inputs that may be passed."""
    options: Mapping[str, float]
    """Options and their defaults: the function's keyword-only parameters."""
    needs_segments: bool
    """Whether it reads the tool and summary masks."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """All per-rollout inputs it reads."""
        return self.required + self.optional


_REGISTRY: dict[str, EstimatorSpec] = {}


def estimator(
    name: str, *, required: tuple[str, ...], optional: tuple[str, ...] = (), needs_segments: bool = True
) -> Callable[[EstimatorFunction], EstimatorFunction]:
    """Register the decorated function as the estimator ``name``.

    Its keyword-only parameters become the estimator's options; each needs a number as its default.

    Args:
        name: what configs call it.
        required: the per-rollout inputs it cannot do without.
        optional: the per-rollout inputs it also reads.
        needs_segments: whether it reads ``tool_mask`` and ``summary_mask``.

    Raises:
        ConfigError: where another function already has that name.
    """

    def register(function: EstimatorFunction) -> EstimatorFunction:
        options = {
            parameter.name: parameter.default
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        other = _REGISTRY.get(name)
        # The same function again is a module that was reloaded.
        if other is not None and _origin(other.function) != _origin(function):
            raise ConfigError(f"the estimator name {name!r} is taken by {'.'.join(_origin(other.function))}")
        _REGISTRY[name] = EstimatorSpec(name, function, required, optional, options, needs_segments)
        return function

    return register


def _origin(function: EstimatorFunction) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def known_estimators() -> tuple[str, ...]:
    """Return the names of all registered estimators, sorted."""
    return tuple(sorted(_REGISTRY))


def estimator_inputs(name: str) -> EstimatorSpec:
    """Return what the estimator ``name`` reads: required and optional inputs, and options with their defaults.

    Raises:
        ConfigError: for an unknown name; the message lists the known ones.
    """
    if name not in _REGISTRY:
        raise ConfigError(f"unknown estimator {name!r}{near_match(name, _REGISTRY)}; known: {known_list([*_REGISTRY])}")
    return _REGISTRY[name]


def near_match(name: str, known: Iterable[str]) -> str:
    """Return a hint such as ``, did you mean 'slca'?``, or an empty text where nothing comes near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
