"""A plain function as a provider."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread

from openconductor.errors import OpenConductorError, WorkerError
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling


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
