"""Progress in logs and on terminals, beside each of Lightning's bars."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import rich
import rich.progress
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from rich.console import Console

from slca_lightning.callbacks import RolloutProgress
from slca_lightning.callbacks.progress import epoch_line
from slca_lightning.hooks import RolloutCallback
from slca_lightning.rollout.collector import ScoredRollout

Fit = Callable[..., Trainer]
COLLECTION = r"^{}: {} rollouts, [\d.]+ s, [\d,]+ tokens/s, 0 failed$"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal is sent through rich."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, force_interactive=True, width=150)
    monkeypatch.setattr(rich, "_console", console)
    return screen


class Interrupt(RolloutCallback):
    def on_rollout_scored(self, trainer: Trainer, pl_module: LightningModule, scored: ScoredRollout) -> None:
        raise RuntimeError("in the middle")


def lines(text: str, pattern: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(pattern, line)]


def test_a_log_gets_one_line_a_collection_and_one_an_epoch(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path, [RolloutProgress()], epochs=2, val=True)
    errors = capsys.readouterr().err
    assert len(lines(errors, COLLECTION.format("epoch 0", 8))) == 1
    assert len(lines(errors, COLLECTION.format("epoch 1", 8))) == 1
    assert len(lines(errors, COLLECTION.format("validation", 3))) == 2
    assert len(lines(errors, r"^epoch 0: success@0.9 [\d.]+, R_tool [\d.]+, R_sum [\d.]+, KL ")) == 1
    assert "\x1b" not in errors


@pytest.mark.parametrize("bar", [None, TQDMProgressBar])
def test_a_terminal_gets_a_bar_that_goes_away(
    fit: Fit, tmp_path: Path, terminal: io.StringIO, bar: type[TQDMProgressBar] | None
) -> None:
    callbacks = [RolloutProgress(), *([bar()] if bar else [])]
    fit(tmp_path, callbacks, val=True, enable_progress_bar=bar is not None)
    shown = terminal.getvalue()
    assert "epoch 0 rollouts" in shown
    assert "8/8" in shown
    assert "validation rollouts" in shown
    assert "3/3" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0  # the cursor comes back


def test_it_joins_lightnings_rich_bar(fit: Fit, tmp_path: Path) -> None:
    screen = io.StringIO()
    options = {"file": screen, "force_terminal": True, "force_interactive": True, "width": 150}
    bar = RichProgressBar(console_kwargs=options)
    try:
        fit(tmp_path, [RolloutProgress(), bar], epochs=2, val=True, enable_progress_bar=True, num_sanity_val_steps=1)
    finally:
        rich.reconfigure()
    shown = screen.getvalue()
    for text in ("sanity check rollouts", "epoch 0 rollouts", "epoch 1 rollouts", "validation rollouts", "/8 "):
        assert text in shown  # not 8/8: Lightning's bar draws now and then, not at every change
    assert "Epoch 1/1" in shown
    assert bar.progress is not None
    assert [task.description for task in bar.progress.tasks if "rollouts" in task.description and task.visible] == []
    assert bar.train_progress_bar.description.startswith("Epoch")  # Lightning still finds its own


def test_plain_on_a_terminal(
    fit: Fit, tmp_path: Path, terminal: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path, [RolloutProgress(plain=True)])
    assert len(lines(capsys.readouterr().err, COLLECTION.format("epoch 0", 8))) == 1
    assert "rollouts" not in terminal.getvalue()


def test_an_exception_gives_the_terminal_back(fit: Fit, tmp_path: Path, terminal: io.StringIO) -> None:
    with pytest.raises(RuntimeError):
        fit(tmp_path, [RolloutProgress(), Interrupt()])
    shown = terminal.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    with rich.progress.Progress() as progress:  # would raise, or nest, were the other still live
        assert progress.live.is_started


def test_a_display_of_somebody_else_is_left_alone(
    fit: Fit, tmp_path: Path, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.errors import LiveError
    from rich.progress import Progress

    def refuse(self: Progress) -> None:
        raise LiveError("only one")

    monkeypatch.setattr(Progress, "start", refuse)
    fit(tmp_path, [RolloutProgress()])
    assert "8/8" not in terminal.getvalue()


def test_the_epochs_line_says_what_is_known() -> None:
    known = {"rollout/success@0.9": 0.5, "reward/tool": 0.62513, "reward/summary": 0.4, "train/kl": 0.00123}
    assert epoch_line(3, known) == "epoch 3: success@0.9 0.5, R_tool 0.6251, R_sum 0.4, KL 0.00123"
    assert epoch_line(3, {}) == "epoch 3: no rollout was scored"
