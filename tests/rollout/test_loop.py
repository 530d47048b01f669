"""Every way a rollout can end, and what it says of itself then."""

import json

import pytest

from slca_lightning.errors import ConfigError, EngineError, SimulatorError
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.loop import RolloutLimits
from slca_lightning.types import ResultStatus


@pytest.fixture
def roll(script, tiny_tokenizer):
    return lambda *args, **kwargs: script.roll(tiny_tokenizer, *args, **kwargs)


def test_stop(roll):
    rollout = roll(["Nothing is new."]).rollout
    assert (rollout.finish_reason, rollout.failure, rollout.final_text) == ("stop", None, "Nothing is new.")
    assert all(rollout.policy_mask)


def test_stop_by_padding_token(roll, tiny_tokenizer):
    ids = tiny_tokenizer("Bye")["input_ids"]
    rollout = roll([[*ids, tiny_tokenizer.pad_token_id]]).rollout
    assert (rollout.finish_reason, rollout.final_text) == ("stop", "Bye")
    assert rollout.response_ids == (*ids, tiny_tokenizer.pad_token_id)


def test_empty_answer(roll, tiny_tokenizer):
    rollout = roll([[tiny_tokenizer.eos_token_id]]).rollout
    assert (rollout.finish_reason, rollout.final_text, len(rollout.turns)) == ("stop", "", 1)


def test_length_while_sampling(roll):
    run = roll(["A rather long answer, which does not fit."], limits=RolloutLimits(max_response_tokens=6))
    assert run.rollout.finish_reason == "length"
    assert run.rollout.response_ids == tuple(run.scripted[0][:6])


def test_length_in_a_later_turn_counts_injected_tokens(roll, script):
    turns, answers = [script.call(0), "An answer that is long enough to be cut somewhere."], ["ok"]
    whole = roll(turns, answers).rollout
    limit = len(whole.response_ids) - 3
    run = roll(turns, answers, limits=RolloutLimits(max_response_tokens=limit))
    assert run.rollout.finish_reason == "length"
    assert run.rollout.response_ids == whole.response_ids[:limit]
    assert run.engine.requests[1].max_new_tokens == limit - whole.turns[1].start


@pytest.mark.parametrize("room", [0, 1])
def test_length_because_results_leave_no_room(roll, script, room):
    """With room for one more token the policy is asked again; without it never sees the results."""
    turns, answers = [script.call(0), "Done."], ["a result of some length"]
    whole = roll(turns, answers).rollout
    run = roll(turns, answers, limits=RolloutLimits(max_response_tokens=whole.turns[1].start + room))
    rollout = run.rollout
    assert rollout.finish_reason == "length"
    if room:
        assert rollout.response_ids == whole.response_ids[: whole.turns[1].start + 1]
        assert len(rollout.results) == 1
    else:
        assert rollout.response_ids == tuple(run.scripted[0])
        assert rollout.results == ()
        assert all(rollout.policy_mask)
    assert len(run.engine.requests) == 1 + room


def test_turns(roll, script):
    run = roll([script.call(0), script.call(1), "never"], ["a", "b"], limits=RolloutLimits(max_assistant_turns=2))
    rollout = run.rollout
    assert (rollout.finish_reason, len(rollout.turns), rollout.final_text) == ("turns", 2, "")
    assert rollout.run_has_call == (True, True)
    assert rollout.turns[1].results == ()
    assert len(run.engine.requests) == 2


def test_an_answer_in_the_last_allowed_turn_is_a_stop(roll, script):
    rollout = roll([script.call(0), "Done."], ["a"], limits=RolloutLimits(max_assistant_turns=2)).rollout
    assert (rollout.finish_reason, rollout.final_text) == ("stop", "Done.")


def test_failed_engine(roll, script):
    whole = roll([script.call(0), "Done."], ["a"]).rollout
    rollout = roll([script.call(0), EngineError("the server is gone")], ["a"]).rollout
    assert rollout.finish_reason == "failed"
    assert "the server is gone" in rollout.failure
    assert rollout.response_ids == whole.response_ids[: whole.turns[1].start]  # tokens so far are kept


def test_engine_that_fails_at_once(roll):
    rollout = roll([EngineError("no")]).rollout
    assert (rollout.finish_reason, rollout.turns, rollout.response_ids) == ("failed", (), ())


def test_failed_simulator(roll, script):
    run = roll([script.call(0) + script.call(1), "never"], ["a", SimulatorError("connection refused")])
    rollout = run.rollout
    assert rollout.finish_reason == "failed"
    assert "connection refused" in rollout.failure
    assert rollout.response_ids == tuple(run.scripted[0])
    assert len(run.engine.requests) == 1


def test_bugs_are_raised_and_still_release(script, tiny_tokenizer):
    """Only typed failures become data; anything else is a bug that must be seen."""
    with pytest.raises(ZeroDivisionError):
        script.roll(tiny_tokenizer, [script.call(0)], [ZeroDivisionError("bug")])


