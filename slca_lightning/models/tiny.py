"""A tiny policy built on the spot: Qwen3 architecture, about a million parameters, its own BPE tokenizer.

``slca-tiny --out DIR`` writes a folder that ``transformers`` and vLLM load like any other model. It is made to be
trained on toolworld within minutes on a laptop; the same classes, template and tags serve the real models.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from slca_lightning.errors import ConfigError
from slca_lightning.models.loading import load_tokenizer
from slca_lightning.tasks.toolworld import ToolWorldDemonstrations

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

HERMES_TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
    "<think>",
    "</think>",
)
"""Tags that are one token each. They are not special: decoding keeps them, as in Qwen3's tokenizer."""

_PIECES = r"\d{1,2}|\n|(?<![a-z])[A-Z][A-Za-z]*|(?:[^A-Z\d\n]|(?<=[a-z])[A-Z])+"
"""What merges may not cross: two digits, a line break, a capitalised word, or the text between those.

Numbers and names are then the same tokens in a question, a call and a summary, and can be copied. The text between may
merge across words: the boilerplate of JSON Schemas becomes a few tokens, and prompts less than half as long."""

CHAT_TEMPLATE = r"""
{%- set system = messages[0].content if messages[0].role == 'system' else '' -%}
{%- if tools or system -%}
{{- '<|im_start|>system\n' + system -}}
{%- if tools -%}
{{- ('\n\n' if system else '') + 'Tools:\n<tools>\n' -}}
{%- for tool in tools -%}{{- (tool | tojson) + '\n' -}}{%- endfor -%}
{{- '</tools>\nCall with <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>' -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- elif message.role != 'system' or not loop.first -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""
"""A Hermes chat template: tools in the system turn, results in a user turn inside ``<tool_response>``."""


def corpus(num_demonstrations: int = 2000) -> Iterator[str]:
    """Yield the texts that the tokenizer is trained on: toolworld conversations, as the template writes them."""
    renderer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=CHAT_TEMPLATE)
    for demonstration in ToolWorldDemonstrations(num_demonstrations, seed=0):
        messages = [dict(message) for message in demonstration.task.messages]
        for turn in demonstration.turns:
            messages.append({"role": "assistant", "content": turn.text})
            messages += [{"role": "tool", "content": result} for result in turn.results]
        tools: list[Any] = [dict(tool) for tool in demonstration.task.tools]
        yield str(renderer.apply_chat_template(messages, tools=tools, tokenize=False))


def build_tokenizer(vocab_size: int = 2048) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE tokenizer on toolworld.

    Args:
        vocab_size: number of tokens, all included; at least 300 (256 bytes, tags and a few merges).
    """
    if vocab_size < 300:
        raise ConfigError(f"vocab_size must be at least 300 (bytes and tags alone need 267), got {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = [END_OF_TEXT, TURN_START, TURN_END]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(HERMES_TAGS),
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in HERMES_TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def build_model(
    tokenizer: PreTrainedTokenizerBase, hidden_size: int = 160, num_layers: int = 2, seed: int = 0
) -> Qwen3ForCausalLM:
    """Make a randomly initialised Qwen3 model for ``tokenizer``; the same seed gives the same weights.

    Args:
        tokenizer: whose vocabulary the embeddings are for.
        hidden_size: a multiple of 32 (the size of an attention head).
        num_layers: number of decoder layers.
        seed: seed of the initial weights. The global random state is left as it was.
    """
    if hidden_size % 32:
        raise ConfigError(f"hidden_size must be a multiple of 32 (the size of a head), got {hidden_size}")
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=hidden_size // 32,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Qwen3ForCausalLM = Qwen3ForCausalLM(config).eval()
    return model


def build_tiny_policy(
    out: str | Path,
    tokenizer_path: str | Path | None = None,
    hidden_size: int = 160,
    num_layers: int = 2,
    vocab_size: int = 2048,
    seed: int = 0,
) -> Path:
    """Write a tiny policy with its tokenizer into the folder ``out``, and return that folder.

    Args:
        out: the folder; made where it is missing.
        tokenizer_path: use the tokenizer of this folder instead of training one on toolworld.
        hidden_size: width of the model.
        num_layers: depth of the model.
        vocab_size: size of the trained vocabulary; without effect where a tokenizer is given.
        seed: seed of the initial weights.

    Raises:
        ConfigError: where the sizes do not fit each other, or the tokenizer's folder does not exist.
    """
    if tokenizer_path is not None and not Path(tokenizer_path).is_dir():
        raise ConfigError(f"no tokenizer folder at {tokenizer_path}; give a folder with tokenizer.json in it")
    tokenizer = load_tokenizer(str(tokenizer_path)) if tokenizer_path else build_tokenizer(vocab_size)
    model = build_model(tokenizer, hidden_size, num_layers, seed)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(out)
    model.save_pretrained(out)
    return out


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of ``slca-tiny``."""
    parser = argparse.ArgumentParser(prog="slca-tiny", description="Build a tiny, untrained tool-calling policy.")
    parser.add_argument("--out", required=True, help="folder to write the model and its tokenizer to")
    parser.add_argument("--tokenizer", help="folder of a tokenizer to use instead of training one on toolworld")
    parser.add_argument("--hidden-size", type=int, default=160)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(args)
    try:
        out = build_tiny_policy(
            options.out,
            options.tokenizer,
            options.hidden_size,
            options.num_layers,
            options.vocab_size,
            options.seed,
        )
    except ConfigError as error:
        parser.error(str(error))
    sys.stdout.write(f"wrote an untrained policy to {out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
