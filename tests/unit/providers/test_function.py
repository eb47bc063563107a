"""Plain functions as workers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from openconductor.errors import EmptyResponse, RateLimited, WorkerError, WorkerTimeout
from openconductor.pool import Worker
from openconductor.protocols import CallContext
from openconductor.providers.adapted import FunctionProvider
from openconductor.types import Completion, Message, Sampling

TURNS = (Message("user", "2 + 2"), Message("assistant", "4"))


async def call(function: Callable[[list[Message]], str | Awaitable[str]]) -> Completion:
    return await FunctionProvider(function).complete(TURNS, Sampling(), call=CallContext())


async def test_a_sync_function_gets_a_list_of_turns_in_a_thread() -> None:
    seen: list[object] = []

    def answer(messages: list[Message]) -> str:
        seen.extend([messages, threading.current_thread()])
        return messages[0].content

    assert (await call(answer)).text == "2 + 2"
    assert seen[0] == list(TURNS)
    assert seen[1] is not threading.main_thread()


async def test_partials_async_objects_and_functions_that_return_a_coroutine_are_awaited_too() -> (
    None
):
    async def answer(prefix: str, messages: list[Message]) -> str:
        return prefix + messages[0].content

    class Asynchronous:
        async def __call__(self, messages: list[Message]) -> str:
            return "object"

    assert (await call(partial(answer, "> "))).text == "> 2 + 2"
    assert (await call(Asynchronous())).text == "object"
    assert (await call(lambda messages: answer("", messages))).text == "2 + 2"


@pytest.mark.parametrize(
    "error", [ValueError("broken"), StopIteration(), TimeoutError(), KeyError("x")], ids=repr
)
async def test_an_exception_of_the_function_is_a_worker_error_with_its_cause(
    error: Exception,
) -> None:
    def answer(messages: list[Message]) -> str:
        raise error

    with pytest.raises(WorkerError) as caught:
        await asyncio.wait_for(call(answer), 5)
    assert type(caught.value) is WorkerError
    causes = (caught.value.__cause__, caught.value.__cause__ and caught.value.__cause__.__cause__)
    assert type(error) in {
        type(cause) for cause in causes
    }  # asyncio hands on a copy of a TimeoutError
    assert "answer" in str(caught.value)


async def test_a_typed_error_of_the_function_passes_through() -> None:
    def answer(messages: list[Message]) -> str:
        raise RateLimited("later", retry_after=3)

    with pytest.raises(RateLimited):
        await call(answer)


@pytest.mark.parametrize("wrong", [None, 4, b"4", ["4"]], ids=repr)
async def test_a_return_that_is_no_string_is_a_worker_error_that_a_retry_does_not_mend(
    wrong: object,
) -> None:
    with pytest.raises(WorkerError, match="expected str") as caught:
        await call(lambda messages: wrong)  # type: ignore[arg-type, return-value]
    assert not caught.value.retryable


async def test_a_blank_return_is_an_empty_response() -> None:
    with pytest.raises(EmptyResponse):
        await Worker(lambda messages: "  ", name="mute").complete(TURNS, call=CallContext())


async def test_the_answer_is_streamed_in_one_piece() -> None:
    pieces: list[str] = []
    provider = FunctionProvider(lambda messages: "hello")
    await provider.complete(TURNS, Sampling(), call=CallContext(), on_text=pieces.append)
    assert pieces == ["hello"]


def test_a_function_that_hangs_holds_up_neither_other_calls_nor_the_end_of_the_loop() -> None:
    gate = threading.Event()

    def hang(messages: list[Message]) -> str:
        gate.wait(30)
        return "late"

    async def many() -> list[object]:
        hung = [Worker(hang, name="hung", timeout_s=0.05) for _ in range(40)]
        quick = Worker(lambda messages: "42", name="quick", timeout_s=20)
        turns = [Message("user", "2 + 2")]
        calls = [worker.complete(turns, call=CallContext()) for worker in (*hung, quick)]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    begun = time.monotonic()
    *failed, said = asyncio.run(many())
    assert all(isinstance(one, WorkerTimeout) for one in failed)
    assert isinstance(said, Completion) and said.text == "42"
    assert time.monotonic() - begun < 25
    gate.set()
