"""The supervised stage: imitate demonstrations, before reinforcement learning has anything to reinforce."""

from __future__ import annotations

from torch import Tensor

from slca_lightning.functional import masked_sum
from slca_lightning.models.forward import token_scores
from slca_lightning.modules.policy import PolicyModule
from slca_lightning.rollout.demonstration import SFTBatch


class SFTModule(PolicyModule):
    """Maximises the likelihood of what the assistant writes: L = -1/D Σ_t log π(t), t over its tokens alone.

    Prompts and tool results are read, not learnt. D is the *average* number of such tokens in a micro-batch, so every
    token weighs the same. Divided by its own number of tokens, a batch of short answers would weigh each of them more,
    and batches are cut by length: answers that omit their calls are the short ones, and would be learnt best.

    The arguments are those of :class:`PolicyModule`.
    """

    def training_step(self, batch: SFTBatch, batch_idx: int) -> Tensor:
        """Return the mean negative log-likelihood of the assistant's tokens."""
        return self._loss(batch, "train/sft_loss")

    def validation_step(self, batch: SFTBatch, batch_idx: int) -> None:
        """Log the same on held-out demonstrations."""
        self._loss(batch, "val/sft_loss")

    def _loss(self, batch: SFTBatch, name: str) -> Tensor:
        scores = token_scores(self.model, batch.input_ids, batch.attention_mask, batch.assistant_mask)
        total = -masked_sum(scores.logprobs, batch.assistant_mask)
        count = int(batch.assistant_mask.sum())
        if count:
            self.log(name, total.detach() / count, prog_bar=True, batch_size=count)
        return total / batch.denominator
