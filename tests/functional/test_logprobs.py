from __future__ import annotations

import math

import pytest
import torch

from slca_lightning.errors import ConfigError
from slca_lightning.functional import entropy, token_logprobs


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_agrees_with_log_softmax_and_so_does_the_gradient(temperature: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(2, 5, 11, generator=generator)).to(dtype).requires_grad_()
    ids = torch.randint(11, (2, 5), generator=generator)
    result = token_logprobs(logits, ids, temperature)
    assert result.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    (gradient,) = torch.autograd.grad(result.sum(), logits)
    wide = logits.detach().double().requires_grad_()
    expected = (wide / temperature).log_softmax(dim=-1).gather(-1, ids[..., None]).squeeze(-1)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), wide)
    # float32 rounds logits of size up to 20 at 1e-6
    torch.testing.assert_close(result.double(), expected.detach(), rtol=0, atol=1e-5)
    # the gradient comes back in the type of the logits: bfloat16 keeps 8 bits
    torch.testing.assert_close(
        gradient.double(), expected_gradient, rtol=0, atol=1e-2 if dtype is torch.bfloat16 else 1e-5
    )


def test_by_hand() -> None:
    logits = torch.tensor([0.0, math.log(3.0)])  # probabilities 1/4, 3/4
    assert token_logprobs(logits, torch.tensor(1)).item() == pytest.approx(math.log(0.75))
    assert entropy(logits).item() == pytest.approx(0.25 * math.log(4) + 0.75 * math.log(4 / 3))
    # at temperature 1/2 the odds are squared: 1/10, 9/10
    assert token_logprobs(logits, torch.tensor(0), temperature=0.5).item() == pytest.approx(math.log(0.1), rel=1e-6)


def test_entropy_has_its_bounds() -> None:
    assert entropy(torch.zeros(3, 8)).tolist() == pytest.approx([math.log(8)] * 3)
    assert entropy(torch.tensor([0.0, 200.0])).item() == 0.0  # probabilities that underflow are no NaN


def test_entropy_agrees_with_torch() -> None:
    logits = 3 * torch.randn(4, 7, 13, generator=torch.Generator().manual_seed(1))
    expected = torch.distributions.Categorical(logits=logits / 1.5).entropy()
    torch.testing.assert_close(entropy(logits, temperature=1.5), expected, rtol=0, atol=1e-5)  # float32 sums


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"\(2, 3, 5\) and \(2, 4\)"):
        token_logprobs(torch.zeros(2, 3, 5), torch.zeros(2, 4, dtype=torch.int64))
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ConfigError, match="temperature"):
            entropy(torch.zeros(3), temperature)
        with pytest.raises(ConfigError, match="temperature"):
            token_logprobs(torch.zeros(3), torch.tensor(0), temperature)
    with pytest.raises(ConfigError, match="scalar"):
        entropy(torch.tensor(1.0))
