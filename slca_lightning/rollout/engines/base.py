"""What the rollout loop asks of a generation engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One assistant turn to be sampled."""

    request_id: str
    """Names the rollout. Requests of one rollout share it, so that an engine may keep its KV cache between turns."""
    token_ids: tuple[int, ...]
    """Everything so far: prompt, earlier turns, injected results."""
    max_new_tokens: int
    """At most this many tokens are sampled; at least 1."""
    seed: int
    """Decides the samples, together with the tokens and the weights."""
    temperature: float = 1.0
    """Divides the logits; 0 takes the likeliest token."""
    stop_token_ids: tuple[int, ...] = ()
    """Sampling stops after one of these, which is kept."""
    stop_strings: tuple[str, ...] = ()
    """Sampling stops after the token that completes one of these, which is kept."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What was sampled for a request."""

    token_ids: tuple[int, ...]
    """The sampled tokens, the stopping one included."""
    logprobs: tuple[float, ...]
    """Of each sampled token, under the distribution it was sampled from."""
    finish_reason: Literal["stop", "length"]
    """``stop``: a stop token or string came; ``length``: ``max_new_tokens`` were sampled without one."""
    weights_version: int
    """Version of the weights that sampled it."""


class GenerationEngine(ABC):
    """Samples assistant turns. All requests in flight are batched by the engine as it sees fit.

    A new engine is one new file: it is passed to the data module by its class path.
    """

    @property
    @abstractmethod
    def weights_version(self) -> int:
        """Version of the weights in use, as given to the last :meth:`sync_weights`; -1 before the first."""

    @abstractmethod
    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample one turn.

        Raises:
            EngineError: the engine has no weights yet, or failed.
        """

    @abstractmethod
    def sync_weights(self, policy: nn.Module, version: int) -> None:
        """Take over the weights of ``policy`` and stamp what is sampled from now on with ``version``."""

    @abstractmethod
    def release(self, request_ids: Sequence[str]) -> None:
        """Forget what is cached for these rollouts: they are finished."""

    def setup(self, tokenizer: PreTrainedTokenizerBase) -> None:  # noqa: B027
        """Take the tokenizer of the policy. Called once, before the first request."""

    def sleep(self) -> None:  # noqa: B027 - most engines hold nothing worth freeing
        """Free memory until :meth:`wake`: the policy is about to train."""

    def wake(self) -> None:  # noqa: B027
        """Get ready to generate after :meth:`sleep`."""

    def close(self) -> None:  # noqa: B027
        """Stop whatever the engine started. The engine cannot be used afterwards."""
