"""The demonstrator: perfect where it is told to be, mediocre by default, and each error is what it is called."""

import asyncio
import itertools
from dataclasses import fields, replace

import pytest

from slca_lightning.errors import ConfigError
from slca_lightning.rewards.judges import RuleJudge
from slca_lightning.rewards.judges.base import JudgeRequest
from slca_lightning.rewards.parser import parse_turn
from slca_lightning.rewards.process import process_reward
from slca_lightning.simulation import EmbeddedBackend, Simulator
from slca_lightning.tasks.toolworld import DemonstratorErrors, ToolWorldDemonstrations, execute
from slca_lightning.types import ToolResult

NAMES = [field.name for field in fields(DemonstratorErrors)]
PERFECT = DemonstratorErrors(**dict.fromkeys(NAMES, 0.0))


def demonstrations(size=300, **errors):
    return list(ToolWorldDemonstrations(size, errors=replace(PERFECT, **errors)))


def process_of(demonstration):
    task = demonstration.task
    return process_reward([turn.text for turn in demonstration.turns], task.gold_steps, task.allowed_tools)


def judged(demonstration):
    results = tuple(ToolResult(None, text) for turn in demonstration.turns for text in turn.results)
    request = JudgeRequest(demonstration.task.question, results, demonstration.turns[-1].text, 0)
    return asyncio.run(RuleJudge().rate(request)).value


def calls_of(demonstration):
    return [list(parse_turn(turn.text).calls) for turn in demonstration.turns[:-1]]


def gold_of(demonstration):
    return [list(step) for step in demonstration.task.gold_steps]


def test_without_errors_it_is_perfect():
    for demonstration in demonstrations(1000):
        assert process_of(demonstration).process == pytest.approx(1.0, abs=1e-12)
        assert judged(demonstration) == 1.0
        assert calls_of(demonstration) == gold_of(demonstration)
        assert len(demonstration.turns[-1].text) >= 10  # shorter texts score 0
        assert demonstration.turns[-1].results == ()


def test_by_default_it_is_mediocre():
    """About half succeed: enough to imitate, and something left to learn."""
    scores = [process_of(demonstration).process for demonstration in ToolWorldDemonstrations(2000)]
    success = sum(score >= 0.9 - 1e-9 for score in scores) / len(scores)
    print(f"Success@0.9 of the default demonstrator: {success:.3f}")  # noqa: T201
    assert 0.40 <= success <= 0.65


def test_results_are_those_of_the_simulator():
    """What is learnt from must read as what is met later."""
    simulator = Simulator(EmbeddedBackend(execute))
    for demonstration in demonstrations(50, wrong_value=1.0, redundant=1.0):
        session = simulator.session(demonstration.task)
        for turn in demonstration.turns[:-1]:
            results = asyncio.run(session.answer(parse_turn(turn.text).calls))
            assert tuple(result.content for result in results) == turn.results


def with_calls(**errors):
    return [one for one in demonstrations(**errors) if one.task.needs_call]


def test_wrong_tool():
    for one in with_calls(wrong_tool=1.0):
        made = [call for step in calls_of(one) for call in step]
        assert len(made) == len(one.task.gold_calls)
        wrong = [call for call, gold in zip(made, one.task.gold_calls, strict=True) if call != gold]
        assert len(wrong) == 1
        assert wrong[0].name in one.task.allowed_tools
        assert [c.name for c in made] != [c.name for c in one.task.gold_calls]


def test_wrong_value():
    for one in with_calls(wrong_value=1.0):
        made = [call for step in calls_of(one) for call in step]
        assert [c.name for c in made] == [c.name for c in one.task.gold_calls]
        wrong = [(call, gold) for call, gold in zip(made, one.task.gold_calls, strict=True) if call != gold]
        assert len(wrong) == 1
        call, gold = wrong[0]
        assert sum(call.arguments[name] != value for name, value in gold.arguments.items()) == 1
        assert process_of(one).value < 1.0


def test_redundant():
    for one in with_calls(redundant=1.0):
        made = calls_of(one)
        assert len(made) == len(gold_of(one)) + 1
        assert any(first == second for first, second in itertools.pairwise(made))
        assert process_of(one).name < 1.0


def test_split_parallel():
    for one in with_calls(split_parallel=1.0):
        assert [len(step) for step in calls_of(one)] == [1] * len(one.task.gold_calls)
        assert process_of(one).parallel == float(one.task.kind != "parallel")
        assert process_of(one).name == 1.0


def test_omission():
    for one in with_calls(omission=1.0):
        assert len(one.turns) == 1
        assert process_of(one).omission == 1


def test_needless_call():
    idle = [one for one in demonstrations(needless_call=1.0) if not one.task.needs_call]
    assert len(idle) > 20
    for one in idle:
        assert [len(step) for step in calls_of(one)] == [1]
        assert process_of(one).process < 0.9


def test_dropped_fact():
    for one in with_calls(dropped_fact=1.0):
        assert process_of(one).process == pytest.approx(1.0, abs=1e-12)
        facts = sum(len(execute(c.name, c.arguments, one.task.world_seed)) for c in one.task.gold_calls)
        assert one.turns[-1].text.count("the ") == facts - 1
    rated = [judged(one) for one in with_calls(dropped_fact=1.0)]
    # Where two results hold the same value, a fact that is dropped may still be told by the other.
    assert sum(rating < 1.0 for rating in rated) > 0.95 * len(rated)


def test_wrong_fact():
    told = with_calls(wrong_fact=1.0)
    changed = 0
    for one, right in zip(told, with_calls(), strict=True):
        assert one.turns[:-1] == right.turns[:-1]
        if one.turns[-1] != right.turns[-1]:
            changed += 1
            assert judged(one) < 1.0
    assert changed > 0.6 * len(told)  # only numbers are told wrongly


def test_repeatable_whatever_the_order():
    source, again = ToolWorldDemonstrations(50), ToolWorldDemonstrations(50)
    backwards = [source[i] for i in reversed(range(50))][::-1]
    assert backwards == list(again) == again[:]
    assert len(again) == 50
    assert ToolWorldDemonstrations(50, seed=2)[3] != again[3]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_probabilities_are_checked(name, value):
    with pytest.raises(ConfigError, match=name):
        DemonstratorErrors(**{name: value})
