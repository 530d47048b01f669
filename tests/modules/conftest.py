"""Real fits, as small as can be. A scripted engine gives them tool calls, which a random policy never makes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from slca_lightning.callbacks import SegmentAdvantage, WeightSync
from slca_lightning.datamodules.rollout import RolloutDataModule
from slca_lightning.errors import EngineError
from slca_lightning.hooks import RolloutCallback
from slca_lightning.models.tiny import build_tiny_policy
from slca_lightning.modules.slca import SLCAModule
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.engines.base import Generation, GenerationEngine
from slca_lightning.rollout.loop import RolloutLimits
from slca_lightning.simulation import EmbeddedBackend, Simulator
from slca_lightning.tasks.toolworld import ToolWorldTasks, execute
from slca_lightning.tasks.toolworld.demonstrations import call_text


class ScriptedEngine(GenerationEngine):
    """Half of a group calls a tool (every other one rightly) and then answers; the other half only answers.

    ``fails`` says of which rollouts, by the index of the task in the order of asking and by member, to break down.
    """

    def __init__(self, tasks: ToolWorldTasks, fails: Callable[[int, int, int], bool] = lambda *_: False) -> None:
        self.tasks = {task.task_id: task for task in (tasks[i] for i in range(len(tasks)))}
        self.fails = fails
        self.order: list[str] = []
        self.turns: dict[str, int] = {}
        self.version = -1

    @property
    def weights_version(self) -> int:
        return self.version

    def setup(self, tokenizer: Any) -> None:
        self.chat = ChatRenderer(tokenizer)

    def sync_weights(self, policy: Any, version: int) -> None:
        self.version = version
        self.order.clear()

    def release(self, request_ids: Any) -> None:
        for request_id in request_ids:
            self.turns.pop(request_id, None)

    async def generate(self, request: Any) -> Generation:
        task_id, member = request.request_id.split("/")[:2]
        number = int(member)
        if task_id not in self.order:
            self.order.append(task_id)
        turn = self.turns.get(request.request_id, 0)
        self.turns[request.request_id] = turn + 1
        await asyncio.sleep(0)
        if self.fails(self.order.index(task_id), number, turn):
            raise EngineError("the script says so")
        ids = [*self.chat.encode(self.text(task_id, number, turn)), self.chat.end_of_turn_id]
        return Generation(tuple(ids), (-1.0,) * len(ids), "stop", self.version)

    def text(self, task_id: str, member: int, turn: int) -> str:
        task = self.tasks[task_id]
        calls = list(task.gold_calls)
        if turn == 0 and member % 2 == 0:
            if calls and member % 4 == 0:
                return call_text(calls)
            name = task.allowed_tools[member % len(task.allowed_tools)]
            return f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'
        return f"Here you are: the answer is {member}." + " It is done." * (member % 3) * (1 + self.version % 2)


class Recorder(RolloutCallback):
    """Keeps what a run trains on, the gradients of each optimiser step, and the weights after."""

    def __init__(self) -> None:
        self.collections: list[Any] = []
        self.steps_at_start: list[int] = []
        self.batches: list[tuple[int, Any]] = []
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.losses: list[float] = []
        self.logged: list[dict[str, float]] = []

    def on_collection_ready(self, trainer: Any, pl_module: Any, collection: Any) -> None:
        self.collections.append(collection)
        self.steps_at_start.append(trainer.global_step)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.batches.append((trainer.current_epoch, batch))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append(float(outputs["loss"]))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        named = pl_module.model.named_parameters()
        self.gradients.append({name: p.grad.clone() for name, p in named if p.grad is not None})

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        names = [name for name in trainer.callback_metrics if name.startswith("train/")]
        self.logged.append({name: float(trainer.callback_metrics[name]) for name in names})


NO_LIMIT = 1e9
"""Of WeightSync's check: the scripted engine makes its log-probabilities up."""

SGD = functools.partial(torch.optim.SGD, lr=0.1)


@pytest.fixture(scope="session")
def policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny", hidden_size=32, num_layers=1)


@pytest.fixture
def lab(policy_path: Path, tmp_path: Path) -> SimpleNamespace:
    """What tests of this folder build runs from."""

    def data(scripted: bool = True, fails: Any = None, **options: Any) -> RolloutDataModule:
        tasks = ToolWorldTasks(size=16)
        if scripted:
            engine = ScriptedEngine(tasks) if fails is None else ScriptedEngine(tasks, fails)
            options.setdefault("engine", engine)
        defaults: dict[str, Any] = {
            "tasks": tasks,
            "simulator": Simulator(EmbeddedBackend(execute)),
            "limits": RolloutLimits(4, 160 if scripted else 12),
            "tasks_per_epoch": 2,
            "group_size": 4,
            "micro_batch_size": 4,
        }
        return RolloutDataModule(str(policy_path), **{**defaults, **options})

    def module(**options: Any) -> SLCAModule:
        return SLCAModule(str(options.pop("model_path", policy_path)), **{"optimizer": SGD, **options})

    def trainer(callbacks: list[Callback] | None = None, **options: Any) -> Trainer:
        defaults: dict[str, Any] = {
            "max_epochs": 1,
            "accelerator": "cpu",
            "devices": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            "log_every_n_steps": 1,
            "default_root_dir": tmp_path,
        }
        standard: list[Callback] = [WeightSync(NO_LIMIT), SegmentAdvantage()]
        return Trainer(callbacks=standard + (callbacks or []), **{**defaults, **options})

    def bare_trainer(callbacks: list[Callback], **options: Any) -> Trainer:
        made = trainer(callbacks, **options)
        dropped = tuple(
            c for c in made.callbacks if isinstance(c, WeightSync | SegmentAdvantage) and c not in callbacks
        )
        made.callbacks = [c for c in made.callbacks if c not in dropped]
        return made

    return SimpleNamespace(
        data=data,
        module=module,
        trainer=trainer,
        bare_trainer=bare_trainer,
        Recorder=Recorder,
        ScriptedEngine=ScriptedEngine,
        SGD=SGD,
        path=policy_path,
        folder=tmp_path,
    )
