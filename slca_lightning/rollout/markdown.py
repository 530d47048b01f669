"""A rollout as markdown that people can read: its segments, tokens, rewards and advantages."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence

from torch import Tensor

from slca_lightning.functional import segment_masks
from slca_lightning.types import RewardBreakdown, Rollout, Score

Decode = Callable[[Sequence[int]], str]
"""Turns token ids into text and keeps special tokens, such as a tokenizer's ``decode``."""


def rollout_markdown(
    rollout: Rollout,
    reward: RewardBreakdown,
    decode: Decode,
    advantages: Tensor | None = None,
    boundary: str = "structural",
    max_prompt_chars: int = 600,
) -> str:
    """Write a rollout as markdown.

    Texts stand in indented code blocks, where neither markdown nor HTML means anything: tags show as they are.

    Args:
        rollout: what to show. Everything is decoded from its token ids.
        reward: what was scored of it.
        decode: turns token ids into text.
        advantages: (R,) at least as long as the response; each turn then says the mean over its tokens.
        boundary: how segments are told apart: ``structural`` or ``last_run``.
        max_prompt_chars: a longer prompt is shortened in the middle, which is then said.
    """
    blocks = [
        f"### {escaped(rollout.task.task_id)}, member {rollout.member}",
        f"finished: {rollout.finish_reason}, weights version {rollout.weights_version}, {_rewards(reward)}",
    ]
    if rollout.failure is not None:
        blocks.append(f"failure: {escaped(rollout.failure)}")
    blocks += [
        f"**[prompt]** {len(rollout.prompt_ids)} tokens",
        code_block(shortened(decode(rollout.prompt_ids), max_prompt_chars)),
    ]
    ends = [turn.start for turn in rollout.turns[1:]] + [len(rollout.response_ids)]
    segments = _turn_segments(rollout, boundary)
    for turn, segment, injected_end in zip(rollout.turns, segments, ends, strict=True):
        score = reward.tool if segment == "tool" else reward.summary
        label = f"**[{segment}]** {turn.end - turn.start} tokens, R_{segment} {_score(score)}"
        if advantages is not None and turn.end > turn.start:
            label += f", mean advantage {float(advantages[turn.start : turn.end].double().mean()):+.3f}"
        blocks += [label, code_block(decode(rollout.response_ids[turn.start : turn.end]))]
        if injected_end > turn.end:
            blocks.append(f"**[injected]** {injected_end - turn.end} tokens")
            blocks.append(code_block(decode(rollout.response_ids[turn.end : injected_end])))
    return "\n\n".join(blocks)


def code_block(text: str) -> str:
    """Return ``text`` as an indented code block, which no text can break out of."""
    return "\n".join(f"    {line}" for line in text.splitlines() or ["(empty)"])


def shortened(text: str, max_chars: int) -> str:
    """Return ``text``, or its beginning and end, ``max_chars`` together, and a note of how much is left out."""
    if len(text) <= max_chars:
        return text
    head = (max_chars + 1) // 2
    tail = max_chars - head
    left_out = len(text) - max_chars
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[len(text) - tail :]}"


def escaped(text: str) -> str:
    """Return ``text`` on one line, so that markdown and HTML show it as it is."""
    line = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~])", r"\\\1", html.escape(line, quote=False))


def _turn_segments(rollout: Rollout, boundary: str) -> list[str]:
    _, summary = segment_masks([list(rollout.policy_mask)], [rollout.run_has_call], boundary)
    return ["summary" if summary[0, turn.start : turn.end].any() else "tool" for turn in rollout.turns]


def _rewards(reward: RewardBreakdown) -> str:
    scores = {"R_tool": reward.tool, "R_summary": reward.summary, "total": reward.total}
    return ", ".join(f"{name} {_score(score)}" for name, score in scores.items())


def _score(score: Score) -> str:
    if score.value is not None:
        return f"{score.value:.3f}"
    return f"{score.status.value} ({escaped(score.reason)})"
