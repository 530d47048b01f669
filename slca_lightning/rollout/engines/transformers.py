"""Generation with the policy itself, through transformers: the embedded default.

The engine runs the policy's own parameters, so there is nothing to copy and nothing to go stale. Requests are batched
continuously: a sequence leaves the batch when its turn ends and another takes its row, a shared prompt is read once for
all members of a group, and a rollout's KV cache waits, parked, for the tool results that its next turn goes on from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from slca_lightning.errors import ConfigError, EngineError
from slca_lightning.models.forward import decoder_and_head
from slca_lightning.rollout.engines.base import Generation, GenerationEngine, GenerationRequest
from slca_lightning.rollout.engines.sampling import ASK, STOP, StopTable, sample, uniform_stream
from slca_lightning.rollout.engines.slot_cache import LayerKV, SlotCache, check_attention, visibility_mask

_LOOP_TURNS_PER_STEP = 8
"""Turns of the event loop granted before each step, so that answers which are already there join the batch."""


@dataclass(slots=True)
class _Sequence:
    """A request in flight."""

    request: GenerationRequest
    future: asyncio.Future[Generation]
    next_uniform: Callable[[], float]
    stop: StopTable
    tokens: list[int]
    logprobs: list[float]


@dataclass(frozen=True, slots=True)
class _Parked:
    """The KV cache of a rollout that waits for its next turn."""

    token_ids: tuple[int, ...]
    layers: list[LayerKV]


class TransformersEngine(GenerationEngine):
    """Continuous batching over a transformers model.

    Args:
        max_num_seqs: sequences decoded side by side; more requests wait.
        max_prefill_tokens: tokens, padding included, read in one forward pass when sequences join.
        join_share: finished turns come back one by one; they join the batch once they are this share of it, since
            one pass over several is cheaper than several passes. 0 lets each join at once.

    Raises:
        ConfigError: for numbers out of range.
    """

    def __init__(self, max_num_seqs: int = 256, max_prefill_tokens: int = 16384, join_share: float = 0.1) -> None:
        if max_num_seqs < 1 or max_prefill_tokens < 1 or not 0 <= join_share <= 1:
            raise ConfigError(
                "max_num_seqs and max_prefill_tokens must be positive and join_share in [0, 1], got "
                f"{max_num_seqs}, {max_prefill_tokens} and {join_share}"
            )
        self.max_num_seqs = max_num_seqs
        self.max_prefill_tokens = max_prefill_tokens
        self.join_share = join_share
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._decoder: nn.Module | None = None
        self._head: nn.Module | None = None
        self._version = -1
        self._stop_tables: dict[tuple[tuple[int, ...], tuple[str, ...]], StopTable] = {}
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._parked: dict[str, _Parked] = {}
        self._cache = SlotCache()
        self._lengths = torch.empty(0, dtype=torch.long)
        self._driver: asyncio.Task[None] | None = None

    @property
    def weights_version(self) -> int:
        """Version given to the last :meth:`sync_weights`; -1 before the first."""
        return self._version

    def setup(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Take the tokenizer whose texts can stop a turn."""
        self._tokenizer = tokenizer
        self._stop_tables.clear()

    def sync_weights(self, policy: nn.Module, version: int) -> None:
        """Use ``policy`` itself from now on. Caches made with older weights are dropped."""
        if self._running or self._waiting:
            raise EngineError("weights cannot change while requests are in flight; wait for them first")
        decoder, head = decoder_and_head(policy)
        check_attention(decoder.config)
        self._decoder, self._head = decoder, head
        self._version = version
        self._drop_caches()

    def release(self, request_ids: Sequence[str]) -> None:
        """Forget the parked caches of these rollouts."""
        for request_id in request_ids:
            self._parked.pop(request_id, None)

    def sleep(self) -> None:
        """Free the KV cache."""
        self._drop_caches()

    def close(self) -> None:
        """Let go of the policy."""
        self._drop_caches()
        self._decoder = self._head = None
        self._version = -1

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample one turn; see :class:`GenerationEngine`."""
        if self._decoder is None or self._tokenizer is None:
            raise EngineError("the engine has no weights yet; add the WeightSync callback, or call sync_weights first")
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._waiting.append(
            _Sequence(
                request,
                future,
                uniform_stream(request.seed),
                self._stop_table(request),
                [],
                [],
            )
        )
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
            self._driver.add_done_callback(self._stop_driving)
        return await future

    async def _drive(self) -> None:
        while self._waiting or self._running:
            for _ in range(_LOOP_TURNS_PER_STEP):
                await asyncio.sleep(0)
            self._step()

    def _stop_driving(self, driver: asyncio.Task[None]) -> None:
        """Hand the driver's end, where it was not a good one, to everyone who still waits for tokens."""
        cause = None if driver.cancelled() else driver.exception()
        if cause is None and not driver.cancelled():
            return  # whoever waits by now came after the driver had finished, and started another one
        pending = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        self._drop_caches()
        for sequence in pending:
            if sequence.future.done():
                continue
            if cause is None:
                sequence.future.cancel()
            else:
                error = EngineError(f"generation failed: {type(cause).__name__}: {cause}")
                error.__cause__ = cause
                sequence.future.set_exception(error)

    @torch.inference_mode()
    def _step(self) -> None:
        """Admit who waits, then decode one token of every running sequence."""
        free = self.max_num_seqs - len(self._running)
        self._waiting = deque(sequence for sequence in self._waiting if not sequence.future.done())
        if self._waiting and free and len(self._waiting) >= min(free, self.join_share * len(self._running)):
            joining = list(self._waiting)[:free]
            self._admit(joining)
            for _ in joining:
                self._waiting.popleft()  # only now: where reading them fails, they are still told
        if self._running:
            tokens = torch.tensor([[s.tokens[-1]] for s in self._running], device=self._device)
            hidden = self._forward(0, tokens, self._lengths)
            self._lengths += 1
            self._draw(hidden[:, -1], list(range(len(self._running))))

    def _admit(self, joining: list[_Sequence]) -> None:
        """Read what is new of the joining sequences, and draw their first tokens."""
        for chunk in self._chunks(joining):
            self._prefill(chunk)

    def _chunks(self, joining: list[_Sequence]) -> list[list[tuple[list[_Sequence], int]]]:
        """Group joining sequences by equal fresh prompts, then into passes of similar length within the budget.

        An entry is the sequences that share everything to be read, and how many of their tokens are cached already.
        """
        shared: dict[tuple[int, ...], list[_Sequence]] = {}
        entries: list[tuple[list[_Sequence], int]] = []
        for sequence in joining:
            ids = sequence.request.token_ids
            parked = self._parked.get(sequence.request.request_id)
            cached = parked.token_ids if parked is not None else ()
            if 0 < len(cached) < len(ids) and ids[: len(cached)] == cached:
                entries.append(([sequence], len(cached)))
            elif ids in shared:
                shared[ids].append(sequence)
            else:
                shared[ids] = [sequence]
                entries.append((shared[ids], 0))
        entries.sort(key=_num_new)
        chunks: list[list[tuple[list[_Sequence], int]]] = []
        for entry in entries:
            new = _num_new(entry)
            chunk = chunks[-1] if chunks else None
            fits = chunk is not None and (len(chunk) + 1) * new <= self.max_prefill_tokens
            if chunk is None or not fits or new > 2 * _num_new(chunk[0]) + 16:
                chunks.append([entry])
            else:
                chunk.append(entry)
        return chunks

    def _prefill(self, chunk: list[tuple[list[_Sequence], int]]) -> None:
        first_row = len(self._running)
        num_new = max(_num_new(entry) for entry in chunk)
        ids = torch.zeros(len(chunk), num_new, dtype=torch.long)
        for i, (sequences, cached) in enumerate(chunk):
            new = sequences[0].request.token_ids[cached:]
            ids[i, : len(new)] = torch.tensor(new)
            if cached:
                self._cache.put(first_row + i, self._parked.pop(sequences[0].request.request_id).layers)
        starts = torch.tensor([cached for _, cached in chunk], device=self._device)
        hidden = self._forward(first_row, ids.to(self._device), starts)
        last = torch.tensor([_num_new(entry) - 1 for entry in chunk], device=self._device)
        hidden = hidden[torch.arange(len(chunk), device=self._device), last]
        source = list(range(len(chunk)))
        self._running += [sequences[0] for sequences, _ in chunk]
        for i, (sequences, _) in enumerate(chunk):
            for member in sequences[1:]:
                self._cache.copy_row(first_row + i, len(self._running), len(member.request.token_ids))
                self._running.append(member)
                source.append(i)
        joined = self._running[first_row:]
        lengths = torch.tensor([len(s.request.token_ids) for s in joined], device=self._device)
        self._lengths = torch.cat([self._lengths.to(self._device), lengths])
        self._draw(hidden[source], list(range(first_row, len(self._running))))

    def _forward(self, first_row: int, ids: Tensor, starts: Tensor) -> Tensor:
        """Run the decoder on new tokens (n, q) that follow ``starts`` cached ones, and return hidden states."""
        assert self._decoder is not None
        columns = starts[:, None] + torch.arange(ids.shape[1], device=ids.device)
        width = int(columns[:, -1].max()) + 1
        self._cache.address(first_row, columns, width)
        mask = visibility_mask(columns, width, self._decoder)
        output = self._decoder(
            input_ids=ids, position_ids=columns, attention_mask=mask, past_key_values=self._cache, use_cache=True
        )
        hidden: Tensor = output.last_hidden_state
        return hidden

    def _draw(self, hidden: Tensor, rows: list[int]) -> None:
        """Draw the next token of ``rows`` from their last hidden states, and end the turns that are complete."""
        assert self._head is not None
        sequences = [self._running[row] for row in rows]
        uniform = torch.tensor([s.next_uniform() for s in sequences], dtype=torch.float64)
        temperatures = torch.tensor([s.request.temperature for s in sequences], device=hidden.device)
        drawn, logprobs = sample(self._head(hidden), temperatures, uniform)
        if not torch.isfinite(logprobs).all():
            raise EngineError("the policy's logits are not finite; its weights have diverged")
        finished = []
        for row, sequence, token, logprob in zip(rows, sequences, drawn.tolist(), logprobs.tolist(), strict=True):
            sequence.tokens.append(token)
            sequence.logprobs.append(logprob)
            kind = sequence.stop.kinds[token]
            stopped = kind == STOP or (kind == ASK and sequence.stop.text_stops(sequence.tokens))
            full = len(sequence.tokens) == sequence.request.max_new_tokens
            if stopped or full or sequence.future.done():  # done already: whoever waited was cancelled
                finished.append((row, stopped))
        for row, stopped in reversed(finished):
            self._finish(row, stopped)

    def _finish(self, row: int, stopped: bool) -> None:
        """Answer a sequence's request, park its cache and let the last row take its place."""
        sequence = self._running[row]
        request = sequence.request
        if not sequence.future.done():
            # The last token was drawn but never read, so its keys are not in the cache.
            read = int(self._lengths[row])
            tokens = (*request.token_ids, *sequence.tokens)
            self._parked[request.request_id] = _Parked(tokens[:read], self._cache.take(row, read))
        last = len(self._running) - 1
        if row != last:
            self._cache.copy_row(last, row, int(self._lengths[last]))
            self._lengths[row] = self._lengths[last]
            self._running[row] = self._running[last]
        self._running.pop()
        self._lengths = self._lengths[:last]
        if not sequence.future.done():
            sequence.future.set_result(
                Generation(
                    tuple(sequence.tokens),
                    tuple(sequence.logprobs),
                    "stop" if stopped else "length",
                    self._version,
                )
            )

    def _stop_table(self, request: GenerationRequest) -> StopTable:
        key = (request.stop_token_ids, request.stop_strings)
        if key not in self._stop_tables:
            assert self._tokenizer is not None
            head: Any = self._head  # a linear layer, or an adapter around one
            self._stop_tables[key] = StopTable(self._tokenizer, head.out_features, *key)
        return self._stop_tables[key]

    def _drop_caches(self) -> None:
        self._parked.clear()
        self._cache = SlotCache()
        self._lengths = torch.empty(0, dtype=torch.long)

    @property
    def _device(self) -> torch.device:
        assert self._head is not None
        return next(self._head.parameters()).device


def _num_new(entry: tuple[list[_Sequence], int]) -> int:
    sequences, cached = entry
    return len(sequences[0].request.token_ids) - cached
