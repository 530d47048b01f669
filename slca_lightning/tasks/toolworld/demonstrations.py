"""A mediocre demonstrator for toolworld: good enough to imitate, bad enough to leave something to learn."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from slca_lightning.errors import ConfigError
from slca_lightning.seeding import derive_seed
from slca_lightning.tasks.base import DemonstrationSource
from slca_lightning.tasks.toolworld.requests import random_call
from slca_lightning.tasks.toolworld.tasks import Split, ToolWorldTasks
from slca_lightning.tasks.toolworld.tools import execute
from slca_lightning.types import JSON, Demonstration, DemonstrationTurn, ToolCall, ToolTask


@dataclass(frozen=True, slots=True)
class DemonstratorErrors:
    """How often the demonstrator errs, each a probability in [0, 1]."""

    wrong_tool: float = 0.20
    """A call goes to another tool on offer."""
    wrong_value: float = 0.10
    """A call has another value in one of its arguments."""
    redundant: float = 0.10
    """A step is made twice."""
    split_parallel: float = 0.45
    """Parallel calls are made one after the other."""
    omission: float = 0.12
    """The answer is given without calling anything."""
    needless_call: float = 0.25
    """A tool is called where none is needed."""
    dropped_fact: float = 0.15
    """The summary leaves a returned value out."""
    wrong_fact: float = 0.08
    """The summary gives another number than the tool returned."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name} is a probability, got {value}")


class ToolWorldDemonstrations(DemonstrationSource):
    """Seeded demonstrations on the tasks of one split.

    Args:
        size: number of demonstrations.
        seed: seed of the tasks and of the demonstrator's errors.
        errors: how often each kind of error happens.
        split: which split the tasks are of.
        num_tools: tools that a prompt offers.
    """

    def __init__(
        self,
        size: int = 6000,
        seed: int = 1,
        errors: DemonstratorErrors | None = None,
        split: Split = "train",
        num_tools: int = 4,
    ) -> None:
        self.tasks = ToolWorldTasks(split, size, seed, num_tools)
        self.errors = errors if errors is not None else DemonstratorErrors()

    def __len__(self) -> int:
        return len(self.tasks)

    def demonstration(self, index: int) -> Demonstration:
        """Return the demonstration at ``index``; the same one every time."""
        task = self.tasks[index]
        return demonstrate(task, self.errors, random.Random(derive_seed("toolworld-demonstration", task.task_id)))


def call_text(calls: Sequence[ToolCall]) -> str:
    """Write calls as one Hermes block each."""
    bodies = (json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in calls)
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def result_text(result: JSON) -> str:
    """Write a tool's result as the embedded simulator does."""
    return json.dumps(result, separators=(",", ":"), ensure_ascii=False)


def demonstrate(task: ToolTask, errors: DemonstratorErrors, rng: random.Random) -> Demonstration:
    """Solve ``task``, with errors drawn from ``rng``. With all probabilities 0 the demonstration is perfect."""
    steps = _flawed_steps(task, errors, rng)
    turns, facts = [], []
    for step in steps:
        results = [execute(call.name, call.arguments, task.world_seed) for call in step]
        turns.append(DemonstrationTurn(call_text(step), tuple(result_text(result) for result in results)))
        facts += [fact for result in results for fact in result.items()]
    turns.append(DemonstrationTurn(_summary(task, facts, errors, rng)))
    return Demonstration(task, tuple(turns))


def _flawed_steps(task: ToolTask, errors: DemonstratorErrors, rng: random.Random) -> list[list[ToolCall]]:
    if not task.needs_call:
        name = rng.choice(task.allowed_tools)
        return [[random_call(name, rng)[1]]] if rng.random() < errors.needless_call else []
    if rng.random() < errors.omission:
        return []
    steps = [list(step) for step in task.gold_steps]
    if len(steps[0]) > 1 and rng.random() < errors.split_parallel:
        steps = [[call] for call in steps[0]]
    where = rng.choice([(i, j) for i, step in enumerate(steps) for j in range(len(step))])
    call = steps[where[0]][where[1]]
    if rng.random() < errors.wrong_tool:
        other = rng.choice([name for name in task.allowed_tools if name != call.name])
        steps[where[0]][where[1]] = random_call(other, rng)[1]
    elif rng.random() < errors.wrong_value:
        steps[where[0]][where[1]] = _other_value(call, rng)
    if rng.random() < errors.redundant:
        steps.insert(where[0], list(steps[where[0]]))
    return steps


def _other_value(call: ToolCall, rng: random.Random) -> ToolCall:
    name = rng.choice(list(call.arguments))
    while True:
        other = random_call(call.name, rng)[1].arguments[name]
        if other != call.arguments[name]:
            return ToolCall(call.name, {**call.arguments, name: other})


def _summary(task: ToolTask, facts: list[tuple[str, JSON]], errors: DemonstratorErrors, rng: random.Random) -> str:
    if not facts:
        if task.needs_call:
            return "I am sorry, I do not know."
        return f"Hello {task.question.rstrip('.').split()[-1]}, how can I help?"
    if rng.random() < errors.dropped_fact:
        dropped = rng.randrange(len(facts))
        facts = [fact for i, fact in enumerate(facts) if i != dropped]
    wrong = rng.randrange(len(facts)) if facts and rng.random() < errors.wrong_fact else None
    told = []
    for i, (name, value) in enumerate(facts):
        if i == wrong and isinstance(value, int):
            value += rng.choice([-7, -3, 2, 5, 11])
        told.append(f"the {name} is {value}")
    return f"Here you are: {', '.join(told)}." if told else "Here you are, it is done."
