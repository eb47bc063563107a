"""One episode under way for a client: what it shows, what it answers, what it costs.

In: the events of an episode. Out: pieces of reasoning and text in order, then an answer or a
failure. What it spends is on its tenant's bill and in the journal, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal

from openconductor.episode import FanOut
from openconductor.errors import OpenConductorError, TruncatedResponse
from openconductor.events import (
    Answered,
    Asked,
    CallEnded,
    Event,
    Planned,
    StepEnded,
    StepStarted,
    StepText,
)
from openconductor.protocols import CallContext
from openconductor.serving.apis.wire import (
    ClientRequest,
    Json,
    Reasoning,
    RequestFailed,
    ServedAnswer,
    answering_step,
    as_object,
    call_id,
    failed,
    orchestration,
)
from openconductor.serving.key_ring import SERVED, Tab
from openconductor.serving.metrics import Metrics
from openconductor.store import Store
from openconductor.types import Episode, Message, Sampling, StepResult, Workflow

SHOWN = 200
"""Characters of a subtask that a summary shows."""

Ask = Callable[..., Awaitable[Episode]]
"""What asks once it is given the sink, as ``on_event``."""

log = logging.getLogger("openconductor.serving")


@dataclass(frozen=True, slots=True)
class Called:
    """What is kept of an answer that called tools: which worker gave it, and what that had been shown."""

    worker: str
    messages: tuple[Message, ...]
    calls: tuple[Mapping[str, object], ...]


class Turn:
    """One episode under way for a client, and the sink of its events.

    Attributes:
        id: the episode's; "" before it has begun.
        created: when, in seconds since 1970.
    """

    def __init__(
        self,
        request: ClientRequest,
        tab: Tab,
        journal: Store,
        metrics: Metrics,
        names: Mapping[int, str],
        *,
        live: bool,
        shown: Reasoning,
        remember: Callable[[str, str, Called], None],
    ) -> None:
        self.id = ""
        self.created = int(tab.began)
        self.request = request
        self.wants_text = live
        self._journal = journal
        self._metrics = metrics
        self._names = names
        self._shown = shown
        self._remember = remember
        self._last = 0  # the step whose text is the answer
        self._said = ""  # live
        self._by = ""  # the worker that said it
        self._thoughts: list[str] = []
        self._news: deque[tuple[int, str]] = deque()  # (part, text); part -1 is the answer's
        self._stir = asyncio.Event()
        self._task: asyncio.Task[Episode]
        self._ended_by: RequestFailed | None = None
        self._settled = False
        self._tab = tab

    # ── its life ──────────────────────────────────────────────────────────────────────────────────
    def start(self, ask: Ask, wish: Sampling, place: ExitStack) -> None:
        """Begin, which is what comes before anything else; ``place`` is given up when it is over."""
        self._task = asyncio.create_task(self._run(ask, wish))
        self._task.add_done_callback(lambda _: (place.close(), self._stir.set()))

    async def _run(self, ask: Ask, wish: Sampling) -> Episode:
        try:
            context = CallContext(options=wish, budget=self._tab.budget)
            return await ask(on_event=FanOut(self._journal, self), context=context)
        finally:
            if self.id and not self._settled:  # cancelled, or stopped before there was an Episode
                self._settle()

    async def begun(self) -> None:
        """Wait until it has an id, or has failed at once.

        Raises:
            RequestFailed: it has.
        """
        await self._stir.wait()
        if self._task.done() and not self._task.cancelled() and self._task.exception() is not None:
            await self.answer()

    def cancel(self, why: RequestFailed | None = None) -> None:
        """Cancel everything that it does; ``why`` is what its client is told."""
        if not self._task.done():
            self._ended_by = (
                self._ended_by or why or RequestFailed(499, "cancelled", "the client went away")
            )
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until nothing of it runs any more."""
        if not self._task.done():
            await asyncio.wait((self._task,))

    async def happenings(self, patience: float) -> AsyncIterator[tuple[int, str] | None]:
        """What is to be shown, as it happens: (part of the reasoning, or -1 for the answer, and a piece of text).

        Nothing for ``patience`` seconds gives None, again and again. It ends with the episode.
        """
        while True:
            while self._news:
                part, text = self._news.popleft()
                while self._news and self._news[0][0] == part:
                    text += self._news.popleft()[1]
                yield part, text
            if self._task.done():
                return
            self._stir.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._stir.wait()
            except TimeoutError:
                yield None

    async def answer(self) -> ServedAnswer:
        """The whole answer, once it is there.

        Raises:
            RequestFailed: there is none.
        """
        await self.ended()
        if self._task.cancelled():
            raise self._ended_by or RequestFailed(
                500, "internal_error", "the episode was cancelled from inside"
            )
        error = self._task.exception()
        if error is None:
            return self._served(self._task.result())
        if not isinstance(error, OpenConductorError):
            log.error("request %s failed by a fault of the server", self.id, exc_info=error)
            raise RequestFailed(500, "internal_error", f"a fault of the server; request {self.id}")
        raise self._tab.failed(error)

    def _served(self, episode: Episode) -> ServedAnswer:
        if episode.answer is None:
            raise failed(episode.error or OpenConductorError("no answer and no error"))
        step, calls, finish = answering_step(episode), (), "stop"
        said = step and step.completion
        if (
            said is not None and said.text == episode.answer
        ):  # else a vote, or a text of a baseline's own
            calls = renamed(said.tool_calls, episode.id)
            ended = "tool_calls" if calls else "stop"
            finish = ended if said.finish_reason in ("stop", "tool_calls") else said.finish_reason
        bill = orchestration(episode, self._names)
        return ServedAnswer(episode, episode.answer, calls, finish, tuple(self._thoughts), bill)

    def unsaid(self, answer: ServedAnswer) -> str:
        """The rest of an answer's text, of which a part was shown live.

        Raises:
            RequestFailed: what was shown is no part of it.
        """
        if not answer.text.startswith(self._said):
            raise RequestFailed(
                502, "worker_failed", "the worker wrote something else than its answer came to be"
            )
        return answer.text[len(self._said) :]

    # ── what it hears ─────────────────────────────────────────────────────────────────────────────
    def __call__(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case StepText():
                if self.wants_text and event.step == self._last:
                    self._said += event.text
                    self._tell(-1, event.text)
            case CallEnded():
                self._metrics.hear(event)
                self._tab.hear(event)
            case Asked():
                self.id = event.episode
                self._keep(None)
                self._stir.set()
            case Planned():
                self._last = len(event.workflow or (0,)) - 1
                self._plan(event)
            case StepStarted():
                self._started(event)
            case StepEnded():
                self._ended(event)
            case Answered():
                self._settle(event.outcome)
            case _:
                pass

    def _started(self, event: StepStarted) -> None:
        if event.step == self._last:
            if self._said:
                words = f"the answering worker broke off after {len(self._said)} characters, which were shown already"
                raise TruncatedResponse(words, worker=self._by)
            self._by = self._names[event.worker]
        if self._thoughts:
            self._think(f"Step {event.step + 1}: {self._names[event.worker]} is at work.", new=True)

    def _ended(self, event: StepEnded) -> None:
        if not self._thoughts or (self.wants_text and event.step == self._last):
            return
        result, step = event.result, f"Step {event.step + 1}: {self._names[event.result.asked]}"
        if result.completion is None:
            self._think(f"\n{step} failed ({getattr(result.error, 'outcome', 'cancelled')}).")
            return
        whole = self._shown == "full" and event.step != self._last
        self._think(
            f"\n{step} answered {_bill(result)}." + (f"\n{result.completion.text}" if whole else "")
        )

    def _plan(self, event: Planned) -> None:
        if self._shown == "off":
            return
        if event.workflow is None:
            self._think(f"The plan is not a workflow: {event.error}", new=True)
            return
        lines = [event.completion.text] if self._shown == "full" else []
        lines += [_line(index, step.subtask, self._names[step.worker], event.workflow, cut=self._shown != "full")
                  for index, step in enumerate(event.workflow)]  # fmt: skip
        self._think("\n".join(lines) or "The answer stands.", new=True)

    def _think(self, text: str, *, new: bool = False) -> None:
        if new:
            self._thoughts.append(text)
        else:
            self._thoughts[-1] += text
        self._tell(len(self._thoughts) - 1, text)

    def _tell(self, part: int, text: str) -> None:
        if self.request.stream:
            self._news.append((part, text))
            self._stir.set()

    # ── its bill ──────────────────────────────────────────────────────────────────────────────────
    def _settle(self, episode: Episode | None = None) -> None:
        """Put what it came to on the tenant's bill, and into the journal."""
        self._settled = True
        step = answering_step(episode) if episode is not None else None
        calls = (
            step.completion.tool_calls if step is not None and step.completion is not None else ()
        )
        if step is not None and calls:
            self._remember(
                self._tab.key.name, self.id, Called(self._names[step.asked], step.messages, calls)
            )
        self._metrics.charged(self._tab.key.name, self._tab.charged)
        self._keep(self._tab.charged, tools=bool(calls))

    def _keep(self, charged: Decimal | None, *, tools: bool = False) -> None:
        record: Json = {
            "key": self._tab.key.name, "model": self.request.model, "began": self._tab.began, "tools": tools,
            "instructed": self.request.instructed, "charged": None if charged is None else str(charged),
        }  # fmt: skip
        self._journal.put_record(f"{SERVED}{self.id}", record, texts=False)


# ── pieces ────────────────────────────────────────────────────────────────────────────────────────
def renamed(calls: Sequence[Mapping[str, object]], episode: str) -> tuple[Json, ...]:
    """A worker's calls of tools under our ids."""
    functions = (as_object(call.get("function")) for call in calls)
    told = (
        {"name": str(one.get("name", "")), "arguments": str(one.get("arguments") or "{}")}
        for one in functions
    )
    return tuple(
        {"id": call_id(episode, index), "type": "function", "function": function}
        for index, function in enumerate(told)
    )


def _line(index: int, subtask: str, name: str, workflow: Workflow, *, cut: bool) -> str:
    seen = ", ".join(str(step + 1) for step in workflow.visible(index))
    text = " ".join(subtask.split())
    text = f"{text[: SHOWN - 1]}…" if cut and len(text) > SHOWN else text
    return f"{index + 1}. {name}{f' (sees {seen})' if seen else ''}: {text}"


def _bill(result: StepResult) -> str:
    used = result.usage
    dollars = f", ${used.dollars:f}" if used.dollars else ""
    seconds = (result.ended or 0.0) - (result.started or 0.0)
    return f"in {seconds:.1f} s ({used.tokens} tokens{dollars})"
