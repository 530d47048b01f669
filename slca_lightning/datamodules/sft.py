"""Demonstrations for the supervised stage."""

from __future__ import annotations

from functools import partial

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Sampler

from slca_lightning.datamodules.length_grouping import LengthGroupedSampler
from slca_lightning.errors import ConfigError, DataError
from slca_lightning.models.loading import load_tokenizer
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.demonstration import (
    EncodedDemonstration,
    SFTBatch,
    collate_demonstrations,
    encode_demonstration,
)
from slca_lightning.tasks.base import DemonstrationSource
from slca_lightning.types import Demonstration


class SFTDataModule(LightningDataModule):
    """Serves demonstrations, shuffled anew each epoch, as batches whose mask marks what the assistant writes.

    Args:
        model_path: where the policy's tokenizer is.
        demonstrations: to train on.
        val_demonstrations: to compute a validation loss on; None for none.
        batch_size: demonstrations in a micro-batch.
        max_tokens: longest demonstration; a longer one is an error, since cutting it would teach half a call.
        seed: decides the order.
        template_options: further arguments of the chat template.
        trust_remote_code: run code that the tokenizer's folder brings.
    """

    def __init__(
        self,
        model_path: str,
        demonstrations: DemonstrationSource,
        val_demonstrations: DemonstrationSource | None = None,
        batch_size: int = 16,
        max_tokens: int = 16384,
        seed: int = 0,
        template_options: dict[str, str | bool | int | float] | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__()
        if batch_size < 1 or max_tokens < 1:
            raise ConfigError(f"batch_size and max_tokens must be at least 1, got {batch_size} and {max_tokens}")
        if not len(demonstrations):
            raise DataError("there are no demonstrations to train on")
        self.model_path = model_path
        self.demonstrations = demonstrations
        self.val_demonstrations = val_demonstrations
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.seed = seed
        self.template_options = template_options
        self.trust_remote_code = trust_remote_code
        self._train: list[EncodedDemonstration] = []
        self._val: list[EncodedDemonstration] = []

    def setup(self, stage: str | None = None) -> None:
        """Encode all demonstrations. A second call does nothing."""
        if self._train:
            return
        self.tokenizer = load_tokenizer(self.model_path, self.trust_remote_code)
        chat = ChatRenderer(self.tokenizer, self.template_options)
        self._train = [self._encode(one, chat) for one in self.demonstrations]
        self._val = [self._encode(one, chat) for one in self.val_demonstrations or ()]

    def train_dataloader(self) -> DataLoader[EncodedDemonstration]:
        """Serve each rank its share, in an order that depends on the seed and the epoch alone."""
        replicas, rank = (self.trainer.world_size, self.trainer.global_rank) if self.trainer else (1, 0)
        lengths = [len(one.ids) for one in self._train]
        return self._loader(self._train, LengthGroupedSampler(lengths, self.batch_size, self.seed, rank, replicas))

    def val_dataloader(self) -> DataLoader[EncodedDemonstration] | list[DataLoader[EncodedDemonstration]]:
        """Serve the validation demonstrations in their order."""
        return self._loader(self._val, None) if self._val else []

    def _loader(
        self, encoded: list[EncodedDemonstration], sampler: Sampler[int] | None
    ) -> DataLoader[EncodedDemonstration]:
        pad_id = self.tokenizer.pad_token_id
        tokens = sum(sum(one.assistant_mask) for one in encoded)
        denominator = tokens / len(encoded) * self.batch_size
        collate = partial(collate_demonstrations, pad_id=pad_id, denominator=denominator)
        return DataLoader(encoded, self.batch_size, sampler=sampler, collate_fn=collate)  # type: ignore[arg-type]

    def _encode(self, demonstration: Demonstration, chat: ChatRenderer) -> EncodedDemonstration:
        encoded = encode_demonstration(demonstration, chat)
        if len(encoded.ids) > self.max_tokens:
            raise DataError(
                f"the demonstration of task {demonstration.task.task_id} has {len(encoded.ids)} tokens, more than "
                f"max_tokens = {self.max_tokens}; raise it, or leave that demonstration out"
            )
        return encoded


__all__ = ["SFTBatch", "SFTDataModule"]
