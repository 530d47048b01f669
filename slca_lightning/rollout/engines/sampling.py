"""Sampling for many sequences at once, each with its own seed, and stopping them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

CONTINUE, STOP, ASK = 0, 1, 2
"""What a sampled token means: go on; end the turn; end it if the text now ends in a stop string."""


def uniform_stream(seed: int) -> Callable[[], float]:
    """Return a source of numbers in [0, 1) that are a function of the seed alone."""
    return np.random.Generator(np.random.Philox(seed)).random


def sample(logits: Tensor, temperatures: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Draw a token from each row.

    By inversion: the first token at which the cumulative probability exceeds the row's uniform number. One number a
    token makes a row's draw independent of the rows beside it.

    Args:
        logits: (n, V).
        temperatures: (n,), at least 0; 0 takes the likeliest token.
        uniform: (n,), in [0, 1).

    Returns:
        Tokens (n,), and their log-probabilities (n,) under the distribution they were drawn from.
    """
    greedy = temperatures == 0
    logprobs = torch.log_softmax(logits.float() / torch.where(greedy, 1.0, temperatures)[:, None], dim=-1)
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    threshold = (uniform.to(cumulative.device) * cumulative[:, -1])[:, None]
    drawn = torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(dim=-1), drawn)
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]


class StopTable:
    """Tells in one lookup whether a token may end a turn.

    Args:
        tokenizer: whose tokens are meant.
        vocab_size: width of the model's logits, which may exceed the tokenizer's.
        stop_token_ids: tokens that end the turn.
        stop_strings: texts that end the turn once the sampled text holds them.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        vocab_size: int,
        stop_token_ids: tuple[int, ...],
        stop_strings: tuple[str, ...],
    ) -> None:
        self._tokenizer = tokenizer
        self._stop_strings = stop_strings
        kinds = torch.full((vocab_size,), CONTINUE, dtype=torch.int8)
        if stop_strings:
            last_signs = {text[-1] for text in stop_strings}
            texts = tokenizer.batch_decode([[i] for i in range(min(vocab_size, len(tokenizer)))])
            for token, text in enumerate(texts):
                if last_signs.intersection(text):
                    kinds[token] = ASK
        kinds[list(stop_token_ids)] = STOP
        self.kinds: list[int] = kinds.tolist()

    def text_stops(self, tokens: list[int]) -> bool:
        """Whether the end of the sampled tokens completes a stop string; asked only after a token of kind ASK."""
        longest = max(len(text) for text in self._stop_strings)
        # A token is at least one byte, so a stop string spans at most as many tokens as it has bytes; all are ASCII.
        tail = str(self._tokenizer.decode(tokens[-longest - 1 :]))
        return any(text in tail for text in self._stop_strings)
