"""The tiny policy is the same wherever it is built, and its tokenizer loses nothing."""

import json
import unicodedata

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from slca_lightning.errors import ConfigError
from slca_lightning.models.loading import load_policy, load_tokenizer
from slca_lightning.models.tiny import HERMES_TAGS, build_model, build_tiny_policy, build_tokenizer, main


def test_building_is_deterministic(tmp_path):
    folders = [build_tiny_policy(tmp_path / name, hidden_size=64, num_layers=1) for name in "ab"]
    names = {path.name for path in folders[0].iterdir()}
    assert {"tokenizer.json", "model.safetensors", "config.json"} <= names
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_defaults_have_about_a_million_parameters(tiny_tokenizer):
    count = sum(p.numel() for p in build_model(tiny_tokenizer).parameters())
    assert 0.7e6 < count < 1.3e6


def test_seed_decides_the_weights_and_leaves_the_global_state(tiny_tokenizer):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    weights = [build_model(tiny_tokenizer, 64, 1, seed).lm_head.weight for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@given(st.text())
def test_every_text_round_trips(text):
    # hypothesis and fixtures of a session do not mix: the tokenizer is built once below
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids) == text
    assert max(ids, default=0) < len(TOKENIZER)


TOKENIZER = build_tokenizer(320)


def test_every_character_class_and_byte_round_trips(tiny_tokenizer):
    seen = {}
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            seen.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    text = "".join(c for group in seen.values() for c in group[:: max(1, len(group) // 40)])
    ids = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tiny_tokenizer.decode(ids) == text
    assert set(ByteLevel.alphabet()) <= set(tiny_tokenizer.get_vocab())  # each byte is a token: no text is without one


def test_tags_are_single_tokens(tiny_tokenizer):
    for tag in (*HERMES_TAGS, "<|im_start|>", "<|im_end|>", "<|endoftext|>"):
        assert len(tiny_tokenizer(f"a{tag}b", add_special_tokens=False)["input_ids"]) == 3
        assert tiny_tokenizer.decode(tiny_tokenizer(tag)["input_ids"]) == tag
    assert tiny_tokenizer.eos_token == "<|im_end|>"  # noqa: S105
    assert tiny_tokenizer.pad_token == "<|endoftext|>"  # noqa: S105


def test_chat_template(tiny_tokenizer):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<tool_call>\n{}\n</tool_call>"},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "Done"},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

    def render(**options):
        return tiny_tokenizer.apply_chat_template(tokenize=False, **options)

    chat = (
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n{}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nDone<|im_end|>\n"
    )
    assert render(conversation=messages[1:]) == chat
    assert (
        render(conversation=messages[1:2], add_generation_prompt=True)
        == chat[: chat.index("assistant")] + "assistant\n"
    )
    assert render(conversation=messages) == "<|im_start|>system\nBe brief.<|im_end|>\n" + chat
    both = render(conversation=messages, tools=[tool])
    assert both.endswith(chat)
    head = both.removesuffix(chat)
    assert head.startswith("<|im_start|>system\nBe brief.\n\n")
    assert head.endswith("<|im_end|>\n")
    assert json.loads(head.split("<tools>\n")[1].split("\n</tools>")[0]) == tool
    assert "Be brief" not in (alone := render(conversation=messages[1:], tools=[tool]))
    assert alone == both.replace("Be brief.\n\n", "")


def test_command_line(tmp_path, tiny_tokenizer, capsys):
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    arguments = ["--out", str(tmp_path / "deep" / "out"), "--tokenizer", str(tmp_path / "tokenizer")]
    assert main([*arguments, "--hidden-size", "32", "--num-layers", "1", "--seed", "3"]) == 0
    assert "deep" in capsys.readouterr().out
    model = load_policy(str(tmp_path / "deep" / "out"))
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (32, 1)
    assert model.config.vocab_size == len(load_tokenizer(str(tmp_path / "deep" / "out"))) == len(tiny_tokenizer)
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--hidden-size", "50"])
    assert stop.value.code == 2
    assert "multiple of 32" in capsys.readouterr().err


def test_sizes_are_checked(tiny_tokenizer, tmp_path):
    with pytest.raises(ConfigError, match="vocab_size"):
        build_tokenizer(299)
    with pytest.raises(ConfigError, match="hidden_size"):
        build_model(tiny_tokenizer, hidden_size=100)
    with pytest.raises(ConfigError, match="no tokenizer folder"):
        build_tiny_policy(tmp_path / "out", tokenizer_path=tmp_path / "none")
