"""Contract 1: ids are kept as sampled, and together they are the conversation that a chat server would see."""

import random
import unicodedata

import pytest

WORDS = [
    "Oslo", "naïve", "東京", "😀👩‍👩‍👧", "e\u0301", "\u0301", "a\u0308o\u0323\u0302", "\u202eabc", "مرحبا",
    " ", "  ", "\t", "\n", "\n\n", "{}", '{"a": [1, 2.5]}', "\\", "12345", "don't", "\x00", "\u00a0", "�", "🇳🇴",
]  # fmt: skip
TAGS = [
    "</tool_response>",
    "<tool_call>",
    "</tool_call>",
    "<|im_end|>",
    "<|im_start|>assistant\n",
    "<think>",
    "</think>",
]


def text_of(rng, pieces, longest):
    return "".join(rng.choice(pieces) for _ in range(rng.randrange(longest)))


def answer_of(rng):
    """Whatever a tool may say: nothing, tags of every kind, line breaks at both ends."""
    text = text_of(rng, WORDS + TAGS + ["<tool_response>"], 6)
    return rng.choice(["", text, f"\n{text}\n", f"\n\n{text}", f"<tool_response>\n{text}\n</tool_response>"])


def conversation(rng, script, think):
    """Return the assistant's turns, and one answer a call."""
    turns, answers = [], []
    for _ in range(rng.randrange(4)):
        calls = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            calls.append(script.call(len(answers)))
            answers.append(answer_of(rng))
        spoken = f"y{text_of(rng, WORDS, 4)}x " if rng.random() < 0.5 else ""
        # Qwen3's template writes thinking in this one form. (Turns with tags of their own: see the drift tests.)
        thought = f"<think>\nt{text_of(rng, WORDS, 4)}h\n</think>\n\n" if think and rng.random() < 0.5 else ""
        turns.append(thought + spoken + rng.choice(["\n", " ", ""]).join(calls))
    final = f"z{text_of(rng, WORDS, 8)}"
    return [*turns, f"<think>\n\n</think>\n\n{final}" if think else final], answers


@pytest.mark.parametrize(("fixture", "think"), [("tiny_tokenizer", False), ("qwen3_tokenizer", True)])
@pytest.mark.parametrize("seed", range(5))
def test_ids_are_the_conversation(fixture, think, seed, request, script):
    tokenizer = request.getfixturevalue(fixture)
    rng = random.Random(seed)
    for _ in range(50):
        turns, answers = conversation(rng, script, think)
        task = script.make_task(content="?" + text_of(rng, WORDS, 6), tools_in_prompt=rng.random() < 0.3)
        run = script.roll(tokenizer, turns, answers, task)
        rollout, chat = run.rollout, run.chat
        assert rollout.finish_reason == "stop"
        assert [result.content for result in rollout.results] == answers  # nothing stripped, nothing lost
        assert not rollout.template_drift

        by_turn = [rollout.response_ids[turn.start : turn.end] for turn in rollout.turns]
        assert by_turn == [tuple(ids) for ids in run.scripted]  # the policy's tokens, exactly
        assert all(ids[-1] == chat.end_of_turn_id for ids in by_turn)

        ids = [*rollout.prompt_ids, *rollout.response_ids]
        told = [(turn.text, [result.content for result in turn.results]) for turn in rollout.turns]
        shown, rendered = chat.decode(ids), chat.conversation_text(task, told)
        if tokenizer.backend_tokenizer.normalizer is not None:  # Qwen3's encodes NFC: "e" + accent becomes "é"
            rendered = unicodedata.normalize("NFC", rendered)
        assert shown + "\n" == rendered  # the template ends the last turn's line, too
        assert rollout.run_has_call == (*[True] * (len(turns) - 1), False)