def test_invented_tool_response_ends_the_turn(roll, script):
    """The policy is stopped after <tool_response>; the end-of-turn token that follows is not its own."""
    chat = roll(["probe"]).chat
    turn = chat.encode(script.call(0) + "\n<tool_response>")
    run = roll([turn, "Done."], ["real"])
    rollout = run.rollout
    assert rollout.finish_reason == "stop"
    assert rollout.turns[0].end == len(turn)
    assert rollout.response_ids[len(turn)] == chat.end_of_turn_id
    assert not rollout.policy_mask[len(turn)]
    shown = chat.decode(rollout.response_ids)
    assert shown.startswith(
        script.call(0)
        + "\n<tool_response><|im_end|>\n<|im_start|>user\n<tool_response>\nreal\n</tool_response><|im_end|>"
    )
    assert shown.count("<|im_end|>") == 3
    assert not rollout.template_drift
    assert run.engine.requests[0].stop_strings == ("<tool_response>",)


def test_invented_tool_response_without_a_call_ends_the_rollout(roll):
    chat = roll(["probe"]).chat
    rollout = roll([chat.encode("Oslo: <tool_response>")]).rollout
    assert (rollout.finish_reason, rollout.run_has_call) == ("stop", (False,))


def test_all_calls_of_a_turn_are_executed(roll, script):
    """Several blocks, one of them a list: one parallel step, answered in order."""
    both = '<tool_call>[{"name": "say", "arguments": {"n": 1}}, {"name": "say", "arguments": {"n": 2}}]</tool_call>'
    rollout = roll([script.call(0) + both + script.call(3), "Done."], list("abcd")).rollout
    assert [result.content for result in rollout.turns[0].results] == list("abcd")
    assert [result.call.arguments["n"] for result in rollout.results] == [0, 1, 2, 3]
    assert rollout.finish_reason == "stop"


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("<tool_call>{nonsense</tool_call>", "invalid_json"),
        ("<tool_call></tool_call>", "empty"),
        ('<tool_call>{"name": "say"}</tool_call>', "missing_arguments"),
        ('<tool_call>{"name": "say", "arguments": {"n": 0}}', "unclosed"),
    ],
)
def test_malformed_blocks_get_fixed_errors(roll, script, block, problem):
    rollout = roll([script.call(0) + block, "Sorry."], ["fine"]).rollout
    good, bad = rollout.results
    assert (good.content, good.status) == ("fine", ResultStatus.OK)
    assert (bad.call, bad.status) == (None, ResultStatus.ERROR)
    assert json.loads(bad.content) == {"error": {"type": "malformed_call", "reason": problem}}
    assert rollout.finish_reason == "stop"


def test_unknown_tool_is_answered(roll, script):
    rollout = roll([script.call(0, "sai"), "Sorry."], ["fine"]).rollout
    assert json.loads(rollout.results[0].content)["error"] == {"type": "unknown_tool", "tool": "sai", "near": ["say"]}


def test_calls_inside_thinking_are_none(roll, script):
    rollout = roll([f"<think>{script.call(0)}</think>Hello there."], ["never"]).rollout
    assert (rollout.finish_reason, rollout.results, rollout.run_has_call) == ("stop", (), (False,))


def test_long_results_are_cut_in_the_middle_and_flagged(roll, script):
    run = roll([script.call(0), script.call(1), "Done."], ["x" * 500 + "y" * 500, "short"], max_result_chars=100)
    long, short = run.rollout.results
    assert long.truncated
    assert not short.truncated
    assert len(long.content) <= 100
    assert long.content.startswith("xxx")
    assert long.content.endswith("yyy")
    assert "characters cut" in run.chat.decode(run.rollout.response_ids)
    assert not run.rollout.template_drift


def test_the_engines_reason_decides_not_the_last_token(roll, tiny_tokenizer):
    """A turn may reach its limit with the very token that ends turns; the engine knows."""
    assert roll(["Nothing."], reasons=["length"]).rollout.finish_reason == "length"


@pytest.mark.parametrize("name", ["max_assistant_turns", "max_response_tokens"])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_checked(name, value):
    with pytest.raises(ConfigError, match=f"{name}.*{value}"):
        RolloutLimits(**{name: value})


def changed(tokenizer, **attributes):
    import copy

    other = copy.deepcopy(tokenizer)
    for name, value in attributes.items():
        setattr(other, name, value)
    return other


def test_unfit_tokenizers_are_refused(tiny_tokenizer):
    with pytest.raises(ConfigError, match="no chat template"):
        ChatRenderer(changed(tiny_tokenizer, chat_template=None))
    with pytest.raises(ConfigError, match="end-of-turn"):
        ChatRenderer(changed(tiny_tokenizer, eos_token=None))
    with pytest.raises(ConfigError, match="does not end an assistant's turn"):
        ChatRenderer(changed(tiny_tokenizer, eos_token="<|endoftext|>"))  # noqa: S106
    with pytest.raises(ConfigError, match="does not show assistant turns"):
        ChatRenderer(changed(tiny_tokenizer, chat_template="{{ messages[0].content }}"))
