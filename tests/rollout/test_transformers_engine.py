"""The engine samples what the model says, one row independent of the others, and cleans up after itself."""

import asyncio
import copy

import pytest
import torch

from slca_lightning.errors import ConfigError, EngineError
from slca_lightning.models.loading import load_policy
from slca_lightning.rewards.hier import HierR
from slca_lightning.rewards.judges import RuleJudge
from slca_lightning.rollout.chat import ChatRenderer
from slca_lightning.rollout.collector import RolloutCollector
from slca_lightning.rollout.engines.base import GenerationRequest
from slca_lightning.rollout.engines.transformers import TransformersEngine
from slca_lightning.rollout.loop import RolloutLimits
from slca_lightning.simulation import EmbeddedBackend, Simulator
from slca_lightning.tasks.toolworld import ToolWorldTasks, execute

PROMPTS = ["Hi", "The weather in Oslo for 3 days.", "a b c d e f g h i j k l m n o p", "42 " * 40, "é😀"]


def engine_of(model, tokenizer, **options):
    engine = TransformersEngine(**options)
    engine.setup(tokenizer)
    engine.sync_weights(model, version=5)
    return engine


def run(engine, requests):
    async def together():
        return await asyncio.gather(*[engine.generate(request) for request in requests])

    return asyncio.run(together())


def requests_of(tokenizer, temperature=1.0, max_new_tokens=24, texts=PROMPTS, **options):
    return [
        GenerationRequest(f"r{i}", tuple(tokenizer(text)["input_ids"]), max_new_tokens, i, temperature, **options)
        for i, text in enumerate(texts)
    ]


def assert_idle(engine):
    assert not engine._running
    assert not engine._waiting
    assert not engine._parked
    assert not len(engine._lengths)


def naive_logprobs(model, prompt, tokens, temperature=1.0):
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.double() / temperature, -1), logits


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_greedy_equals_transformers_generate(tiny_model, tiny_tokenizer, attention, tmp_path):
    tiny_model.save_pretrained(tmp_path)
    model = load_policy(str(tmp_path), attn_implementation=attention)
    requests = requests_of(tiny_tokenizer, temperature=0.0)
    generated = run(engine_of(model, tiny_tokenizer), requests)
    compared = 0
    for request, generation in zip(requests, generated, strict=True):
        assert len(generation.token_ids) == 24
        expected = model.generate(
            torch.tensor([request.token_ids]), do_sample=False, max_new_tokens=24, eos_token_id=None,
            pad_token_id=tiny_tokenizer.pad_token_id,
        )[0, len(request.token_ids) :]  # fmt: skip
        _, logits = naive_logprobs(model, request.token_ids, generation.token_ids)
        best = logits.topk(2).values
        # Sums of another order differ by about 1e-6: below 1e-4 apart, the two best may swap, and the texts part there.
        near = ((best[:, 0] - best[:, 1]) <= 1e-4).nonzero()
        certain = int(near[0]) if len(near) else 24
        assert generation.token_ids[:certain] == tuple(expected[:certain].tolist())
        compared += certain
    assert compared > 60


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_equal_a_plain_forward(tiny_model, tiny_tokenizer, temperature, attention, tmp_path):
    tiny_model.save_pretrained(tmp_path)
    model = load_policy(str(tmp_path), attn_implementation=attention)
    requests = requests_of(tiny_tokenizer, temperature)
    for request, generation in zip(requests, run(engine_of(model, tiny_tokenizer), requests), strict=True):
        expected, _ = naive_logprobs(model, request.token_ids, generation.token_ids, temperature)
        chosen = expected.gather(-1, torch.tensor(generation.token_ids)[:, None])[:, 0]
        # float32 sums in another order: about 1e-6
        torch.testing.assert_close(torch.tensor(generation.logprobs).double(), chosen, atol=1e-4, rtol=0)
        assert generation.weights_version == 5


