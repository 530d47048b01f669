"""Hidden states first, logits only where they are needed.

Most tokens of a rollout are prompt or tool output. The decoder has to read them, but the head, which is as wide as the
vocabulary, need not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from slca_lightning.errors import ConfigError
from slca_lightning.functional import entropy, token_logprobs

_LOGIT_TRANSFORMS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of architectures that change the head's output after the matrix product."""


class TokenScores(NamedTuple):
    """What a model says of the tokens of a batch; both are (B, L), 0 where no score was asked for."""

    logprobs: Tensor
    entropy: Tensor


def decoder_and_head(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return the decoder (ids to hidden states) and the head (hidden states to logits) of a causal language model.

    A PEFT model's base model is used, in which the adapter's layers take part.

    Raises:
        ConfigError: where the architecture changes its logits after the head, so that the two would not suffice.
    """
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    for name in _LOGIT_TRANSFORMS:
        if getattr(base.config, name, None) not in (None, 1, 1.0):
            raise ConfigError(f"models with {name} (here {type(base).__name__}) are not supported yet")
    return base.get_decoder(), base.get_output_embeddings()


def token_scores(
    model: nn.Module, input_ids: Tensor, attention_mask: Tensor, token_mask: Tensor, temperature: float = 1.0
) -> TokenScores:
    """Score tokens given what precedes them.

    Args:
        model: a causal language model.
        input_ids: (B, L), padded on the right.
        attention_mask: (B, L), 1 for tokens, 0 for padding.
        token_mask: (B, L) bool, True for the tokens to score; never the first one, which nothing precedes.
        temperature: divides the logits, as when sampling.

    Returns:
        Log-probability of each token to be scored, and entropy (nats) of the distribution it came from.
    """
    if input_ids.shape != token_mask.shape or input_ids.shape != attention_mask.shape:
        raise ValueError(
            f"input_ids {tuple(input_ids.shape)}, attention_mask {tuple(attention_mask.shape)} and token_mask "
            f"{tuple(token_mask.shape)} must have one shape"
        )
    decoder, head = decoder_and_head(model)
    hidden = decoder(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
    wanted = token_mask[:, 1:]
    logits = head(hidden[:, :-1][wanted])
    logprobs = token_logprobs(logits, input_ids[:, 1:][wanted], temperature)
    spread = torch.zeros(input_ids.shape, dtype=logprobs.dtype, device=logprobs.device)
    return TokenScores(
        spread.masked_scatter(token_mask, logprobs),
        spread.masked_scatter(token_mask, entropy(logits.detach(), temperature)),
    )
