"""What several folders of tests share."""

from pathlib import Path

import pytest
import torch

from slca_lightning.models.loading import load_tokenizer
from slca_lightning.models.tiny import build_model, build_tokenizer

# Two threads that wait for each other on a busy machine are ten times slower than one.
torch.set_num_threads(1)

QWEN3 = Path(__file__).parents[2] / "shared" / "data" / "qwen3_tokenizer"


@pytest.fixture(scope="session")
def tiny_tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer):
    """A random policy of two layers. Shared: a test that changes weights takes a copy."""
    return build_model(tiny_tokenizer, hidden_size=64, num_layers=2)


@pytest.fixture(scope="session")
def qwen3_tokenizer():
    if not QWEN3.is_dir():
        pytest.skip("no folder ../shared/data/qwen3_tokenizer beside the repository (Qwen3's real tokenizer)")
    return load_tokenizer(str(QWEN3))
