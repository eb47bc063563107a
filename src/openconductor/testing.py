r"""A provider for tests, which answers by a script and records its calls.

>>> import openconductor as oc
>>> from openconductor.testing import Scripted, pool_of
>>> planner = Scripted(oc.Workflow([oc.Step(0, "Add."), oc.Step(0, "Check.", "all")]))
>>> worker = Scripted(["5", oc.Refused("I do not check."), "4"])
>>> conductor = oc.Conductor(planner, pool=pool_of(worker))
>>> conductor.ask_sync("2 + 2?").error
Refused('I do not check.')
>>> conductor.ask_sync("2 + 2?").answer
'4'
>>> worker.calls[0].text
'2 + 2?\n\nAdd.'
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Price, Sampling, Usage, Workflow

USAGE = Usage(input_tokens=10, output_tokens=5)
PRICE = Price(input=Decimal(1), output=Decimal(2))
"""US dollars a million tokens; a call of ``USAGE`` costs $0.00002."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call that a Scripted received.

    Attributes:
        number: 0-based position among the calls of this provider.
        messages: the turns.
        sampling: as sent.
        context: the call's place in its question, and its deadline.
    """

    number: int
    messages: tuple[Message, ...]
    sampling: Sampling
    context: CallContext

    @property
    def text(self) -> str:
        """The content of the last turn."""
        return self.messages[-1].content


Piece = str | float | BaseException
Answer = str | Completion | Workflow | BaseException | tuple[Piece, ...]
Script = (
    Answer
    | list[Answer]
    | Mapping[int | None, Answer]
    | Callable[[ScriptedCall], Answer | Awaitable[Answer]]
)


class Scripted(Provider):
    """Answers by a script, and records its calls.

    Args:
        script: one answer for all calls; a list of answers, of which the last repeats; a mapping
            from the call's step to an answer (None is the Conductor's own call); or a function,
            sync or async, from the ScriptedCall to an answer.
        usage: usage of an answer that is not a Completion.
        attributes: attributes of Provider, such as ``remote=True`` or ``identity="model 1"``.

    An answer is a text, a Completion, an exception to raise, a Workflow (written as a planner
    writes it), or a tuple of pieces: texts that are streamed in turn, numbers of seconds to wait
    (``math.inf`` never ends), and exceptions.

    Attributes:
        calls: the calls received.
        cancelled: number of cancelled calls.
        running: number of calls under way.
        most_running: the largest number of calls under way at once.

    Raises:
        TypeError: an attribute is unknown.
    """

    def __init__(
        self, script: Script = "fine", *, usage: Usage = USAGE, **attributes: object
    ) -> None:
        self.script = script
        self.usage = usage
        self.calls: list[ScriptedCall] = []
        self.cancelled = 0
        self.running = 0
        self.most_running = 0
        for name, value in attributes.items():
            if name not in Provider.__annotations__:
                raise TypeError(f"Scripted: {name!r} is not an attribute of Provider")
            setattr(self, name, value)

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Record the call, let other tasks run, and answer by the script.

        Raises:
            BaseException: as the script says.
        """
        received = ScriptedCall(len(self.calls), tuple(messages), sampling, call)
        self.calls.append(received)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0)
            return await self._play(await self._answer(received), on_text)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _answer(self, received: ScriptedCall) -> Answer:
        script = self.script
        if callable(script):
            answer = script(received)
            return await answer if inspect.isawaitable(answer) else answer
        if isinstance(script, Mapping):
            return script[received.context.step]
        if isinstance(script, list):
            return script[min(received.number, len(script) - 1)]
        return script

    async def _play(self, answer: Answer, on_text: OnText | None) -> Completion:
        if isinstance(answer, Workflow):
            answer = render_workflow(answer)
        if isinstance(answer, Completion):
            if on_text is not None and answer.text:
                on_text(answer.text)
            return answer
        text = ""
        for piece in answer if isinstance(answer, tuple) else (answer,):
            if isinstance(piece, BaseException):
                raise piece
            if not isinstance(piece, str):
                await asyncio.sleep(piece)
                continue
            text += piece
            if on_text is not None:
                on_text(piece)
        return Completion(text, usage=self.usage)


def pool_of(*providers: Provider | Script, **options: Any) -> WorkerPool:
    """Return a pool of workers ``w0``, ``w1``, … over providers, or scripts of their answers.

    Args:
        providers: a Provider, or a script for a Scripted.
        options: options of every Worker, such as ``price=PRICE`` or ``retries=2``.
    """
    workers: list[Worker] = []
    for number, given in enumerate(providers):
        provider = given if isinstance(given, Provider) else Scripted(given)
        workers.append(Worker(provider, name=f"w{number}", **options))
    return WorkerPool(workers)
