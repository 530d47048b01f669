"""What both training stages share: a policy, its optimiser, and checkpoints that know where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import nn

from slca_lightning.errors import ConfigError
from slca_lightning.models.loading import (
    Dtype,
    LoRA,
    load_policy,
    load_tokenizer,
    tokenizer_fingerprint,
    weights_fingerprint,
)

_CHECKPOINT_KEY = "slca_lightning"


class PolicyModule(LightningModule):
    """A causal language model to train.

    Args:
        model_path: folder or hub name of the model and its tokenizer.
        optimizer: makes an optimiser of the trainable parameters.
        lr_scheduler: makes a scheduler of it, stepped after each optimiser step; None keeps the learning rate.
        lora: train a fresh adapter instead of all weights.
        dtype: of the weights.
        attn_implementation: as transformers names them.
        random_weights: start from random weights instead of the saved ones.
        trust_remote_code: run code that the model's folder brings.
    """

    def __init__(
        self,
        model_path: str,
        optimizer: OptimizerCallable = torch.optim.AdamW,
        lr_scheduler: LRSchedulerCallable | None = None,
        lora: LoRA | dict[str, Any] | None = None,
        dtype: Dtype = "float32",
        attn_implementation: str = "sdpa",
        random_weights: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__()
        # Those of subclasses too. Checkpoints are loaded weights-only, which admits plain values and nothing else.
        self.save_hyperparameters(ignore=["optimizer", "lr_scheduler", "lora"])
        self.save_hyperparameters({"lora": asdict(lora) if isinstance(lora, LoRA) else lora})
        self.model_path = model_path
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.lora = LoRA(**lora) if isinstance(lora, Mapping) else lora
        self.dtype_name: Dtype = dtype
        self.attn_implementation = attn_implementation
        self.random_weights = random_weights
        self.trust_remote_code = trust_remote_code
        self.tokenizer = load_tokenizer(model_path, trust_remote_code)
        self.policy: nn.Module | None = None

    def configure_model(self) -> None:
        """Load the policy. Does nothing where it is there already."""
        if self.policy is None:
            self.policy = load_policy(
                self.model_path,
                self.dtype_name,
                self.attn_implementation,
                self.random_weights,
                self.lora,
                self.trust_remote_code,
            )

    @property
    def model(self) -> nn.Module:
        """The policy; there from :meth:`configure_model` on."""
        if self.policy is None:
            raise ConfigError("call configure_model() first; the Trainer does so by itself")
        return self.policy

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Give the optimiser the trainable parameters only."""
        optimizer = self.optimizer([p for p in self.model.parameters() if p.requires_grad])
        if self.lr_scheduler is None:
            return optimizer
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": self.lr_scheduler(optimizer), "interval": "step"},
        }

    def frozen_modules(self) -> dict[str, nn.Module]:
        """Return submodules that never change: they are left out of checkpoints and checked when one is loaded."""
        return {}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave out what never changes, and note what it was and which tokenizer the weights are for."""
        frozen = self.frozen_modules()
        checkpoint["state_dict"] = {
            name: value for name, value in checkpoint["state_dict"].items() if name.split(".")[0] not in frozen
        }
        checkpoint[_CHECKPOINT_KEY] = {
            "tokenizer": tokenizer_fingerprint(self.tokenizer),
            **{name: weights_fingerprint(module.state_dict()) for name, module in frozen.items()},
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that the checkpoint is for this tokenizer and these frozen weights.

        Raises:
            ConfigError: where it is not.
        """
        self.configure_model()
        noted: Mapping[str, str] = checkpoint.get(_CHECKPOINT_KEY, {})
        if noted and noted["tokenizer"] != tokenizer_fingerprint(self.tokenizer):
            raise ConfigError(
                f"the checkpoint was made with another tokenizer than the one at {self.model_path!r}: its token ids "
                "would mean other texts; set model_path to the model that the checkpoint was trained from"
            )
        for name, module in self.frozen_modules().items():
            state = module.state_dict()
            if name in noted and noted[name] != weights_fingerprint(state):
                raise ConfigError(
                    f"the {name} of the checkpoint is not the model that is at {self.model_path!r} now; "
                    "put the original weights back, or start a new run from the present ones"
                )
            checkpoint["state_dict"].update({f"{name}.{key}": value for key, value in state.items()})