@pytest.mark.parametrize("seed", range(3))
def test_ids_that_encode_no_text_are_kept(seed, tiny_tokenizer, script):
    """A policy samples tokens, not texts: other splits of a word, broken UTF-8. None is ever re-encoded."""
    rng = random.Random(seed)
    chat = script.roll(tiny_tokenizer, ["probe"]).chat
    special = set(tiny_tokenizer.all_special_ids) | set(tiny_tokenizer.get_added_vocab().values())
    plain = [i for i in range(len(tiny_tokenizer)) if i not in special]
    different = 0
    for _ in range(20):
        noise = [rng.choice(plain) for _ in range(30)]
        turn = [*noise, *chat.encode(script.call(0)), chat.end_of_turn_id]
        rollout = script.roll(tiny_tokenizer, [turn, "done"], ["ok"]).rollout
        assert rollout.response_ids[: len(turn)] == tuple(turn)
        different += chat.encode(chat.decode(turn)) != turn
    assert different > 10  # else this test would not show anything


def test_each_request_extends_the_one_before(tiny_tokenizer, script):
    run = script.roll(tiny_tokenizer, [script.call(0), script.call(1), "end"], ["a", "b"])
    asked = [request.token_ids for request in run.engine.requests]
    assert asked[0] == run.rollout.prompt_ids
    for earlier, later, ids in zip(asked, asked[1:], run.scripted, strict=False):
        assert later[: len(earlier) + len(ids)] == (*earlier, *ids)
    assert len({request.seed for request in run.engine.requests}) == 3
    assert len({request.request_id for request in run.engine.requests}) == 1
    assert run.rollout.weights_version == run.engine.weights_version


THOUGHT = "<think>\nLet me see.\n</think>\n\n"


@pytest.mark.parametrize(
    ("first", "drift"),
    [
        ("", False),
        ("I look. ", False),
        (THOUGHT, False),
        (THOUGHT.replace("\n\n", "\n"), True),  # the template sets an empty line between thoughts and text
        ("<think>\n\n</think>\n\n", True),  # ... drops empty thoughts of earlier turns
        ("<think>Let me see.</think>", True),  # ... and gives thoughts lines of their own
        ("Hm. " + THOUGHT, True),  # ... and drops what precedes them
    ],
)
def test_qwen3_drift_is_noticed_and_ids_stay(first, drift, qwen3_tokenizer, script):
    turns = [first + script.call(0), script.call(1), "<think>\n\n</think>\n\nDone."]
    run = script.roll(qwen3_tokenizer, turns, ["a", "b"])
    assert run.rollout.template_drift is drift
    asked = run.engine.requests[2].token_ids
    expected = [*run.engine.requests[1].token_ids, *run.scripted[1]]
    assert list(asked[: len(expected)]) == expected
    assert run.rollout.response_ids[: len(run.scripted[0])] == tuple(run.scripted[0])


def test_qwen3_drops_old_thoughts_of_a_prompt_before_it_is_encoded(qwen3_tokenizer, script):
    """History in the task is the template's to show; only what is sampled can drift."""
    task = script.make_task()
    history = ({"role": "user", "content": "a"}, {"role": "assistant", "content": THOUGHT + "b"}, *task.messages)
    task = type(task)(task.task_id, history, task.tools, (), task.allowed_tools)
    run = script.roll(qwen3_tokenizer, [THOUGHT + script.call(0), "Done."], ["a"], task)
    assert "Let me see" not in run.chat.prompt_text(task)
    assert not run.rollout.template_drift
    assert run.chat.decode(run.rollout.response_ids).startswith(THOUGHT)


def test_template_options_reach_the_prompt(qwen3_tokenizer, script):
    run = script.roll(qwen3_tokenizer, ["hi"], template_options={"enable_thinking": False})
    assert run.chat.decode(run.rollout.prompt_ids).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_one_token_tags(qwen3_tokenizer, tiny_tokenizer, script):
    for tokenizer in (qwen3_tokenizer, tiny_tokenizer):
        chat = script.roll(tokenizer, ["probe"]).chat
        for tag in ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"):
            assert len(chat.encode(tag)) == 1
            assert chat.decode(chat.encode(tag)) == tag
