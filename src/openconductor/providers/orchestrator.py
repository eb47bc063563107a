"""An orchestrator as a worker: a Conductor (or a baseline) that answers one step of another one's workflow.

In: the turns of the step. Out: the inner episode's answer, with everything that it used, or the
error that ended it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace

from openconductor.errors import BudgetExceeded, EmptyResponse, WorkerError, WorkerTimeout
from openconductor.protocols import CallContext, OnText, Orchestrator, Provider
from openconductor.types import Budget, Completion, Message, Sampling

MAX_DEPTH = 3
"""How many orchestrators may stand above one another inside the outermost one; a cycle of pools ends here."""

# ``Orchestrator.ask`` takes no CallContext, so the call that it works for travels to it by way of
# the task's context.
working_for: ContextVar[CallContext | None] = ContextVar("openconductor_working_for", default=None)
"""The call, of another orchestrator, that an episode begun here works for; None at the top."""


class OrchestratorProvider(Provider):
    """Asks an orchestrator; its usage is carried as it is, so its cost is what its own workers cost."""

    prices_itself = True
    nests = True

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    def __repr__(self) -> str:
        return f"OrchestratorProvider({self._orchestrator!r})"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Ask the orchestrator; ``on_text`` gets the answer in one piece.

        What is left until ``call.deadline`` is the inner episode's budget of seconds; of calls,
        tokens and dollars it has what the budget of the call that it works for has left
        (``budget.open_meter``).

        Raises:
            WorkerError: the inner episode ended in one (raised as it is, with ``.episode``), its
                plan was no workflow, or orchestrators are nested deeper than ``MAX_DEPTH``.
            WorkerTimeout: the deadline passed.
        """
        above = working_for.get()
        depth = max(call.depth, above.depth + 1 if above is not None else 0)
        if depth >= MAX_DEPTH:
            raise WorkerError(
                f"orchestrators nested {depth + 1} deep, expected at most {MAX_DEPTH}: does a pool hold its own "
                "orchestrator?",
                retryable=False,
            )
        left = None if call.deadline is None else call.deadline - asyncio.get_running_loop().time()
        budget = None if left is None else Budget(seconds=max(0.0, left))
        token = working_for.set(replace(call, depth=depth))
        try:
            episode = await self._orchestrator.ask(
                tuple(messages), budget=budget, on_event=call.on_event, context=call
            )
        except BudgetExceeded as error:
            if left is None or error.limit != "seconds":
                raise
            raise WorkerTimeout(
                f"the inner episode did not end by the call's deadline: {error}"
            ) from error
        finally:
            working_for.reset(token)
        if episode.answer is not None and episode.answer.strip():
            if on_text is not None:
                on_text(episode.answer)
            return Completion(episode.answer, usage=episode.usage)
        failure = episode.error
        if episode.answer is not None:
            failure = EmptyResponse("the inner episode's answer is blank")
        elif not isinstance(failure, WorkerError):
            failure = WorkerError(f"the inner episode ended without an answer: {failure}")
            failure.__cause__ = episode.error
        failure.episode = failure.episode or episode
        raise failure
