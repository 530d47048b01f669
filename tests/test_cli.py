"""The command line, in this process on a random policy of one layer; two checks that it starts as a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from slca_lightning.cli import known_configs, main, run
from slca_lightning.cli_errors import explain
from slca_lightning.models.tiny import build_tiny_policy
from slca_lightning.report import read_scalars

RL = "--data.init_args"


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    return build_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny", hidden_size=32, num_layers=1)


@pytest.fixture
def small(policy, tmp_path, monkeypatch) -> list[str]:
    """Arguments that cut ``toolworld/slca`` down to a second; the run is the folder ``run`` of an empty one."""
    monkeypatch.chdir(tmp_path)
    return [
        "--config=toolworld/slca",
        f"--model.init_args.model_path={policy}",
        *(f"{RL}.tasks_per_epoch=2", f"{RL}.group_size=4", f"{RL}.micro_batch_size=4"),
        *(f"{RL}.val_tasks.init_args.size=4", f"{RL}.limits={{max_assistant_turns: 2, max_response_tokens: 24}}"),
        *("--trainer.accumulate_grad_batches=2", "--trainer.max_epochs=1", "--trainer.check_val_every_n_epoch=1"),
        *("--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"),
        "--trainer.default_root_dir=run",
    ]


def refused(args: list[str], capsys) -> str:
    """Run a command that must not work; return the one line that says why."""
    before = sorted(path for path in Path().rglob("*"))
    try:
        status: object = main(args)
    except SystemExit as stop:
        status = stop.code
    captured = capsys.readouterr()
    if isinstance(status, str):  # sys.exit(text) is status 1 and the text on stderr
        captured = captured._replace(err=status)
        status = 1
    assert status in (1, 2)
    lines = [line for line in captured.err.splitlines() if not line.startswith("Seed set to")]
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("slca: ")
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert sorted(path for path in Path().rglob("*")) == before  # nothing is left behind
    return lines[0]


# What works


def test_fit_validate_test_and_resume(small):
    assert main(["fit", *small]) == 0
    run_folder = Path("run")
    scalars = read_scalars(run_folder)
    assert {"train/loss", "reward/tool", "rollout/success@0.9", "val/success@0.9"} <= set(scalars)
    assert [step for step, _ in scalars["train/loss"]] == [0]
    for folder in (run_folder / "hf", run_folder / "checkpoints" / "last.hf"):
        assert (folder / "model.safetensors").is_file()
    saved = yaml.safe_load((run_folder / "config.yaml").read_text())
    assert saved["data"]["init_args"]["group_size"] == 4
    assert saved["model"]["init_args"]["model_path"].endswith("tiny")

    for command in ("validate", "test"):
        done = run([command, *small, "--trainer.logger=false", "--model.init_args.model_path=run/hf"])
        assert 0 <= done.trainer.callback_metrics["val/process"] <= 1

    last = run_folder / "checkpoints" / "last.ckpt"
    resumed = run(["fit", *small, "--trainer.max_epochs=2", f"--ckpt_path={last}", "--model.init_args.kl_coef=0.5"])
    assert resumed.trainer.global_step == 2
    assert resumed.model.kl_coef == 0.5  # what is given counts, not what the checkpoint was trained with
    assert torch.load(last, weights_only=True)["global_step"] == 2


def test_resumed_equals_unbroken(small):
    whole = run(["fit", *small, "--trainer.max_epochs=2", "--trainer.default_root_dir=whole"]).model.state_dict()
    run(["fit", *small, "--trainer.max_epochs=1"])
    args = ["fit", *small, "--trainer.max_epochs=2", "--ckpt_path=run/checkpoints/last.ckpt"]
    parts = run(args).model.state_dict()
    assert all(torch.equal(parts[name], value) for name, value in whole.items())


@pytest.mark.parametrize("estimator", ["grpo", "toolpo", "rltr"])
def test_one_word_changes_the_estimator(small, estimator):
    done = run(["fit", *small, f"--advantage.estimator={estimator}", "--trainer.limit_val_batches=0"])
    assert done.trainer.global_step == 1


def test_supervised_stage(small, policy):
    demonstrations = "--data.init_args.demonstrations.init_args.size=8"
    held_out = "--data.init_args.val_demonstrations.init_args.size=4"
    trainer = [arg for arg in small if arg.startswith("--trainer") and "every" not in arg and "accumulate" not in arg]
    args = ["--config=toolworld/sft", f"--model.init_args.model_path={policy}", demonstrations, held_out]
    done = run(["fit", *args, "--data.init_args.batch_size=4", *trainer])
    assert done.trainer.global_step == 2
    assert torch.isfinite(done.trainer.callback_metrics["val/sft_loss"])
    assert Path("run/hf/model.safetensors").is_file()


# Configurations


@pytest.mark.parametrize("form", ["name", "--config=name", "path"])
def test_configurations_by_name_and_by_path(form, tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text("advantage: {estimator: grpo}\n")
    given = {
        "name": ["--config", "toolworld/slca"],
        "--config=name": ["--config=toolworld/slca"],
        "path": ["-c", "toolworld/slca", "--config", str(mine)],
    }[form]
    with pytest.raises(SystemExit) as stop:
        main(["fit", *given, "--print_config"])
    assert stop.value.code == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["advantage"]["estimator"] == ("grpo" if form == "path" else "slca")
    assert shown["data"]["init_args"]["tasks_per_epoch"] == 16


@pytest.mark.parametrize("name", known_configs())
def test_every_packaged_configuration_parses(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", name, "--print_config"])
    assert stop.value.code == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert {"model", "data", "trainer", "advantage", "weight_sync"} <= set(shown)


def test_known_configurations():
    assert {"toolworld/sft", "toolworld/slca", "toucan"} <= set(known_configs())


def test_unknown_configuration(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = refused(["fit", "--config", "toolworld/slcaa"], capsys)
    assert "'toolworld/slcaa'" in line
    assert all(name in line for name in known_configs())


# Mistakes


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ([f"{RL}.group_sizze=4"], ["group_sizze", "did you mean 'group_size'?", "RolloutDataModule"]),
        ([f"{RL}.tasks.init_args.sise=4"], ["sise", "did you mean 'size'?", "ToolWorldTasks"]),
        ([f"{RL}.limits.max_assistant_turn=4"], ["did you mean 'max_assistant_turns'?"]),
        (["--model.init_args.klcoef=1"], ["klcoef", "did you mean 'kl_coef'?"]),
        (["--advantage.estimatr=grpo"], ["advantage.estimatr", "did you mean 'advantage.estimator'?"]),
        (["--config=mine.yaml"], ["modell", "did you mean 'model'?"]),
        ([f"{RL}.group_size=many"], ["group_size", "int", "many"]),
        (["--trainer.max_epochs=many"], ["trainer.max_epochs", "int", "many"]),
        (["--model.class_path=slca_lightning.modules.SLCAModul"], ["SLCAModul"]),
        (["--advantage.estimator=grpoo"], ["ConfigError", "grpoo", "grpo", "slca", "toolpo"]),
        (["--advantage.boundary=first"], ["ConfigError", "first", "last_run"]),
        (["--advantage.options={weight: 2.0}"], ["ConfigError", "weight_tool"]),
        ([f"{RL}.group_size=1"], ["ConfigError", "group_size must be at least 2, got 1"]),
        ([f"{RL}.temperature=0"], ["ConfigError", "temperature"]),
        ([f"{RL}.simulator.init_args.max_parallel_calls=0"], ["ConfigError", "max_parallel_calls"]),
        (["--model.init_args.model_path=./nowhere"], ["ConfigError", "'./nowhere'", "slca-tiny --out ./nowhere"]),
        (["--ckpt_path=run/last.ckpt"], ["ConfigError", "'run/last.ckpt'"]),
    ],
    ids=lambda value: value[0].split("=")[0] + "=" + value[0].split("=")[1][:9] if "--" in value[0] else "",
)
def test_a_mistake_is_one_line(small, wrong, names, capsys):
    Path("mine.yaml").write_text("modell: 3\n")
    line = refused(["fit", *small, *wrong], capsys)
    assert [name for name in names if name not in line] == [], line


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (None, ["DataError", "rows.jsonl", "no such file"]),
        ("", ["DataError", "rows.jsonl", "no rows"]),
        ('{"prompt": [\n', ["DataError", "rows.jsonl:1", "broken JSON", "on_bad_row='skip'"]),
        ('\n{"prompt": []}\n', ["DataError", "rows.jsonl:2", "prompt", "on_bad_row='skip'"]),
    ],
    ids=["missing", "empty", "broken JSON", "no prompt"],
)
def test_rows_that_cannot_be_used(policy, tmp_path, monkeypatch, rows, names, capsys):
    monkeypatch.chdir(tmp_path)
    if rows is not None:
        Path("rows.jsonl").write_text(rows)
    args = ["fit", "--config=toucan", f"--model.init_args.model_path={policy}"]
    line = refused([*args, "--data.init_args.tasks.init_args.path=rows.jsonl"], capsys)
    assert [name for name in names if name not in line] == [], line


def test_all_rows_skipped(policy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(json.dumps({"prompt": []}) + "\n")
    args = ["fit", "--config=toucan", f"--model.init_args.model_path={policy}"]
    tasks = "--data.init_args.tasks.init_args"
    line = refused([*args, f"{tasks}.path=rows.jsonl", f"{tasks}.on_bad_row=skip"], capsys)
    assert "the source of training tasks is empty" in line


def test_what_only_a_started_run_can_find_leaves_its_configuration_and_no_model(small, capsys):
    """Micro-batches that do not fill an update are found when the Trainer has counted them."""
    assert main(["fit", *small, "--trainer.accumulate_grad_batches=3"]) == 1
    error = capsys.readouterr().err
    assert "slca: ConfigError: " in error
    assert "accumulate_grad_batches = 3" in error
    assert "Traceback" not in error
    left = {path.name.split(".")[0] for path in Path("run").rglob("*")}
    assert left <= {"config", "hparams", "events", "checkpoints"}
    assert not list(Path("run").rglob("*.ckpt"))


def test_messages_without_a_pattern_stay_whole():
    assert explain("something\nelse.") == "something else; see slca fit --help"


# As a program


@pytest.mark.slow
def test_help_as_a_program(tmp_path):
    script = Path(sys.executable).with_name("slca")
    commands = [[sys.executable, "-m", "slca_lightning"]] + ([[str(script)]] if script.exists() else [])
    for command in commands:
        done = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "fit" in done.stdout
        assert "validate" in done.stdout
    assert list(tmp_path.iterdir()) == []
