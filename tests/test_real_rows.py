"""Five real Toucan RL rows and Qwen3's real tokenizer, through the command line."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from slca_lightning.callbacks import RolloutLogger
from slca_lightning.cli import run
from slca_lightning.models.loading import load_tokenizer
from slca_lightning.models.tiny import build_tiny_policy
from slca_lightning.report import read_scalars
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.tasks import ToucanTasks

DATA = Path(__file__).parents[2] / "shared" / "data"
ROWS, TOKENIZER = DATA / "toucan_rl_preview.jsonl", DATA / "qwen3_tokenizer"

pytestmark = pytest.mark.skipif(
    not (ROWS.exists() and TOKENIZER.is_dir()),
    reason="needs ../shared/data beside the repository: real Toucan rows and Qwen3's tokenizer",
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("policy") / "tiny"
    return build_tiny_policy(folder, tokenizer_path=TOKENIZER, hidden_size=32, num_layers=1)


def arguments(policy: Path, rows: Path, run_folder: Path, tasks: int) -> list[str]:
    return [
        "--config=toucan",
        f"--model.init_args.model_path={policy}",
        f"--data.init_args.tasks.init_args.path={rows}",
        f"--data.init_args.tasks_per_epoch={tasks}",
        *("--data.init_args.group_size=4", "--data.init_args.micro_batch_size=2"),
        "--data.init_args.limits={max_assistant_turns: 2, max_response_tokens: 24}",
        f"--trainer.accumulate_grad_batches={tasks * 2}",
        *("--trainer.max_epochs=1", f"--trainer.default_root_dir={run_folder}", "--trainer.accelerator=cpu"),
        *("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"),
    ]


@pytest.mark.slow
def test_an_epoch_on_real_rows(policy, tmp_path, monkeypatch):
    collections = []
    keep = RolloutLogger.on_collection_ready
    monkeypatch.setattr(
        RolloutLogger,
        "on_collection_ready",
        lambda self, trainer, module, collection: (
            collections.append(collection),
            keep(self, trainer, module, collection),
        )[1],
    )
    done = run(["fit", *arguments(policy, ROWS, tmp_path / "run", tasks=5)])
    assert done.trainer.global_step == 1
    scalars = read_scalars(tmp_path / "run")
    assert math.isfinite(scalars["train/loss"][-1][1])
    assert scalars["rollout/failed"][-1][1] == 0.0
    assert scalars["rollout/logprob_gap_max"][-1][1] < 1e-3  # float32, two ways to sum

    (collection,) = collections
    assert len(collection) == 20
    tokenizer = load_tokenizer(str(policy))
    for rollout in collection.rollouts:
        prompt = tokenizer.decode(list(rollout.prompt_ids))
        assert prompt.count("<tools>\n") == 1  # described once: by the row's own system turn
        for name in rollout.task.allowed_tools:
            assert f'"name": "{name}"' in prompt
        assert rollout.task.question in prompt
        assert len(rollout.response_ids) <= 24


def test_names_and_letters_of_real_rows_survive(policy):
    chat = ChatRenderer(load_tokenizer(str(policy)))
    tasks = list(ToucanTasks(ROWS))
    assert any("/" in name for task in tasks for name in task.allowed_tools)
    prompts = [chat.decode(chat.prompt_ids(task)) for task in tasks]
    assert any(not prompt.isascii() for prompt in prompts)
    for task, prompt in zip(tasks, prompts, strict=True):
        assert task.tools_in_prompt
        for message in task.messages:
            assert message["content"].strip() in prompt


def shapes(name: str) -> dict[str, tuple[Any, list[list[tuple[str, dict[str, Any]]]]]]:
    """Gold in every shape that the data comes in, and the steps it means."""
    call = {"name": name, "arguments": {"thought": "x"}}
    one, bare = (name, {"thought": "x"}), (name, {})
    return {
        "nested": ([[call, call], [call]], [[one, one], [one]]),
        "flat": ([call, call], [[one], [one]]),
        "bare names": ([name, name], [[bare], [bare]]),
        "nested JSON text": (json.dumps([[call, call], [call]]), [[one, one], [one]]),
        "flat JSON text": (json.dumps([call]), [[one]]),
        "bare names as JSON text": (json.dumps([name]), [[bare]]),
        "no call": ([], []),
    }


def test_every_shape_of_gold_through_the_command_line(policy, tmp_path):
    original = json.loads(ROWS.read_text(encoding="utf-8").splitlines()[0])
    wanted = shapes(original["reward_model"]["ground_truth"]["allowed_tools"][0])
    rows = []
    for gold, _ in wanted.values():
        row = copy.deepcopy(original)
        row["reward_model"]["ground_truth"]["gold_tool_calls"] = gold
        rows.append(row)
    path = tmp_path / "variants.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    done = run(["fit", *arguments(policy, path, tmp_path / "run", tasks=1)])
    assert done.trainer.global_step == 1
    tasks = done.datamodule.tasks
    read = {
        shape: [[(call.name, dict(call.arguments)) for call in step] for step in task.gold_steps]
        for shape, task in zip(wanted, tasks, strict=True)
    }
    assert read == {shape: steps for shape, (_, steps) in wanted.items()}
