"""``slca-demo`` from end to end on a policy of one layer: an exercise of its parts, not of learning."""

from __future__ import annotations

import json
import struct
from functools import partial

import pytest

from slca_lightning import demo
from slca_lightning.errors import DataError
from slca_lightning.models.tiny import build_tiny_policy
from slca_lightning.report import plot_curves

SFT = [
    "--data.init_args.demonstrations.init_args.size=8",
    "--data.init_args.val_demonstrations.init_args.size=4",
    "--trainer.max_epochs=1",
]
RL = [
    *("--data.init_args.tasks_per_epoch=2", "--data.init_args.group_size=4", "--data.init_args.micro_batch_size=4"),
    "--data.init_args.val_tasks.init_args.size=4",
    "--data.init_args.limits={max_assistant_turns: 2, max_response_tokens: 24}",
    *("--trainer.accumulate_grad_batches=2", "--trainer.max_epochs=2", "--trainer.check_val_every_n_epoch=1"),
    "--model.init_args.optimizer.init_args.lr=0.0",
]
COMMON = ["--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]


def arguments(out, *more: str) -> list[str]:
    stages = [f"--sft-arg={arg}" for arg in SFT] + [f"--rl-arg={arg}" for arg in RL]
    return ["--out", str(out), *stages, *COMMON, *more]


def png_size(path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_end_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "build_tiny_policy", partial(build_tiny_policy, hidden_size=32, num_layers=1))
    out = tmp_path / "demo"
    # The learning rate of the rollouts is 0, so nothing can rise.
    assert demo.main(arguments(out, "--estimator", "grpo", "--seed", "3")) == 1
    captured = capsys.readouterr()
    assert "Success@0.9 did not rise" in captured.err

    report = json.loads((out / "report.json").read_text())
    assert report["estimator"] == "grpo"
    assert set(demo.SHOWN) <= set(report["before"])
    assert report["before"] == report["after"]  # the same weights, tasks and seeds: the same rollouts
    width, height = png_size(out / "curves.png")
    assert 800 <= width <= 3000
    assert 500 <= height <= 3000
    for text in ("before and after", "success@0.9", "+0.000", "curves.png", "report.json", "tensorboard --logdir"):
        assert text in captured.out
    for folder in ("tiny", "sft/hf", "rl/hf", "rl/checkpoints/last.hf"):
        assert (out / folder / "config.json").is_file()
    assert json.loads((out / "rl" / "hf" / "config.json").read_text())["num_hidden_layers"] == 1


def test_exit_status_says_whether_it_rose(tmp_path, monkeypatch, capsys):
    values = dict.fromkeys(demo.SHOWN, 0.25)

    end = {"rose": 0.5, "fell": 0.125, "stayed": 0.25}

    def trained(out, *_):
        out.mkdir()
        return values, {**values, "success@0.9": end[out.name]}

    monkeypatch.setattr(demo, "demo", trained)
    monkeypatch.setattr(demo, "plot_curves", lambda run, out: out)
    for name, status in (("rose", 0), ("fell", 1), ("stayed", 1)):
        assert demo.main(["--out", str(tmp_path / name)]) == status
    assert "Success@0.9 went from 0.250 to 0.500" in capsys.readouterr().out


def test_an_existing_folder_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        demo.main(["--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "exists already; give another folder, or remove it" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "build_tiny_policy", partial(build_tiny_policy, hidden_size=32, num_layers=1))
    assert demo.main(arguments(tmp_path / "demo", "--sft-arg=--data.init_args.batch_size=0")) == 1
    assert "slca-demo: ConfigError: batch_size" in capsys.readouterr().err


def test_a_run_without_events_has_no_curves(tmp_path):
    with pytest.raises(DataError, match="no TensorBoard events"):
        plot_curves(tmp_path, tmp_path / "curves.png")
    assert list(tmp_path.iterdir()) == []
