"""One rollout: the policy and the tools take turns until the policy answers or a limit is reached."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from slca_lightning.errors import ConfigError, EngineError
from slca_lightning.rewards.parser import ParsedTurn, parse_turn
from slca_lightning.rollout.chat import TOOL_RESPONSE, ChatRenderer
from slca_lightning.rollout.engines.base import Generation, GenerationEngine, GenerationRequest
from slca_lightning.seeding import derive_seed
from slca_lightning.simulation import Malformed, SimulatorSession
from slca_lightning.types import FinishReason, ResultStatus, Rollout, ToolCall, ToolTask, Turn


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """How far a rollout may go. Reaching a limit ends it and is recorded as its finish reason; no token is cut off."""

    max_assistant_turns: int = 10
    """Turns of the policy. A rollout whose last allowed turn still calls a tool finishes with ``turns``."""
    max_response_tokens: int = 8192
    """Sampled and injected tokens together. Finishes with ``length``."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """What makes a rollout what it is."""

    task: ToolTask
    prompt_ids: tuple[int, ...]
    member: int
    """Index in the group."""
    seed: int
    """Decides all samples; the seeds of the turns derive from it."""
    temperature: float = 1.0

    @property
    def request_id(self) -> str:
        """A name that no other rollout in flight has."""
        return f"{self.task.task_id}/{self.member}/{self.seed}"


class _Trajectory:
    """The tokens and turns of a rollout under way."""

    def __init__(self, request: RolloutRequest, chat: ChatRenderer) -> None:
        self.request = request
        self.chat = chat
        self.ids: list[int] = []
        self.mask: list[bool] = []
        self.logprobs: list[float] = []
        self.turns: list[Turn] = []
        self.version = -1
        self.drift = False

    def sampled(self, generation: Generation) -> ParsedTurn:
        """Append what the policy sampled, and return what it says."""
        start = len(self.ids)
        self.ids += generation.token_ids
        self.mask += [True] * len(generation.token_ids)
        self.logprobs += generation.logprobs
        self.version = generation.weights_version
        text = self.chat.turn_text(generation.token_ids)
        parsed = parse_turn(text)
        self.turns.append(Turn(text, start, len(self.ids), parsed.has_attempt))
        return parsed

    def injected(self, ids: list[int]) -> None:
        """Append tokens that the policy did not sample."""
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def check_template(self) -> None:
        """Note where the template, asked again, would show the next turn another past than the ids hold."""
        shown = self.chat.decode([*self.request.prompt_ids, *self.ids])
        turns = [(turn.text, [result.content for result in turn.results]) for turn in self.turns]
        asked_again = self.chat.conversation_text(self.request.task, turns)
        self.drift = self.drift or not self.chat.same_text(shown, asked_again)

    def rollout(self, reason: FinishReason, failure: str | None = None) -> Rollout:
        """Freeze the trajectory."""
        return Rollout(
            task=self.request.task,
            member=self.request.member,
            weights_version=self.version,
            prompt_ids=self.request.prompt_ids,
            response_ids=tuple(self.ids),
            policy_mask=tuple(self.mask),
            logprobs=tuple(self.logprobs),
            turns=tuple(self.turns),
            finish_reason=reason,
            failure=failure,
            template_drift=self.drift,
        )


async def run_rollout(
    request: RolloutRequest,
    engine: GenerationEngine,
    session: SimulatorSession,
    chat: ChatRenderer,
    limits: RolloutLimits,
) -> Rollout:
    """Let the policy work on a task until it answers without a call, or a limit is reached.

    A turn ends with the end-of-turn token, not with its first call, so that several call blocks make one parallel step;
    it also ends where the policy opens a ``<tool_response>``, which is not its to write. A failing engine or simulator
    makes a rollout with finish reason ``failed`` that keeps its tokens and says why; it never raises.
    """
    trajectory = _Trajectory(request, chat)
    try:
        while True:
            generation = await engine.generate(
                GenerationRequest(
                    request_id=request.request_id,
                    token_ids=(*request.prompt_ids, *trajectory.ids),
                    max_new_tokens=limits.max_response_tokens - len(trajectory.ids),
                    seed=derive_seed(request.seed, len(trajectory.turns)),
                    temperature=request.temperature,
                    stop_token_ids=chat.stop_token_ids,
                    stop_strings=(TOOL_RESPONSE,),
                )
            )
            parsed = trajectory.sampled(generation)
            if generation.finish_reason == "length":
                return trajectory.rollout("length")
            if not parsed.has_attempt:
                return trajectory.rollout("stop")
            if len(trajectory.turns) == limits.max_assistant_turns:
                return trajectory.rollout("turns")
            results = await session.answer(requested_calls(parsed))
            last = trajectory.turns[-1]
            failed = next((result for result in results if result.status is ResultStatus.FAILED), None)
            if failed is not None:
                return trajectory.rollout("failed", f"simulator: {failed.content}")
            ended = generation.token_ids[-1] == chat.end_of_turn_id
            ids = chat.injected_ids([result.content for result in results], ended)
            if len(trajectory.ids) + len(ids) >= limits.max_response_tokens:
                # The results would leave no room for a further token; the policy never sees them.
                return trajectory.rollout("length")
            trajectory.turns[-1] = Turn(last.text, last.start, last.end, last.has_call, results)
            trajectory.injected(ids)
            trajectory.check_template()
    except EngineError as error:
        return trajectory.rollout("failed", f"engine: {error}")
    finally:
        engine.release([request.request_id])


def requested_calls(parsed: ParsedTurn) -> list[ToolCall | Malformed]:
    """Return what a turn asks of the simulator, in order: its calls, and a note for each block that holds none."""
    items: list[ToolCall | Malformed] = []
    for block in parsed.blocks:
        items += block.calls or [Malformed(block.problem.value if block.problem else "empty")]
    return items
