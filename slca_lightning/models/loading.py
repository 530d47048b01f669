"""Loading policies and tokenizers from folders, and telling whether two are the same."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from slca_lightning.errors import ConfigError

Dtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class LoRA:
    """A fresh low-rank adapter to train in place of the whole policy."""

    rank: int = 16
    alpha: float = 32.0
    target_modules: str | list[str] = "all-linear"
    """Names of the layers to adapt, or ``all-linear``."""

    def __post_init__(self) -> None:
        if self.rank < 1 or self.alpha <= 0:
            raise ConfigError(f"LoRA needs rank >= 1 and alpha > 0, got {self}")


def load_tokenizer(path: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model.

    Args:
        path: a folder, or a name on the Hugging Face hub.
        trust_remote_code: run code that the model's folder brings. Off unless you trust its author.

    Raises:
        ConfigError: where there is none, or it has no token to pad with.
    """
    _check_folder(path)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no tokenizer can be loaded from {path!r}: {error}") from error
    if tokenizer.pad_token_id is None:
        raise ConfigError(f"the tokenizer at {path!r} has no pad token; set one, such as its eos token, and save it")
    return tokenizer


def load_policy(
    path: str,
    dtype: Dtype = "float32",
    attn_implementation: str = "sdpa",
    random_weights: bool = False,
    lora: LoRA | None = None,
    trust_remote_code: bool = False,
) -> nn.Module:
    """Load a causal language model to train.

    Args:
        path: a folder, or a name on the Hugging Face hub.
        dtype: of the weights.
        attn_implementation: as transformers names them: ``sdpa``, ``eager``, ``flash_attention_2``.
        random_weights: take only the configuration and initialise the weights, from torch's random state.
        lora: add a fresh adapter; all other weights are frozen.
        trust_remote_code: run code that the model's folder brings. Off unless you trust its author.

    Raises:
        ConfigError: where there is no such model.
    """
    _check_folder(path)
    options: dict[str, Any] = {
        "dtype": getattr(torch, dtype),
        "attn_implementation": attn_implementation,
        "trust_remote_code": trust_remote_code,
    }
    try:
        if random_weights:
            config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
            model = AutoModelForCausalLM.from_config(config, **options)
        else:
            model = AutoModelForCausalLM.from_pretrained(path, **options)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no model can be loaded from {path!r}: {error}") from error
    policy: nn.Module = model.eval()  # dropout would make the ratio of new to old probabilities noisy
    return policy if lora is None else with_adapter(policy, lora)


def with_adapter(policy: nn.Module, lora: LoRA) -> nn.Module:
    """Return ``policy`` with a fresh adapter, which alone is trainable. At first it changes nothing."""
    import peft

    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type, unused-ignore]
        target_modules=lora.target_modules,
        task_type="CAUSAL_LM",
    )
    adapted: nn.Module = peft.get_peft_model(policy, config).eval()  # type: ignore[arg-type, unused-ignore]
    return adapted


def frozen_copy(policy: nn.Module) -> nn.Module:
    """Return a copy that no optimiser will ever change."""
    return copy.deepcopy(policy).requires_grad_(False).eval()


def save_policy(policy: nn.Module, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    """Write a policy and its tokenizer as a folder that transformers and vLLM load. Adapters are merged into a copy."""
    from peft import PeftModel

    model: Any = policy
    if isinstance(policy, PeftModel):
        # Merged in a copy: merging in place and back again changes the base weights a little each time.
        model = copy.deepcopy(model).merge_and_unload()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a text that is equal for tokenizers with equal vocabularies."""
    return _digest(json.dumps(sorted(tokenizer.get_vocab().items())).encode())


def weights_fingerprint(state: Mapping[str, torch.Tensor]) -> str:
    """Return a text that differs, but for a negligible chance, where any bit of a weight, its name or shape differs.

    Of the bytes, not of sums: those depend on the number of threads, and a run may resume on another machine.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        whole: Any = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        digest.update(f"{name} {whole.dtype} {tuple(whole.shape)}".encode())
        digest.update(whole.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _check_folder(path: str) -> None:
    looks_local = path.startswith((".", "/", "~")) or path.count("/") > 1
    if looks_local and not Path(path).is_dir():
        raise ConfigError(f"there is no model folder {path!r}; slca-tiny --out {path} makes a small one to try")
