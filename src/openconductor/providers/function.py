"""A plain function as a provider. In: the turns. Out: what the function returned, or a WorkerError with its cause."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread

from openconductor.errors import EmptyResponse, OpenConductorError, WorkerError
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling


class FunctionProvider(Provider):
    """Calls ``(list[Message]) -> str``.

    An async function is awaited; a sync one runs in a thread, so it must be thread-safe. A thread
    cannot be cancelled:
    after a timeout it runs on and its answer is dropped. Each call has one of its own, a daemon:
    threads that hang hold up neither other calls nor the end of the program. Sampling is not passed
    on, and nothing is known about tokens or price.
    """

    def __init__(self, function: Callable[[list[Message]], str | Awaitable[str]]) -> None:
        self._function = function
        call = getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)

    def __repr__(self) -> str:
        return f"FunctionProvider({self._name})"

    @property
    def _name(self) -> str:
        return getattr(self._function, "__qualname__", type(self._function).__qualname__)

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
                string. Errors of this package pass through as they are, so a function can say
                ``raise RateLimited(...)``.
            EmptyResponse: it returned a blank string.
        """
        try:
            turns = list(messages)
            answer: object = (
                self._function(turns) if self._is_async else await self._in_thread(turns)
            )
            if inspect.isawaitable(answer):
                answer = await answer
        except OpenConductorError:
            raise
        except Exception as error:  # the one place that wraps a user's function
            raise WorkerError(
                f"function {self._name} raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(answer, str):
            got = type(answer).__name__
            raise WorkerError(
                f"function {self._name} returned {got}, expected str", retryable=False
            )
        if not answer.strip():
            raise EmptyResponse(f"function {self._name} returned a blank string")
        if on_text is not None:
            on_text(answer)
        return Completion(answer)

    async def _in_thread(self, turns: list[Message]) -> object:
        answer: Future[object] = Future()
        answer.set_running_or_notify_cancel()  # so that its caller's end leaves it be

        def work() -> None:
            try:
                answer.set_result(self._function(turns))
            except (
                StopIteration
            ) as error:  # an asyncio future cannot hold one: the caller would wait for ever
                failure = RuntimeError("StopIteration")
                failure.__cause__ = error
                answer.set_exception(failure)
            except BaseException as error:  # noqa: BLE001 - a user's function; raised again where its caller waits
                answer.set_exception(error)

        Thread(
            target=copy_context().run, args=(work,), name=f"openconductor-{self._name}", daemon=True
        ).start()
        return await asyncio.wrap_future(answer)
