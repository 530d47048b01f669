"""Policies go to folders and come back the same; fingerprints tell when they are not."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from slca_lightning.errors import ConfigError
from slca_lightning.models.loading import (
    LoRA,
    frozen_copy,
    load_policy,
    load_tokenizer,
    save_policy,
    tokenizer_fingerprint,
    weights_fingerprint,
    with_adapter,
)
from slca_lightning.models.tiny import build_tokenizer

IDS = torch.tensor([[5, 80, 33, 200, 7]])


@pytest.mark.parametrize("load", [load_policy, load_tokenizer])
def test_missing_folders_say_what_to_do(load, tmp_path):
    with pytest.raises(ConfigError, match="slca-tiny --out"):
        load(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="can be loaded from"):
        load(str(tmp_path / "empty"))


def test_tokenizer_without_padding(tiny_tokenizer, tmp_path):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no pad token"):
        load_tokenizer(str(tmp_path))


def test_round_trip(tiny_model, tiny_tokenizer, tmp_path):
    save_policy(tiny_model, tiny_tokenizer, tmp_path)
    for model in (AutoModelForCausalLM.from_pretrained(tmp_path).eval(), load_policy(str(tmp_path))):
        assert torch.equal(model(IDS).logits, tiny_model(IDS).logits)
        assert weights_fingerprint(model.state_dict()) == weights_fingerprint(tiny_model.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer_fingerprint(tokenizer) == tokenizer_fingerprint(tiny_tokenizer)
    assert tokenizer.chat_template == tiny_tokenizer.chat_template


def test_load_options(tiny_model, tmp_path):
    tiny_model.save_pretrained(tmp_path)
    half = load_policy(str(tmp_path), dtype="bfloat16")
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    assert not half.training
    torch.manual_seed(1)
    fresh = load_policy(str(tmp_path), random_weights=True)
    assert fresh.config.hidden_size == tiny_model.config.hidden_size
    assert not torch.equal(fresh(IDS).logits, tiny_model(IDS).logits)
    adapted = load_policy(str(tmp_path), lora=LoRA(rank=2))
    assert all("lora_" in name for name, p in adapted.named_parameters() if p.requires_grad)


def test_adapters_are_merged_in_a_copy(tiny_model, tiny_tokenizer, tmp_path):
    """Merging in place and back changes weights a little each time, in bfloat16 most of all."""
    adapted = with_adapter(copy.deepcopy(tiny_model).bfloat16(), LoRA(rank=4))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    for i in range(5):
        save_policy(adapted, tiny_tokenizer, tmp_path / str(i))
    after = adapted.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    exported = [AutoModelForCausalLM.from_pretrained(tmp_path / str(i)).eval() for i in (0, 4)]
    states = [weights_fingerprint(model.state_dict()) for model in exported]
    assert states[0] == states[1] != weights_fingerprint(copy.deepcopy(tiny_model).bfloat16().state_dict())
    logits, expected = exported[0](IDS).logits.float(), adapted(IDS).logits.float()
    plain = copy.deepcopy(tiny_model).bfloat16()(IDS).logits.float()
    # bfloat16 has 8 bits: rounding moves the logits by about a hundredth, the adapter by much more.
    assert (logits - expected).abs().max() < 0.25 * (plain - expected).abs().max()


def test_frozen_copy(tiny_model):
    model = copy.deepcopy(tiny_model)
    reference = frozen_copy(model)
    assert not any(p.requires_grad for p in reference.parameters())
    assert all(p.requires_grad for p in model.parameters())
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert torch.equal(reference(IDS).logits, tiny_model(IDS).logits)


def test_weights_fingerprint():
    state = {"a": torch.randn(64, 1024, generator=torch.Generator().manual_seed(0)), "b": torch.tensor(1.0)}
    original = weights_fingerprint(state)
    assert weights_fingerprint(dict(reversed(state.items()))) == original
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)  # sums would differ in their last bit
        assert weights_fingerprint(state) == original
    finally:
        torch.set_num_threads(threads)
    nudged = state["a"].clone()
    nudged[3, 5] = torch.nextafter(nudged[3, 5], torch.tensor(9.0))
    others = [
        {**state, "a": nudged},
        {**state, "a": state["a"].flip(0)},  # the same numbers elsewhere
        {**state, "a": state["a"].reshape(1024, 64)},
        {**state, "a": state["a"].bfloat16()},
        {"a": state["a"], "c": state["b"]},
        {"a": state["a"]},
    ]
    assert len({original, *map(weights_fingerprint, others)}) == 1 + len(others)


def test_tokenizer_fingerprint(tiny_tokenizer):
    other = copy.deepcopy(tiny_tokenizer)
    other.add_tokens(["<new>"])
    assert tokenizer_fingerprint(other) != tokenizer_fingerprint(tiny_tokenizer)
    assert tokenizer_fingerprint(build_tokenizer(320)) != tokenizer_fingerprint(tiny_tokenizer)


@pytest.mark.parametrize("options", [{"rank": 0}, {"alpha": 0.0}])
def test_lora_is_checked(options):
    with pytest.raises(ConfigError, match="LoRA"):
        LoRA(**options)
