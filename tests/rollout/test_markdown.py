"""Rollouts as markdown: nothing lost, nothing interpreted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from tensorboard.plugin_util import markdown_to_safe_html

from slca_lightning.rollout.markdown import code_block, escaped, rollout_markdown, shortened
from slca_lightning.types import ProcessReward, RewardBreakdown, Rollout, Score, ToolTask, Turn

WORDS = {1: "<|im_start|>user\n", 2: "# Hi", 3: "<tool_call>", 4: "{}</tool_call>", 5: "<b>7</b>", 6: "```\nSeven."}


def decode(ids: Sequence[int]) -> str:
    return "".join(WORDS[i] for i in ids)


def rollout(last_has_call: bool = False) -> Rollout:
    return Rollout(
        ToolTask("world_1*x*", (), (), (), ()),
        member=2,
        weights_version=5,
        prompt_ids=(1, 2),
        response_ids=(3, 4, 5, 6),
        policy_mask=(True, True, False, True),
        logprobs=(0.0,) * 4,
        turns=(Turn("", 0, 2, True), Turn("", 3, 4, last_has_call)),
        finish_reason="stop",
    )


REWARD = RewardBreakdown(
    ProcessReward(1, 1, 1, 1, 1, 1, 0), Score(0.75), Score.failed("judge <down>"), Score.failed("judge <down>")
)
ADVANTAGES = torch.tensor([0.5, 1.0, 0.0, -0.25, 0.0, 0.0])


def test_segments_tokens_rewards_and_advantages_are_marked() -> None:
    lines = rollout_markdown(rollout(), REWARD, decode, ADVANTAGES).split("\n\n")
    assert lines == [
        r"### world\_1\*x\*, member 2",
        "finished: stop, weights version 5, R_tool 0.750, R_summary failed (judge &lt;down&gt;), "
        "total failed (judge &lt;down&gt;)",
        "**[prompt]** 2 tokens",
        "    <|im_start|>user\n    # Hi",
        "**[tool]** 2 tokens, R_tool 0.750, mean advantage +0.750",
        "    <tool_call>{}</tool_call>",
        "**[injected]** 1 tokens",
        "    <b>7</b>",
        "**[summary]** 1 tokens, R_summary failed (judge &lt;down&gt;), mean advantage -0.250",
        "    ```\n    Seven.",
    ]


@pytest.mark.parametrize(("boundary", "label"), [("structural", "[tool]"), ("last_run", "[summary]")])
def test_a_last_turn_that_calls(boundary: str, label: str) -> None:
    text = rollout_markdown(rollout(last_has_call=True), REWARD, decode, boundary=boundary)
    assert text.split("**")[-2] == label
    assert "advantage" not in text


def test_tensorboard_shows_tags_as_they_are() -> None:
    page = markdown_to_safe_html(rollout_markdown(rollout(), REWARD, decode, ADVANTAGES))
    assert "&lt;tool_call&gt;{}&lt;/tool_call&gt;" in page
    assert "&lt;b&gt;7&lt;/b&gt;" in page
    assert "<b>" not in page
    assert page.count("<h1>") == 0  # the user's "# Hi" is text
    assert "world_1*x*" in page


def test_shortened_says_what_it_leaves_out() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefgh", 5) == "abc\n[... 3 characters left out ...]\ngh"
    assert shortened("abcd", 0) == "\n[... 4 characters left out ...]\n"


@pytest.mark.parametrize("text", ["", "a", "a\n\n\nb", "```\n~~~", "a\u2028# b\r\n* c"])
def test_no_text_breaks_out_of_its_block(text: str) -> None:
    assert all(line.startswith("    ") for line in code_block(text).splitlines())


def test_escaped_text_stays_on_its_line() -> None:
    assert escaped("a\n# b <i>") == r"a \# b &lt;i&gt;"
