"""The backend that needs no server: small Python functions, or seeded placeholders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from slca_lightning.errors import SLCAError
from slca_lightning.simulation.backends.base import Backend, BackendRequest, ToolRefusalError
from slca_lightning.simulation.backends.placeholder import placeholder_answer
from slca_lightning.types import JSON

Executor = Callable[[str, Mapping[str, JSON], int], JSON]
"""Takes a tool's name, the arguments and the world seed; returns the answer, a pure function of the three.

Raises :class:`UnknownExecutor` for a tool it does not know, and ValueError (its message is shown to the policy) for a
call that the schema admits but the tool cannot do.
"""


class UnknownExecutor(KeyError):  # noqa: N818 - reads as what it says: there is no executor for the tool
    """Raised by an executor for a tool it does not know."""


class EmbeddedBackend(Backend):
    """Answers by ``executor``, and by a seeded placeholder for the tools it does not know.

    Without schema guidance a call may reach the executor with arguments it never expected. Where that makes it trip (a
    KeyError, TypeError or the like) the placeholder answers: like a model that is not shown the tool's definition, it
    makes something up instead of naming the argument at fault. With guidance the same exception is a bug, and raised.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self.executor = executor

    async def answer(self, request: BackendRequest) -> str:
        """Return the answer as compact JSON; see :meth:`Backend.answer`."""
        return json.dumps(self._execute(request), separators=(",", ":"), ensure_ascii=False)

    def _execute(self, request: BackendRequest) -> JSON:
        call, seed = request.call, request.world_seed
        if self.executor is not None:
            try:
                return self.executor(call.name, call.arguments, seed)
            except UnknownExecutor:
                pass
            except SLCAError:
                raise  # some are ValueErrors as well, and none is the policy's fault
            except ValueError as error:
                raise ToolRefusalError(str(error)) from error
            except (ArithmeticError, AttributeError, LookupError, TypeError):
                if request.schema_guidance:
                    raise
        return placeholder_answer(request.tool, call, seed)
