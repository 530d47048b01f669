"""Draws follow the probabilities, and stop strings are found however they are cut into tokens."""

import pytest
import torch
from scipy import stats

from slca_lightning.rollout.engines.sampling import ASK, CONTINUE, STOP, StopTable, sample, uniform_stream


def draws(logits, temperature, count, seed=0):
    stream = uniform_stream(seed)
    uniform = torch.tensor([stream() for _ in range(count)], dtype=torch.float64)
    return sample(logits.expand(count, -1), torch.full((count,), temperature), uniform)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_frequencies_match_probabilities(temperature):
    logits = torch.tensor([[2.0, -1.0, 0.5, float("-inf"), 1.0, 0.0]])
    probabilities = torch.softmax(logits[0].double() / temperature, -1)
    tokens, logprobs = draws(logits, temperature, 20_000)
    counts = torch.bincount(tokens, minlength=6)
    assert counts[3] == 0  # what has no probability is never drawn
    possible = probabilities > 0
    found = stats.chisquare(counts[possible].numpy(), (20_000 * probabilities[possible]).numpy())
    assert found.pvalue > 0.01  # the seed is fixed: a pass is a pass for ever
    torch.testing.assert_close(logprobs.double(), probabilities.log()[tokens], atol=1e-6, rtol=0)  # float32 logits


def test_temperature_zero_is_argmax_with_the_logprob_of_temperature_one():
    logits = torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    uniform = torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tokens, logprobs = sample(logits, torch.zeros(50), uniform)
    assert torch.equal(tokens, logits.argmax(-1))
    torch.testing.assert_close(logprobs, torch.log_softmax(logits, -1).max(-1).values)


def test_rows_of_other_temperatures_do_not_mix():
    logits = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    temperatures = torch.tensor([0.0, 1.0, 0.3, 0.0, 2.0, 1.0])
    uniform = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tokens, logprobs = sample(logits, temperatures, uniform)
    for i in range(6):
        token, logprob = sample(logits[i : i + 1], temperatures[i : i + 1], uniform[i : i + 1])
        assert token[0] == tokens[i]
        torch.testing.assert_close(logprob[0], logprobs[i])


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 1), (0.499999, 1), (0.500001, 3), (1 - 2**-53, 3)])
def test_edges(uniform, token):
    """The smallest and the largest number there is fall on tokens that have a probability."""
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")]])
    tokens, _ = sample(logits, torch.ones(1), torch.tensor([uniform], dtype=torch.float64))
    assert tokens.tolist() == [token]


def test_streams_are_functions_of_the_seed():
    first, again, other = uniform_stream(2**62 + 1), uniform_stream(2**62 + 1), uniform_stream(2**62 + 2)
    numbers = [first() for _ in range(100)]
    assert numbers == [again() for _ in range(100)]
    assert not set(numbers) & {other() for _ in range(100)}
    assert all(0 <= number < 1 for number in numbers)


def stops_at(table, tokens):
    """Return how many tokens are taken until the table says stop, as the engine asks it."""
    for count, token in enumerate(tokens, 1):
        kind = table.kinds[token]
        if kind == STOP or (kind == ASK and table.text_stops(tokens[:count])):
            return count
    return None


def test_stop_string_of_several_tokens(tiny_tokenizer):
    def ids(text):
        return tiny_tokenizer(text, add_special_tokens=False)["input_ids"]

    pieces = [token for letter in "ab!" for token in ids(letter)]
    assert len(pieces) == 3
    table = StopTable(tiny_tokenizer, len(tiny_tokenizer), (), ("ab!",))
    prefix = ids("a! b! ab a")
    assert stops_at(table, prefix) is None
    assert stops_at(table, [*prefix, *pieces, *prefix]) == len(prefix) + 3  # the stopping token is kept
    assert stops_at(table, [*pieces[:2], *ids(" "), *pieces[2:]]) is None
    assert stops_at(table, pieces[1:]) is None


def test_stop_string_inside_a_longer_token(tiny_tokenizer):
    """The completing token may go on: its last character need not be the string's."""
    token = max(
        range(len(tiny_tokenizer)),
        key=lambda i: tiny_tokenizer.decode([i]).count('"') and len(tiny_tokenizer.decode([i])),
    )
    text = tiny_tokenizer.decode([token])
    stop = text[:-1]
    assert len(stop) > 1
    table = StopTable(tiny_tokenizer, len(tiny_tokenizer), (), (stop,))
    assert stops_at(table, [token]) == 1


def test_tool_response_in_qwen3(qwen3_tokenizer):
    def ids(text):
        return qwen3_tokenizer(text, add_special_tokens=False)["input_ids"]

    table = StopTable(qwen3_tokenizer, 151_936, (qwen3_tokenizer.eos_token_id,), ("<tool_response>",))
    assert len(table.kinds) == 151_936  # the model is wider than the tokenizer
    assert stops_at(table, ids("Let me <tool_response> go on")) == len(ids("Let me <tool_response>"))
    spelled = [token for part in ("<", "tool", "_response", ">", " x") for token in ids(part)]
    assert stops_at(table, spelled) == len(spelled) - len(ids(" x"))  # the same sign by sign, as Qwen2.5 writes it
    assert stops_at(table, ids("<tool_call>{}</tool_call> a > b </tool_response>")) is None
    assert stops_at(table, ids("Bye<|im_end|>")) == len(ids("Bye")) + 1


def test_kinds(tiny_tokenizer):
    table = StopTable(tiny_tokenizer, len(tiny_tokenizer) + 7, (5, 9), ())
    assert [i for i, kind in enumerate(table.kinds) if kind == STOP] == [5, 9]
    assert set(table.kinds) == {STOP, CONTINUE}
    assert set(StopTable(tiny_tokenizer, 300, (), ()).kinds) == {CONTINUE}
