"""Demonstrations as token ids, in exactly the form that rollouts have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.types import Demonstration


class EncodedDemonstration(NamedTuple):
    """A demonstration in token ids."""

    ids: tuple[int, ...]
    """Prompt and response."""
    assistant_mask: tuple[bool, ...]
    """As long as the ids; True for what the assistant writes, the token that ends its turn included."""


class SFTBatch(NamedTuple):
    """A micro-batch of demonstrations; all but the denominator are (B, L), padded on the right."""

    input_ids: Tensor
    attention_mask: Tensor
    """1 for tokens, 0 for padding."""
    assistant_mask: Tensor
    """True for the tokens that are learnt."""
    denominator: Tensor
    """Scalar: what the sum of the losses is divided by, the same for every micro-batch."""


def encode_demonstration(demonstration: Demonstration, chat: ChatRenderer) -> EncodedDemonstration:
    """Encode a demonstration turn by turn, as a rollout comes about: prompt, assistant's turn, injected results ..."""
    ids = chat.prompt_ids(demonstration.task)
    mask = [False] * len(ids)
    for turn in demonstration.turns:
        sampled = [*chat.encode(turn.text), chat.end_of_turn_id]
        injected = chat.injected_ids(turn.results, turn_ended=True) if turn.results else []
        ids += sampled + injected
        mask += [True] * len(sampled) + [False] * len(injected)
    return EncodedDemonstration(tuple(ids), tuple(mask))


def collate_demonstrations(encoded: Sequence[EncodedDemonstration], pad_id: int, denominator: float) -> SFTBatch:
    """Pad demonstrations to one length."""
    width = max(len(one.ids) for one in encoded)
    input_ids = torch.full((len(encoded), width), pad_id)
    assistant_mask = torch.zeros(len(encoded), width, dtype=torch.bool)
    attention_mask = torch.zeros(len(encoded), width, dtype=torch.long)
    for row, one in enumerate(encoded):
        input_ids[row, : len(one.ids)] = torch.tensor(one.ids)
        assistant_mask[row, : len(one.ids)] = torch.tensor(one.assistant_mask)
        attention_mask[row, : len(one.ids)] = 1
    return SFTBatch(input_ids, attention_mask, assistant_mask, torch.tensor(denominator))
