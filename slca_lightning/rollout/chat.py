"""Conversations as token ids: a prompt is encoded once, tool results are appended, nothing is ever encoded again.

Only *new* messages are rendered. The text that a chat template puts between two assistant turns is found as a
difference: a conversation is rendered with a marker as the assistant's turn, and what follows the marker is what has
to be injected. So the ids that the policy sampled stay what they were, whatever a template would make of them later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from slca_lightning.errors import ConfigError
from slca_lightning.types import Message, ToolTask

_MARKER = "assistant-turn-5f1c"
"""Stands for the assistant's turn while rendering. What precedes it holds no user text, so it cannot be confused."""

TOOL_RESPONSE = "<tool_response>"
"""Only the environment opens this tag; a policy that writes it is inventing results, and its turn ends there."""


class ChatRenderer:
    """Renders prompts and tool results to token ids with a tokenizer's chat template.

    Args:
        tokenizer: a tokenizer with a chat template that knows the role ``tool``.
        template_options: further arguments of the template, such as ``enable_thinking`` of Qwen3.

    Raises:
        ConfigError: where the tokenizer has no chat template or no end-of-turn token, or where the template does not
            put that token after an assistant's turn.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_options: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise ConfigError(f"the tokenizer at {tokenizer.name_or_path!r} has no chat template; use a chat model's")
        if tokenizer.eos_token_id is None:
            raise ConfigError(f"the tokenizer at {tokenizer.name_or_path!r} has no end-of-turn (eos) token")
        self.tokenizer = tokenizer
        self.template_options = dict(template_options or {})
        self.end_of_turn_id = int(tokenizer.eos_token_id)
        others = {tokenizer.pad_token_id} - {None, self.end_of_turn_id}
        self.stop_token_ids = (self.end_of_turn_id, *others)
        self._end_of_turn = str(tokenizer.eos_token)
        if not self._after_turn(["probe"]).startswith(self._end_of_turn):
            raise ConfigError(
                f"the chat template of {tokenizer.name_or_path!r} does not end an assistant's turn with its eos token "
                f"{self._end_of_turn!r}; set the tokenizer's eos_token to the token that ends a turn"
            )

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, nothing added."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, special tokens included."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def turn_text(self, ids: Sequence[int]) -> str:
        """Return the text of a sampled turn without the token that ended it."""
        return self.decode(ids[:-1] if ids and ids[-1] in self.stop_token_ids else ids)

    def same_text(self, first: str, second: str) -> bool:
        """Whether two texts are one to the tokenizer, which may normalise Unicode, as Qwen's does (NFC)."""
        normalizer = getattr(getattr(self.tokenizer, "backend_tokenizer", None), "normalizer", None)
        if first == second or normalizer is None:
            return first == second
        return bool(normalizer.normalize_str(first) == normalizer.normalize_str(second))

    def prompt_text(self, task: ToolTask) -> str:
        """Return the prompt of ``task``, up to where the assistant begins to write."""
        return self._render(task.messages, task)

    def prompt_ids(self, task: ToolTask) -> list[int]:
        """Return the ids of :meth:`prompt_text`."""
        return self.encode(self.prompt_text(task))

    def injected_ids(self, results: Sequence[str], turn_ended: bool) -> list[int]:
        """Return the ids between a turn that called tools and the next turn.

        Args:
            results: contents of the tool results, in order; at least one.
            turn_ended: whether the policy itself sampled the end-of-turn token. Where it did not, that token is
                part of what is injected, and thereby never trained on.
        """
        text = self._after_turn(results)
        return self.encode(text.removeprefix(self._end_of_turn) if turn_ended else text)

    def conversation_text(self, task: ToolTask, turns: Sequence[tuple[str, Sequence[str]]]) -> str:
        """Render a whole conversation from scratch, as a chat server would that is sent its messages.

        Args:
            task: the task.
            turns: texts of the assistant's turns, each with the contents of the results that followed. Where the last
                turn has results, the text goes on to where the assistant begins its next turn.
        """
        messages = list(task.messages)
        for text, results in turns:
            messages.append({"role": "assistant", "content": text})
            messages += [{"role": "tool", "content": result} for result in results]
        return self._render(messages, task, add_generation_prompt=not turns or bool(turns[-1][1]))

    def _after_turn(self, results: Sequence[str]) -> str:
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARKER}]
        messages += [{"role": "tool", "content": result} for result in results]
        _, found, after = self._render(messages, None).partition(_MARKER)
        if not found:
            raise ConfigError(f"the chat template of {self.tokenizer.name_or_path!r} does not show assistant turns")
        return after

    def _render(self, messages: Sequence[Message], task: ToolTask | None, add_generation_prompt: bool = True) -> str:
        shows_tools = task is not None and not task.tools_in_prompt
        tools: list[Any] = [dict(tool) for tool in task.tools] if task is not None and shows_tools else []
        text = self.tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=tools or None,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            **self.template_options,
        )
        return str(text)
