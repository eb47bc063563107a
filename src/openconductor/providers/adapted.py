"""What stands for a provider without being a Provider: functions, orchestrators, other objects."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from threading import Thread
from weakref import WeakValueDictionary

from openconductor.errors import (
    BudgetExceeded,
    OpenConductorError,
    WorkerError,
    WorkerTimeout,
)
from openconductor.protocols import CallContext, OnText, Orchestrator, Provider, SupportsComplete
from openconductor.types import Budget, Completion, Episode, Message, Sampling

MAX_DEPTH = 3
"""The most orchestrators below the outermost one. A pool that holds its own orchestrator ends
here."""


class FunctionProvider(Provider):
    """Calls ``(list[Message]) -> str``.

    An async function is awaited. A sync one runs in a thread of its own, so it must be thread-safe.
    A thread cannot be cancelled: after a timeout it runs on and its answer is dropped. Threads are
    daemons, so one that hangs delays neither other calls nor the end of the program. Sampling is
    not passed on; tokens and price are unknown.
    """

    def __init__(self, function: Callable[[list[Message]], str | Awaitable[str]]) -> None:
        self._function = function
        call = getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        self._name: str = getattr(function, "__qualname__", type(function).__qualname__)

    def __repr__(self) -> str:
        return f"FunctionProvider({self._name})"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Call the function; ``on_text`` gets the answer in one piece.

        Raises:
            WorkerError: the function raised (the exception is the cause) or did not return a
                string. Errors of this package pass unchanged, so a function can ``raise
                RateLimited(...)``.
        """
        turns = list(messages)
        try:
            if self._is_async:
                answer: object = self._function(turns)
            else:
                answer = await self._run_in_thread(turns)
            if inspect.isawaitable(answer):
                answer = await answer
        except OpenConductorError:
            raise
        except Exception as error:  # the one place that wraps a user's function
            message = f"function {self._name} raised {type(error).__name__}: {error}"
            raise WorkerError(message) from error
        if not isinstance(answer, str):
            message = f"function {self._name} returned {type(answer).__name__}, expected str"
            raise WorkerError(message, retryable=False)
        if on_text is not None:
            on_text(answer)
        return Completion(answer)

    async def _run_in_thread(self, turns: list[Message]) -> object:
        answer: Future[object] = Future()
        answer.set_running_or_notify_cancel()  # so that the end of its caller does not cancel it

        def run() -> None:
            try:
                answer.set_result(self._function(turns))
            except StopIteration as error:
                # An asyncio future cannot hold one: the caller would wait for ever.
                failure = RuntimeError("StopIteration")
                failure.__cause__ = error
                answer.set_exception(failure)
            except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
                answer.set_exception(error)

        name = f"openconductor-{self._name}"
        Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
        return await asyncio.wrap_future(answer)


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


class AdaptedProvider(Provider):
    """Passes calls to an object with ``complete``; those attributes of Provider that it has count.

    They are read once. ``adapt`` makes one adapter an object.
    """

    def __init__(self, adapted: SupportsComplete) -> None:
        self.adapted = adapted
        for name in Provider.__annotations__:
            if hasattr(adapted, name):
                setattr(self, name, getattr(adapted, name))

    def __repr__(self) -> str:
        return repr(self.adapted)

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Complete the conversation as the object does."""
        return await self.adapted.complete(messages, sampling, call=call, on_text=on_text)

    async def aclose(self) -> None:
        """Close the object, where it has ``aclose``."""
        close = getattr(self.adapted, "aclose", None)
        if close is not None:
            await close()


_adapters: WeakValueDictionary[int, AdaptedProvider] = WeakValueDictionary()


def adapt(adapted: SupportsComplete) -> AdaptedProvider:
    """Return the object's adapter. It is one as long as it is used, because limits hang on it."""
    adapter = _adapters.get(id(adapted))
    if adapter is None:
        _adapters[id(adapted)] = adapter = AdaptedProvider(adapted)
    return adapter
