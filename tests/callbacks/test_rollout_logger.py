"""What a real run leaves in the logs."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from slca_lightning.callbacks import RolloutLogger
from slca_lightning.callbacks.rollout_logger import _over_ranks
from slca_lightning.errors import ConfigError
from slca_lightning.hooks import RolloutCallback
from slca_lightning.metrics.collection import Stat, segment_advantages
from slca_lightning.rollout.collection import Collection

Fit = Callable[..., Trainer]

SCALARS = {
    *(f"reward/{name}" for name in ("tool", "summary", "total", "failed")),
    *(f"reward/{name}" for name in ("format", "name", "key", "value", "parallel")),
    *(f"advantage/{segment}_{what}" for segment in ("tool", "summary") for what in ("std", "zero", "no_signal")),
    *(f"rollout/{name}" for name in ("success@0.9", "exact_calls", "joint_success", "omission", "truncation")),
    *(f"rollout/{name}" for name in ("tool_turns", "calls", "redundant_calls", "response_tokens", "policy_tokens")),
    *(f"rollout/{name}" for name in ("failed", "template_drift", "weights_version")),
    *(f"rollout/finish_{reason}" for reason in ("stop", "length", "turns", "failed")),
    *("rollout/logprob_gap_mean", "rollout/logprob_gap_max"),
    *("perf/collection_seconds", "perf/scoring_seconds", "perf/tokens_per_second", "perf/rollouts_per_second"),
}


class Keep(RolloutCallback):
    """Gives the rollouts, which all fail alike, advantages to tell apart, and keeps them."""

    def __init__(self) -> None:
        self.collections: list[Collection] = []

    def on_rollouts(self, trainer: Trainer, pl_module: LightningModule, collection: Collection) -> None:
        generator = torch.Generator().manual_seed(trainer.current_epoch)
        noise = torch.randn(collection.policy_mask.shape, generator=generator)
        collection.advantages = noise * collection.policy_mask
        self.collections.append(collection)


@pytest.fixture(scope="module")
def run(fit: Fit, tmp_path_factory: pytest.TempPathFactory) -> tuple[EventAccumulator, list[Collection]]:
    folder = tmp_path_factory.mktemp("tensorboard")
    keep = Keep()
    logger = TensorBoardLogger(folder, name="tb")
    fit(folder, [keep, RolloutLogger(num_texts=2)], epochs=2, val=True, logger=logger)
    events = EventAccumulator(logger.log_dir, size_guidance={"histograms": 0, "tensors": 0})
    events.Reload()
    return events, keep.collections


def values(events: EventAccumulator, name: str) -> list[float]:
    return [event.value for event in events.Scalars(name)]


def texts(events: EventAccumulator, name: str) -> list[str]:
    return [event.tensor_proto.string_val[0].decode() for event in events.Tensors(f"{name}/text_summary")]


def test_all_scalars_are_there_once_an_epoch(run: tuple[EventAccumulator, list[Collection]]) -> None:
    events, _ = run
    prefixes = ("reward/", "advantage/", "rollout/", "perf/")
    logged = {name for name in events.Tags()["scalars"] if name.startswith(prefixes)}
    # A random policy seldom calls a tool: an epoch may have no tool tokens, and then nothing to say of them.
    assert SCALARS - logged <= {f"advantage/tool_{what}" for what in ("std", "zero", "no_signal")}
    assert logged <= SCALARS
    assert all(len(values(events, name)) == 2 for name in logged if not name.startswith("advantage/tool"))


def test_values_are_those_of_the_collections(run: tuple[EventAccumulator, list[Collection]]) -> None:
    events, collections = run
    expected: dict[str, list[float]] = {
        "reward/total": [sum(r.total.or_zero for r in c.rewards) / 8 for c in collections],
        "rollout/response_tokens": [sum(len(r.response_ids) for r in c.rollouts) / 8 for c in collections],
        "rollout/finish_length": [sum(r.finish_reason == "length" for r in c.rollouts) / 8 for c in collections],
        "rollout/weights_version": [0.0, 2.0],
        "advantage/summary_std": [float(segment_advantages(c)["summary"].std(correction=0)) for c in collections],
    }
    for name, wanted in expected.items():
        assert values(events, name) == pytest.approx(wanted, rel=1e-5), name  # float32 in the event file
    seconds, speed = values(events, "perf/collection_seconds"), values(events, "perf/tokens_per_second")
    tokens = [float(c.policy_mask.sum()) for c in collections]
    assert [a * b for a, b in zip(seconds, speed, strict=True)] == pytest.approx(tokens, rel=1e-5)
    assert max(values(events, "rollout/logprob_gap_max")) < 1e-3  # the engine samples with the policy itself


def test_histograms_hold_every_token_in_the_loss(run: tuple[EventAccumulator, list[Collection]]) -> None:
    events, collections = run
    for segment in ("tool", "summary"):
        tag = f"advantage/{segment}"
        logged = events.Histograms(tag) if tag in events.Tags()["histograms"] else []
        counts = [event.histogram_value.num for event in logged]
        sizes = [segment_advantages(c)[segment].numel() for c in collections]
        assert counts == [size for size in sizes if size]  # nothing is written of a segment that no rollout has
    assert [event.step for event in events.Histograms("advantage/summary")] == [0, 2]


def test_texts_mark_the_segments(run: tuple[EventAccumulator, list[Collection]]) -> None:
    events, collections = run
    written = texts(events, "train/rollouts")
    assert len(written) == 2
    for text, collection in zip(written, collections, strict=True):
        assert text.count("### ") == 2
        assert text.count("**[prompt]**") == 2
        turns = sum(len(rollout.turns) for rollout in collection.rollouts[:2])
        assert text.count("**[tool]**") + text.count("**[summary]**") == turns
        assert text.count("mean advantage") == turns
        assert "characters left out" in text


def test_texts_of_validations(run: tuple[EventAccumulator, list[Collection]]) -> None:
    events, _ = run
    written = texts(events, "val/rollouts")
    assert [text.count("**[prompt]**") for text in written] == [2, 2]
    assert "advantage" not in written[0]
    # toolworld's three test tasks come in batches of two: the first two are shown, each time with the same seeds.
    assert "toolworld\\-test\\-0\\-0" in written[0]
    assert "toolworld\\-test\\-0\\-1" in written[0]


def test_another_logger_gets_the_scalars(fit: Fit, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    fit(tmp_path, [RolloutLogger()], logger=logger)
    logger.save()
    rows: list[dict[str, Any]] = list(csv.DictReader((Path(logger.log_dir) / "metrics.csv").open()))
    assert any(row.get("reward/tool") for row in rows)


def test_no_logger_still_has_scalars_to_monitor(fit: Fit, tmp_path: Path) -> None:
    trainer = fit(tmp_path, [RolloutLogger()])
    assert "reward/total" in trainer.callback_metrics


def test_ranks_add_up() -> None:
    class Strategy:
        """As if another rank had the same rows, but a larger maximum."""

        def reduce(self, rows: torch.Tensor, reduce_op: str) -> torch.Tensor:
            return rows * 2 if reduce_op == "sum" else rows + 1

    trainer = SimpleNamespace(world_size=2, strategy=Strategy())
    stats = {"a": Stat.of([1.0, 3.0]), "empty": Stat.of([])}
    merged = _over_ranks(trainer, SimpleNamespace(device="cpu"), stats)  # type: ignore[arg-type]
    assert merged == {"a": Stat(4.0, 8.0, 20.0, 4.0), "empty": Stat(0.0, 0.0, 0.0, -math.inf)}


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="negative"):
        RolloutLogger(num_texts=-1)
