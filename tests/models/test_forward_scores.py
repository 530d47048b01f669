"""Scores are those of a plain forward pass, computed where they are needed only."""

import copy

import pytest
import torch

from slca_lightning.errors import ConfigError
from slca_lightning.models.forward import decoder_and_head, token_scores
from slca_lightning.models.loading import LoRA, with_adapter


@pytest.fixture
def batch(tiny_tokenizer):
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(0, len(tiny_tokenizer), (3, 12), generator=rng)
    attention = (torch.arange(12) < torch.tensor([[12], [7], [9]])).long()
    mask = (torch.rand(3, 12, generator=rng) < 0.5) & attention.bool()
    mask[:, 0] = False
    return ids, attention, mask


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_equals_a_plain_forward(tiny_model, batch, temperature):
    ids, attention, mask = batch
    scores = token_scores(tiny_model, ids, attention, mask, temperature)
    for row in range(3):  # without padding, row by row
        size = int(attention[row].sum())
        logits = tiny_model(ids[row : row + 1, :size]).logits[0, :-1].double() / temperature
        full = torch.log_softmax(logits, -1)
        logprobs = full.gather(-1, ids[row, 1:size, None])[:, 0]
        entropy = -(full.exp() * full).sum(-1)
        wanted = mask[row, 1:size]
        # float32 sums in another order: about 1e-6
        torch.testing.assert_close(scores.logprobs[row, 1:size][wanted].double(), logprobs[wanted], atol=1e-4, rtol=0)
        torch.testing.assert_close(scores.entropy[row, 1:size][wanted].double(), entropy[wanted], atol=1e-4, rtol=0)
    assert mask.sum() > 5
    assert not scores.logprobs[~mask].any()
    assert not scores.entropy[~mask].any()
    assert not scores.entropy.requires_grad


def test_gradients_reach_all_parameters(tiny_model, batch):
    model = copy.deepcopy(tiny_model)
    token_scores(model, *batch).logprobs.sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


def test_nothing_to_score(tiny_model, batch):
    """A micro-batch of failed rollouts still takes part in the backward pass of its rank."""
    model = copy.deepcopy(tiny_model)
    ids, attention, mask = batch
    scores = token_scores(model, ids, attention, torch.zeros_like(mask))
    assert not scores.logprobs.any()
    scores.logprobs.sum().backward()
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def test_adapter_starts_as_the_base_and_takes_part(tiny_model, batch):
    base = token_scores(tiny_model, *batch).logprobs
    adapted = with_adapter(copy.deepcopy(tiny_model), LoRA(rank=4))
    assert torch.equal(token_scores(adapted, *batch).logprobs, base)
    token_scores(adapted, *batch).logprobs.sum().backward()
    trained = {name for name, p in adapted.named_parameters() if p.grad is not None}
    assert trained
    assert all("lora_" in name for name in trained)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.1)
    assert not torch.allclose(token_scores(adapted, *batch).logprobs, base, atol=1e-3)


@pytest.mark.parametrize("setting", ["final_logit_softcapping", "logit_scale", "logits_scaling"])
def test_logit_transforms_are_refused(tiny_model, setting):
    model = copy.deepcopy(tiny_model)
    setattr(model.config, setting, 30.0)
    with pytest.raises(ConfigError, match=setting):
        decoder_and_head(model)
    setattr(model.config, setting, 1.0)
    assert decoder_and_head(model)[1] is model.get_output_embeddings()


def test_shapes_are_checked(tiny_model, batch):
    ids, attention, mask = batch
    for wrong in ((ids[:, 1:], attention, mask), (ids, attention[:2], mask), (ids, attention, mask[:, :-1])):
        with pytest.raises(ValueError, match="one shape"):
            token_scores(tiny_model, *wrong)
