"""Tasks of toolworld: single calls, parallel calls, chains of calls, and small talk that needs no call."""

from __future__ import annotations

import random
from typing import Literal

from slca_lightning.errors import ConfigError
from slca_lightning.seeding import derive_seed
from slca_lightning.tasks.base import TaskSource
from slca_lightning.tasks.toolworld.requests import CHAINS, random_call, small_talk
from slca_lightning.tasks.toolworld.tools import TOOLS
from slca_lightning.types import ToolCall, ToolTask

Split = Literal["train", "test"]

KINDS = {"single": 0.35, "parallel": 0.30, "sequential": 0.20, "none": 0.15}
"""Kinds of task and how often each is drawn."""

_TEST_SHARE = 5
"""One question in this many belongs to the test split."""

_OPENINGS = ("I need {}.", "Please get {}.", "Give me {}.")


class ToolWorldTasks(TaskSource):
    """Seeded tasks in short natural language, each with its gold steps.

    The two splits never share a question: which split a question belongs to is a hash of its text.

    Args:
        split: ``train`` or ``test``.
        size: number of tasks.
        seed: tasks of different seeds are drawn independently.
        num_tools: tools that a prompt offers: the needed ones and distractors, at least 3.

    Raises:
        ConfigError: for an unknown split, a negative size or too few or too many tools.
    """

    def __init__(self, split: Split = "train", size: int = 4096, seed: int = 0, num_tools: int = 4) -> None:
        if split not in ("train", "test"):
            raise ConfigError(f"toolworld has the splits 'train' and 'test', not {split!r}")
        if size < 1:
            raise ConfigError(f"size must be at least 1, got {size}")
        if not 3 <= num_tools <= len(TOOLS):
            raise ConfigError(f"num_tools must be in 3..{len(TOOLS)} (a task may need 3 tools), got {num_tools}")
        self.split: Split = split
        self.size = size
        self.seed = seed
        self.num_tools = num_tools

    def __len__(self) -> int:
        return self.size

    def task(self, index: int) -> ToolTask:
        """Return the task at ``index``; the same one every time."""
        rng = random.Random(derive_seed("toolworld-task", self.split, self.seed, index))
        world_seed = rng.getrandbits(48)
        while True:
            kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
            question, steps = _draw(kind, rng, world_seed)
            if _split_of(question) == self.split:
                break
        tools = sorted({call.name for step in steps for call in step})
        others = [name for name in TOOLS if name not in tools]
        tools += rng.sample(others, self.num_tools - len(tools))
        rng.shuffle(tools)
        return ToolTask(
            task_id=f"toolworld-{self.split}-{self.seed}-{index}",
            messages=({"role": "user", "content": question},),
            tools=tuple(TOOLS[name].schema(name) for name in tools),
            gold_steps=tuple(tuple(step) for step in steps),
            allowed_tools=tuple(tools),
            question=question,
            world_seed=world_seed,
            kind=kind,
        )


def _split_of(question: str) -> Split:
    return "test" if derive_seed("toolworld-split", question) % _TEST_SHARE == 0 else "train"


def _draw(kind: str, rng: random.Random, world_seed: int) -> tuple[str, list[list[ToolCall]]]:
    if kind == "none":
        return small_talk(rng)[0], []
    if kind == "sequential":
        phrase, calls = rng.choice(CHAINS)(rng, world_seed)
        return rng.choice(_OPENINGS).format(phrase), [[call] for call in calls]
    count = 1 if kind == "single" else rng.choice([2, 2, 3])
    requests = [random_call(name, rng) for name in rng.choices(list(TOOLS), k=count)]
    phrases = [phrase for phrase, _ in requests]
    joined = phrases[0] if count == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
    return rng.choice(_OPENINGS).format(joined), [[call for _, call in requests]]
