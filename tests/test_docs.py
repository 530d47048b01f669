"""What the documentation says is there, is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import slca_lightning
from slca_lightning.cli import main, run
from slca_lightning.metrics import ROLLOUT_METRICS
from slca_lightning.models.tiny import build_tiny_policy
from slca_lightning.report import PANELS, read_scalars

DOCS = Path(__file__).parents[1] / "docs"
BY_LIGHTNING = {"epoch", "hp_metric"}


def described() -> set[str]:
    """The scalars that have a row in a table of docs/metrics.md."""
    return set(re.findall(r"^\| `([\w/@.]+)` \|", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE))


def test_every_rollout_metric_is_described():
    assert {f"val/{name}" for name in ROLLOUT_METRICS} <= described()
    assert {name for _, names in PANELS for name in names} <= described()


def test_every_logged_scalar_is_described_and_the_other_way_round(tmp_path):
    """With the logger's own columns, a policy that calls nothing leaves out only what it has no value for."""
    policy = build_tiny_policy(tmp_path / "tiny", hidden_size=32, num_layers=1)
    common = [
        f"--model.init_args.model_path={policy}",
        *("--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--trainer.enable_progress_bar=false"),
        *("--trainer.enable_model_summary=false", "--trainer.log_every_n_steps=1"),
    ]
    run(
        [
            *("fit", "--config=toolworld/sft", *common, f"--trainer.default_root_dir={tmp_path / 'sft'}"),
            "--data.init_args.demonstrations.init_args.size=8",
            "--data.init_args.val_demonstrations.init_args.size=4",
            "--data.init_args.batch_size=4",
        ]
    )
    run(
        [
            *("fit", "--config=toolworld/slca", *common, f"--trainer.default_root_dir={tmp_path / 'rl'}"),
            *("--data.init_args.tasks_per_epoch=2", "--data.init_args.group_size=4"),
            *("--data.init_args.micro_batch_size=4", "--data.init_args.val_tasks.init_args.size=4"),
            "--data.init_args.limits={max_assistant_turns: 2, max_response_tokens: 24}",
            *("--trainer.accumulate_grad_batches=2", "--trainer.check_val_every_n_epoch=1"),
        ]
    )
    logged = (set(read_scalars(tmp_path / "sft")) | set(read_scalars(tmp_path / "rl"))) - BY_LIGHTNING
    assert logged <= described()
    missing = described() - logged
    assert not {name for name in missing if not name.startswith("advantage/")}


def test_configuration_blocks_parse(tmp_path, capsys):
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "how-it-works.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "block.yaml").write_text(block)
        with pytest.raises(SystemExit) as stop:
            main(["fit", "--config", "toolworld/slca", "--config", str(tmp_path / "block.yaml"), "--print_config"])
        assert stop.value.code == 0
        shown = yaml.safe_load(capsys.readouterr().out)
        assert shown["advantage"]["boundary"] == "last_run"
        reward = shown["data"]["init_args"]["reward"]["init_args"]
        assert (reward["failed_judge_is_zero"], reward["judge_no_call_tasks"], reward["no_call_format"]) == (True, 0, 0)
        assert shown["data"]["init_args"]["tasks_per_epoch"] == 16  # merged, not replaced


def test_names_in_how_it_works_exist():
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(slca_lightning.__file__).parent.rglob("*.py"))
    text = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    names = {part for code in re.findall(r"`([^`\n]+)`", text) for part in re.findall(r"[A-Za-z_]{4,}", code)}
    allowed = {"slca", "ckpt_path", "true", "false", "True", "False"}
    assert sorted(name for name in names - allowed if not re.search(rf"\b{name}\b", source)) == []
