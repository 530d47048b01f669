"""Fresh rollouts every epoch, served as micro-batches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import PreTrainedTokenizerBase

from slca_lightning.errors import ConfigError, DataError, EngineError
from slca_lightning.models.loading import load_tokenizer
from slca_lightning.rewards import HierR, RuleJudge
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.collection import Collection, TrainBatch, micro_batches
from slca_lightning.rollout.collector import OnScored, RolloutCollector, ScoredRollout
from slca_lightning.rollout.engines.base import GenerationEngine
from slca_lightning.rollout.engines.transformers import TransformersEngine
from slca_lightning.rollout.loop import RolloutLimits
from slca_lightning.seeding import derive_seed
from slca_lightning.simulation import EmbeddedBackend, Simulator
from slca_lightning.tasks.base import TaskSource, epoch_indices
from slca_lightning.types import ToolTask

logger = logging.getLogger(__name__)


class RolloutBuffer(Dataset[TrainBatch]):
    """The micro-batches of the present collection.

    Sized and indexable, because Lightning reads ahead from anything else, and would train on rollouts of old weights.
    """

    def __init__(self, num_batches: int, pad_id: int) -> None:
        self.num_batches = num_batches
        self.pad_id = pad_id
        self.collection: Collection | None = None
        self.batches: list[list[int]] = []

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, index: int) -> TrainBatch:
        if self.collection is None or self.collection.denominators is None:
            raise ConfigError(
                "there are no rollouts to train on: SLCAModule collects them when a training epoch starts. A run that "
                "resumes in the middle of an epoch has none; resume from a checkpoint saved at the end of an epoch"
            )
        per_update = len(self.batches) // len(self.collection.denominators)
        denominator = self.collection.denominators[index // per_update]
        return self.collection.batch(self.batches[index], self.pad_id, denominator)


class RolloutDataModule(LightningDataModule):
    """Rolls out ``tasks_per_epoch`` tasks, ``group_size`` times each, at the start of every training epoch.

    Args:
        model_path: where the policy's tokenizer is.
        tasks: what to train on.
        val_tasks: what to validate on; None validates nothing.
        engine: samples the policy's turns; the policy itself through transformers by default.
        simulator: answers the calls; embedded placeholders by default.
        reward: scores the rollouts; HierR with the rule judge by default.
        limits: how far a rollout may go.
        tasks_per_epoch: groups in an epoch, over all ranks.
        group_size: rollouts of each task, at least 2.
        micro_batch_size: rollouts in a forward pass when training. An optimiser step takes
            ``micro_batch_size * accumulate_grad_batches`` rollouts on each rank.
        val_batch_size: validation tasks rolled out at a time.
        temperature: of sampling.
        max_prompt_tokens: longest prompt.
        on_long_prompt: ``error`` stops at a longer prompt; ``drop`` leaves its task out, counts it, and takes another
            task in its place.
        on_template_drift: ``keep`` keeps the ids as sampled where the chat template, asked again, would show an earlier
            turn differently (some drop old thinking); ``refuse`` stops the run.
        max_failed_fraction: share of an epoch's rollouts that may fail before the run stops, in [0, 1].
        seed: decides which tasks come when, and all samples.
        template_options: further arguments of the chat template, such as ``enable_thinking``.
        trust_remote_code: run code that the tokenizer's folder brings.

    Raises:
        ConfigError: for numbers that are out of range.
    """

    tokenizer: PreTrainedTokenizerBase

    def __init__(
        self,
        model_path: str,
        tasks: TaskSource,
        val_tasks: TaskSource | None = None,
        engine: GenerationEngine | None = None,
        simulator: Simulator | None = None,
        reward: HierR | None = None,
        limits: RolloutLimits | None = None,
        tasks_per_epoch: int = 16,
        group_size: int = 8,
        micro_batch_size: int = 8,
        val_batch_size: int = 64,
        temperature: float = 1.0,
        max_prompt_tokens: int = 24576,
        on_long_prompt: Literal["error", "drop"] = "error",
        on_template_drift: Literal["keep", "refuse"] = "keep",
        max_failed_fraction: float = 0.1,
        seed: int = 0,
        template_options: dict[str, str | bool | int | float] | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__()
        if group_size < 2:
            raise ConfigError(
                f"group_size must be at least 2, got {group_size}: an advantage compares the rollouts of one task"
            )
        if tasks_per_epoch < 1 or micro_batch_size < 1 or val_batch_size < 1:
            raise ConfigError("tasks_per_epoch, micro_batch_size and val_batch_size must be at least 1")
        if temperature <= 0:
            raise ConfigError(f"temperature must be positive to explore, got {temperature}")
        if not 0 <= max_failed_fraction <= 1:
            raise ConfigError(f"max_failed_fraction must be in [0, 1], got {max_failed_fraction}")
        if not len(tasks):
            raise DataError("the source of training tasks is empty; were all its rows skipped?")
        self.model_path = model_path
        self.tasks = tasks
        self.val_tasks = val_tasks
        self.engine = engine if engine is not None else TransformersEngine()
        self.simulator = simulator if simulator is not None else Simulator(EmbeddedBackend())
        self.reward = reward if reward is not None else HierR(RuleJudge())
        self.limits = limits if limits is not None else RolloutLimits()
        self.tasks_per_epoch = tasks_per_epoch
        self.group_size = group_size
        self.micro_batch_size = micro_batch_size
        self.val_batch_size = val_batch_size
        self.temperature = temperature
        self.max_prompt_tokens = max_prompt_tokens
        self.on_long_prompt = on_long_prompt
        self.on_template_drift = on_template_drift
        self.max_failed_fraction = max_failed_fraction
        self.seed = seed
        self.template_options = template_options
        self.trust_remote_code = trust_remote_code
        self.dropped_prompts = 0
        self._collector: RolloutCollector | None = None
        self._buffer: RolloutBuffer | None = None

    def setup(self, stage: str | None = None) -> None:
        """Load the tokenizer and put the parts together. Makes no rollout."""
        if self._collector is not None:
            return
        if self.tasks_per_epoch % self._world_size:
            raise ConfigError(
                f"tasks_per_epoch = {self.tasks_per_epoch} cannot be shared by {self._world_size} ranks; "
                "make it a multiple, since a group never leaves its rank"
            )
        self.tokenizer = load_tokenizer(self.model_path, self.trust_remote_code)
        chat = ChatRenderer(self.tokenizer, self.template_options)
        self.engine.setup(self.tokenizer)
        self._collector = RolloutCollector(
            self.engine, self.simulator, self.reward, chat, self.limits, self.max_prompt_tokens
        )

    @property
    def collector(self) -> RolloutCollector:
        """What makes the rollouts; there from :meth:`setup` on."""
        if self._collector is None:
            raise ConfigError("call setup() first; the Trainer does so by itself")
        return self._collector

    @property
    def rollouts_per_rank(self) -> int:
        """Rollouts that each rank makes and trains on in an epoch."""
        return self.tasks_per_epoch // self._world_size * self.group_size

    def train_dataloader(self) -> DataLoader[TrainBatch]:
        """Serve the present collection, whichever it is when a batch is asked for."""
        if self.rollouts_per_rank % self.micro_batch_size:
            raise ConfigError(
                f"micro_batch_size = {self.micro_batch_size} does not divide the {self.rollouts_per_rank} rollouts of "
                f"an epoch on each rank ({self.tasks_per_epoch} tasks x {self.group_size} / {self._world_size} ranks)"
            )
        pad_id = self.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        self._buffer = RolloutBuffer(self.rollouts_per_rank // self.micro_batch_size, pad_id)
        return DataLoader(self._buffer, batch_size=None, sampler=_all_of(self._buffer), num_workers=0)

    def val_dataloader(self) -> DataLoader[torch.Tensor] | list[DataLoader[torch.Tensor]]:
        """Serve this rank's validation tasks as indices."""
        if self.val_tasks is None:
            return []
        indices = torch.arange(self._rank, len(self.val_tasks), self._world_size)
        batches = list(indices.split(self.val_batch_size))
        return DataLoader(batches, batch_size=None, sampler=_all_of(batches), num_workers=0)  # type: ignore[arg-type]

    test_dataloader = val_dataloader

    def collect(self, epoch: int, on_scored: OnScored | None = None) -> Collection:
        """Make this rank's rollouts of an epoch.

        Raises:
            EngineError: where more rollouts failed than ``max_failed_fraction`` allows.
            ConfigError: where the template drifts and ``on_template_drift`` is ``refuse``.
        """
        tasks = self._epoch_tasks(epoch)[self._rank :: self._world_size]
        seed = derive_seed("rollouts", self.seed, epoch)
        scored = self.collector.collect(tasks, self.group_size, seed, self.temperature, on_scored)
        self._check_failures(scored)
        self._check_template(scored)
        return Collection.of(scored)

    def train_on(self, collection: Collection, num_updates: int) -> list[list[int]]:
        """Serve ``collection`` from now on, and return its micro-batches as indices."""
        if self._buffer is None:
            raise ConfigError("there is no training data loader yet; the Trainer asks for it before an epoch starts")
        self._buffer.collection = collection
        self._buffer.batches = micro_batches(collection, self.micro_batch_size, num_updates)
        return self._buffer.batches

    def validate_on(self, indices: Sequence[int], on_scored: OnScored | None = None) -> list[ScoredRollout]:
        """Roll out validation tasks once each, with the same seeds at every validation.

        Raises:
            EngineError: where more rollouts failed than ``max_failed_fraction`` allows.
        """
        assert self.val_tasks is not None
        seed = derive_seed("validation", self.seed)
        tasks = [task for task in (self.val_tasks[i] for i in indices) if self._fits(task)]
        scored = self.collector.collect(tasks, 1, seed, self.temperature, on_scored)
        self._check_failures(scored)
        return scored

    def teardown(self, stage: str | None = None) -> None:
        """Free what the engine holds."""
        self.engine.sleep()

    def _epoch_tasks(self, epoch: int) -> list[ToolTask]:
        """Return the epoch's tasks; where one is dropped, a task of the epoch's own reserve takes its place."""
        chosen = epoch_indices(len(self.tasks), self.tasks_per_epoch, self.seed, epoch)
        reserve = iter(epoch_indices(len(self.tasks), len(self.tasks), derive_seed("reserve", self.seed), epoch))
        tasks: dict[str, ToolTask] = {}
        for index in dict.fromkeys([*chosen, *reserve]):  # each once, or a drop would be counted twice
            if len(tasks) == self.tasks_per_epoch:
                break
            task = self.tasks[index]
            if task.task_id not in tasks and self._fits(task):
                tasks[task.task_id] = task
        if len(tasks) < self.tasks_per_epoch:
            raise DataError(
                f"an epoch takes {self.tasks_per_epoch} tasks, but only {len(tasks)} of {len(self.tasks)} can be used; "
                "lower tasks_per_epoch, or raise max_prompt_tokens if prompts were dropped"
            )
        return list(tasks.values())

    def _fits(self, task: ToolTask) -> bool:
        if self.on_long_prompt == "error" or self.collector.fits(task):
            return True  # the collector raises for a prompt that is too long
        self.dropped_prompts += 1
        logger.warning(
            "task %s: prompt over max_prompt_tokens = %d, dropped (%d so far)",
            task.task_id,
            self.max_prompt_tokens,
            self.dropped_prompts,
        )
        return False

    def _check_failures(self, scored: Sequence[ScoredRollout]) -> None:
        reasons = [s.reward.total.reason for s in scored if s.reward.total.is_failed]
        if len(reasons) > self.max_failed_fraction * len(scored):
            raise EngineError(
                f"{len(reasons)} of {len(scored)} rollouts failed, more than max_failed_fraction = "
                f"{self.max_failed_fraction}; the first: {reasons[0]}"
            )

    def _check_template(self, scored: Sequence[ScoredRollout]) -> None:
        drifted = [s.rollout.task.task_id for s in scored if s.rollout.template_drift]
        if drifted and self.on_template_drift == "refuse":
            raise ConfigError(
                f"the chat template rewrites earlier turns in {len(drifted)} of {len(scored)} rollouts (the first is "
                f"of task {drifted[0]}): a server would show the policy another past than it is trained on. Use a "
                "template that keeps turns as they are, or on_template_drift: keep"
            )

    @property
    def _rank(self) -> int:
        return self.trainer.global_rank if self.trainer is not None else 0

    @property
    def _world_size(self) -> int:
        return self.trainer.world_size if self.trainer is not None else 1


def _all_of(items: Any) -> DistributedSampler[Any]:
    """Serve all items in order. They are a rank's share already; any other sampler Lightning would replace."""
    return DistributedSampler(items, num_replicas=1, rank=0, shuffle=False)
