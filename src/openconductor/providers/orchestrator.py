"""An orchestrator as a worker: a Conductor or a baseline that answers a step of another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from openconductor.errors import BudgetExceeded, WorkerError, WorkerTimeout
from openconductor.protocols import CallContext, OnText, Orchestrator, Provider
from openconductor.types import Budget, Completion, Episode, Message, Sampling

MAX_DEPTH = 3
"""The most orchestrators below the outermost one. A pool that holds its own orchestrator ends
here."""


class OrchestratorProvider(Provider):
    """Asks an orchestrator. Its cost is what the orchestrator's workers cost."""

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

        The time left until ``call.deadline`` is the inner episode's budget of seconds. Its calls,
        tokens and dollars are paid by ``call.budget``.

        Raises:
            WorkerError: the inner episode ended in one (raised as it is, with ``.episode``), its
                plan was not a workflow, or orchestrators are nested deeper than ``MAX_DEPTH``.
            WorkerTimeout: the deadline passed.
        """
        depth = call.depth + 1
        if depth > MAX_DEPTH:
            raise WorkerError(
                f"orchestrators nested {depth} deep, expected at most {MAX_DEPTH}: does a pool "
                "hold its own orchestrator?",
                retryable=False,
            )
        budget: Budget | None = None
        if call.deadline is not None:
            left = call.deadline - asyncio.get_running_loop().time()
            budget = Budget(seconds=max(0.0, left))
        try:
            episode = await self._orchestrator.ask(
                tuple(messages),
                budget=budget,
                on_event=call.on_event,
                context=replace(call, depth=depth),
            )
        except BudgetExceeded as error:
            if budget is None or error.limit != "seconds":
                raise
            message = f"the inner episode did not end by the call's deadline: {error}"
            raise WorkerTimeout(message) from error
        if episode.answer is None:
            raise _failure_of(episode)
        if on_text is not None:
            on_text(episode.answer)
        return Completion(episode.answer, usage=episode.usage)


def _failure_of(episode: Episode) -> WorkerError:
    """Return the error of an inner episode that has no answer."""
    if isinstance(episode.error, WorkerError):
        failure = episode.error
    else:
        failure = WorkerError(f"the inner episode ended without an answer: {episode.error}")
        failure.__cause__ = episode.error
    if failure.episode is None:
        failure.episode = episode
    return failure