def test_second_turns_go_on_from_the_parked_cache(tiny_model, tiny_tokenizer, monkeypatch):
    engine = engine_of(tiny_model, tiny_tokenizer)
    first = requests_of(tiny_tokenizer)
    answered = run(engine, first)
    read = []
    forward = engine._forward
    monkeypatch.setattr(
        engine, "_forward", lambda row, ids, starts: read.append(ids.shape) or forward(row, ids, starts)
    )
    injected = tuple(tiny_tokenizer("\n<tool_response>\n12\n</tool_response>\n")["input_ids"])
    second = [
        GenerationRequest(one.request_id, (*one.token_ids, *got.token_ids, *injected[: 3 + i]), 16, 90 + i)
        for i, (one, got) in enumerate(zip(first, answered, strict=True))
    ]
    for request, generation in zip(second, run(engine, second), strict=True):
        expected, _ = naive_logprobs(tiny_model, request.token_ids, generation.token_ids)
        chosen = expected.gather(-1, torch.tensor(generation.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(generation.logprobs).double(), chosen, atol=1e-4, rtol=0)
    # Read was the last sampled token, which had not been read yet, and what is new; never the prompt again.
    assert max(shape[1] for shape in read) <= 1 + 3 + len(first)
    engine.release([one.request_id for one in first])
    assert_idle(engine)


def test_a_parked_cache_of_another_past_is_not_used(tiny_model, tiny_tokenizer):
    engine = engine_of(tiny_model, tiny_tokenizer)
    run(engine, requests_of(tiny_tokenizer, texts=["One past of some length."]))
    other = requests_of(tiny_tokenizer, texts=["Another past, which is longer than the first one was, by far."])
    again = requests_of(tiny_tokenizer, texts=["One past of some length."])
    for request in (*other, *again):
        (generation,) = run(engine, [request])
        expected, _ = naive_logprobs(tiny_model, request.token_ids, generation.token_ids)
        chosen = expected.gather(-1, torch.tensor(generation.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(generation.logprobs).double(), chosen, atol=1e-4, rtol=0)


def test_a_request_that_is_all_cached_is_read_again(tiny_model, tiny_tokenizer):
    """Its last token has to be read for the next one to be drawn."""
    engine = engine_of(tiny_model, tiny_tokenizer)
    (request,) = requests_of(tiny_tokenizer, texts=["Hello"])
    (first,) = run(engine, [request])
    known = (*request.token_ids, *first.token_ids[:-1])
    (again,) = run(engine, [GenerationRequest("r0", known, 4, 0)])
    expected, _ = naive_logprobs(tiny_model, known, again.token_ids)
    chosen = expected.gather(-1, torch.tensor(again.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(again.logprobs).double(), chosen, atol=1e-4, rtol=0)


def collector_of(model, tokenizer, max_response_tokens=48, **options):
    engine = engine_of(model, tokenizer, **options)
    simulator, reward = Simulator(EmbeddedBackend(execute)), HierR(RuleJudge())
    limits = RolloutLimits(max_response_tokens=max_response_tokens)
    return engine, RolloutCollector(engine, simulator, reward, ChatRenderer(tokenizer), limits, 4000)


def tokens_of(scored):
    return [one.rollout.response_ids for one in scored]


@pytest.mark.parametrize("options", [{"max_num_seqs": 3}, {"join_share": 0.0}, {"max_prefill_tokens": 1}])
def test_a_rollout_does_not_depend_on_its_neighbours(tiny_model, tiny_tokenizer, options):
    """Other batches sum in another order, about 1e-6 in a logit. A draw differs only where its number falls within
    such a distance of a token's edge, one in about 100,000 draws: with these seeds, none."""
    tasks = ToolWorldTasks(size=12)
    _, together = collector_of(tiny_model, tiny_tokenizer)
    engine, apart = collector_of(tiny_model, tiny_tokenizer, **options)
    running = []
    step = engine._step
    engine._step = lambda: (step(), running.append(len(engine._running)))
    expected = together.collect(tasks, 4, seed=1)
    found = apart.collect(tasks, 4, seed=1)
    assert tokens_of(found) == tokens_of(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.rollout.logprobs == pytest.approx(other.rollout.logprobs, abs=1e-4)
    assert max(running) <= engine.max_num_seqs
    assert len(set(tokens_of(found))) == 48
    assert_idle(engine)


def test_seeds_decide(tiny_model, tiny_tokenizer):
    tasks = ToolWorldTasks(size=3)
    _, collector = collector_of(tiny_model, tiny_tokenizer, 24)
    first = tokens_of(collector.collect(tasks, 2, seed=1))
    assert tokens_of(collector.collect(tasks, 2, seed=1)) == first
    other = tokens_of(collector.collect(tasks, 2, seed=2))
    assert all(one != two for one, two in zip(first, other, strict=True))


def test_rows_that_finish_leave(tiny_model, tiny_tokenizer):
    """Turns of other lengths side by side: each stops at its own, and the last ones run alone."""
    engine = engine_of(tiny_model, tiny_tokenizer)
    running = []
    step = engine._step
    engine._step = lambda: (step(), running.append(len(engine._running)))
    requests = [
        GenerationRequest(f"r{i}", tuple(tiny_tokenizer(PROMPTS[1])["input_ids"]), 1 + 5 * i, i) for i in range(4)
    ]
    generated = run(engine, requests)
    assert [len(generation.token_ids) for generation in generated] == [1, 6, 11, 16]
    assert [generation.finish_reason for generation in generated] == ["length"] * 4
    # The first pass draws from the prompt and then decodes once, so after n passes n + 1 tokens are there.
    assert running == [3] * 4 + [2] * 5 + [1] * 5 + [0]


def test_weights_are_shared_and_stale_caches_dropped(tiny_model, tiny_tokenizer):
    model = copy.deepcopy(tiny_model)
    engine = engine_of(model, tiny_tokenizer)
    assert engine._head.weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    ours = {p.data_ptr() for p in engine._decoder.parameters()}
    assert ours == {p.data_ptr() for p in model.model.parameters()}
    (request,) = requests_of(tiny_tokenizer, texts=[PROMPTS[1]])
    (first,) = run(engine, [request])
    assert engine._parked
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=rng))
    engine.sync_weights(model, version=6)
    assert_idle(engine)
    longer = GenerationRequest("r0", (*request.token_ids, *first.token_ids), 8, 1)
    (second,) = run(engine, [longer])
    assert second.weights_version == engine.weights_version == 6
    expected, _ = naive_logprobs(model, longer.token_ids, second.token_ids)
    chosen = expected.gather(-1, torch.tensor(second.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(second.logprobs).double(), chosen, atol=1e-4, rtol=0)


@pytest.mark.parametrize("forget", ["sleep", "close"])
def test_sleep_and_close_free_the_cache(tiny_model, tiny_tokenizer, forget):
    engine = engine_of(tiny_model, tiny_tokenizer)
    (request,) = requests_of(tiny_tokenizer, texts=["Hi"])
    run(engine, [request])
    getattr(engine, forget)()
    assert_idle(engine)
    assert not engine._cache._keys
    if forget == "close":
        with pytest.raises(EngineError, match="no weights"):
            run(engine, [request])
    else:
        engine.wake()
        assert len(run(engine, [request])[0].token_ids) == 24


def test_no_weights(tiny_tokenizer):
    engine = TransformersEngine()
    engine.setup(tiny_tokenizer)
    assert engine.weights_version == -1
    with pytest.raises(EngineError, match="WeightSync"):
        run(engine, requests_of(tiny_tokenizer))


@pytest.mark.parametrize("step", [1, 4])
def test_a_failing_forward_reaches_all_and_the_engine_lives_on(tiny_model, tiny_tokenizer, step, monkeypatch):
    engine = engine_of(tiny_model, tiny_tokenizer, max_num_seqs=3)
    requests = requests_of(tiny_tokenizer)
    expected = run(engine, requests)
    forward, count = engine._forward, []

    def failing(*args):
        count.append(1)
        if len(count) == step:
            raise RuntimeError("out of memory")
        return forward(*args)

    monkeypatch.setattr(engine, "_forward", failing)

    async def together():
        return await asyncio.gather(*[engine.generate(r) for r in requests], return_exceptions=True)

    outcomes = asyncio.run(together())
    assert all(isinstance(outcome, EngineError) for outcome in outcomes)
    assert all("RuntimeError: out of memory" in str(outcome) for outcome in outcomes)
    assert isinstance(outcomes[0].__cause__, RuntimeError)
    assert_idle(engine)
    assert [g.token_ids for g in run(engine, requests)] == [g.token_ids for g in expected]


def test_sync_while_in_flight(tiny_model, tiny_tokenizer):
    engine = engine_of(tiny_model, tiny_tokenizer)

    async def meanwhile():
        task = asyncio.create_task(engine.generate(requests_of(tiny_tokenizer)[0]))
        while not engine._running:
            await asyncio.sleep(0)
        with pytest.raises(EngineError, match="in flight"):
            engine.sync_weights(tiny_model, 9)
        return await task

    assert asyncio.run(meanwhile()).weights_version == 5


def test_one_request_after_the_other(tiny_model, tiny_tokenizer):
    """A request that comes in the very turn of the event loop in which the last one ended."""
    engine = engine_of(tiny_model, tiny_tokenizer)
    requests = requests_of(tiny_tokenizer)
    expected = run(engine, requests)

    async def in_turn():
        return [await engine.generate(request) for request in requests]

    assert [g.token_ids for g in asyncio.run(in_turn())] == [g.token_ids for g in expected]


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_a_cancelled_request_leaves_the_others_alone(tiny_model, tiny_tokenizer, when):
    engine = engine_of(tiny_model, tiny_tokenizer)
    requests = requests_of(tiny_tokenizer, max_new_tokens=40)
    expected = run(engine, requests)
    engine.release([request.request_id for request in requests])
    steps = []
    step = engine._step
    engine._step = lambda: (step(), steps.append(len(engine._running)))

    async def cancel_one():
        tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
        while not (engine._waiting if when == "waiting" else engine._running):
            await asyncio.sleep(0)
        tasks[2].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        engine.release([request.request_id for request in requests])
        return results

    results = asyncio.run(cancel_one())
    assert isinstance(results.pop(2), asyncio.CancelledError)
    assert [g.token_ids for g in results] == [g.token_ids for i, g in enumerate(expected) if i != 2]
    assert_idle(engine)
    assert max(steps[2:]) == 4  # its row is free at once


def test_end_of_turn_is_kept(tiny_model, tiny_tokenizer):
    stops = tuple(range(0, len(tiny_tokenizer), 10))
    for generation in run(
        engine_of(tiny_model, tiny_tokenizer), requests_of(tiny_tokenizer, max_new_tokens=300, stop_token_ids=stops)
    ):
        assert generation.finish_reason == "stop"
        assert generation.token_ids[-1] in stops
        assert not set(generation.token_ids[:-1]) & set(stops)
        assert len(generation.logprobs) == len(generation.token_ids)


@pytest.mark.parametrize(
    "options", [{"max_num_seqs": 0}, {"max_prefill_tokens": 0}, {"join_share": -0.1}, {"join_share": 1.1}]
)
def test_numbers_out_of_range(options):
    with pytest.raises(ConfigError, match=str(next(iter(options.values())))):
        TransformersEngine(**options)


def test_models_it_cannot_decode_are_refused(tiny_model, tiny_tokenizer):
    """A sliding window or a linear layer would be decoded as full attention, without a word."""
    model = copy.deepcopy(tiny_model)
    model.config.layer_types = ["full_attention", "sliding_attention"]
    with pytest.raises(ConfigError, match="full attention only"):
        engine_of(model, tiny_tokenizer)
    model.config.layer_types = ["full_attention"] * 2
    engine_of(model, tiny_tokenizer)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ConfigError, match="flash_attention_2"):
        engine_of(model, tiny_tokenizer)


def test_weights_that_diverged_are_named(tiny_model, tiny_tokenizer):
    broken = copy.deepcopy(tiny_model)
    with torch.no_grad():
        broken.model.norm.weight[0] = float("nan")
    with pytest.raises(EngineError, match="not finite"):
        run(engine_of(broken, tiny_tokenizer), requests_of(tiny_tokenizer))
