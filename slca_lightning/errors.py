"""Errors a user can cause or has to act on. Each message says what to do next."""

from __future__ import annotations


class SLCAError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(SLCAError, ValueError):
    """Settings that contradict each other, or that name something unknown."""


class DataError(SLCAError, ValueError):
    """A task, row or file that cannot be used. The message names the file, the line and the reason."""


class EngineError(SLCAError, RuntimeError):
    """The generation engine could not produce tokens, or serves other weights than the policy's."""


class SimulatorError(SLCAError, RuntimeError):
    """The tool simulator's backend failed. Never raised for a call the *policy* got wrong: that is an answer."""


class JudgeError(SLCAError, RuntimeError):
    """A judge could not rate a summary. The rating counts as failed, never as zero."""


class NonFiniteError(SLCAError, FloatingPointError):
    """The loss or a gradient is NaN or infinite. The message names the batch and the file it was saved to."""
