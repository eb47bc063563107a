"""One episode for a client, while it runs: what it shows, its answer, its bill."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from openconductor.calls.options import bound_usage, offered_calls
from openconductor.errors import OpenConductorError, TruncatedResponse
from openconductor.events import (
    Answered,
    Asked,
    CallEnded,
    Chosen,
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
    orchestration,
    request_failure,
    tool_call,
)
from openconductor.serving.key_ring import Bill
from openconductor.serving.metrics import Metrics
from openconductor.serving.narration import Narration
from openconductor.store import SERVED, SHOWN, Store
from openconductor.types import Call, Episode, FinishReason, Message, Sampling

if TYPE_CHECKING:
    from openconductor.traces.tracer import Traces

ANSWER = -1
"""In place of the index of a part of the reasoning: the answer's text."""

Ask = Callable[..., Awaitable[Episode]]
"""The ``ask`` of an orchestrator, or a call that begins further on."""

log = logging.getLogger("openconductor.serving")


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """An answer that called tools: its worker, what that was sent, and the calls."""

    worker: str
    messages: tuple[Message, ...]
    calls: tuple[Mapping[str, object], ...]


class Turn:
    """One episode for a client, and the sink of its events.

    Args:
        request: the client's.
        bill: charged for the episode.
        store: keeps it.
        metrics: counts its calls.
        names: the workers' names, by ordinal.
        direct: True if one worker is asked without a plan: such an episode is kept as a whole when
            it has ended.
        live: True if the text of the last step is the answer for sure, so that it can be streamed.
        reasoning: how much of the orchestration is shown.
        remember: keeps an answer that called tools, with the key's name and the episode's id.
        traces: records the spans of the episode. None: nothing is traced.

    Attributes:
        id: the episode's; "" before it has begun.
        created: seconds since 1970.
        steps, tokens: what its calls have come to until now.
        tracer: places the episode in a trace. None: nothing is traced.
    """

    def __init__(
        self,
        request: ClientRequest,
        bill: Bill,
        store: Store,
        metrics: Metrics,
        names: Mapping[int, str],
        *,
        direct: bool,
        live: bool,
        reasoning: Reasoning,
        remember: Callable[[str, str, ToolTurn], None],
        traces: Traces | None,
    ) -> None:
        self.id = ""
        self.created = int(bill.began)
        self.steps = 0
        self.tokens = 0
        self.request = request
        self.wants_text = live
        self._bill = bill
        self._store = store
        self._metrics = metrics
        self._names = names
        self._remember = remember
        self.tracer = traces
        self._events: list[Event] | None = [] if direct else None
        self._narration = Narration(names, reasoning, self._show)
        self._last_step = 0  # its text is the answer
        self._streamed = ""  # of the answer
        self._answering = ""  # the name of the worker that writes it
        self._pieces: deque[tuple[int, str]] = deque()  # part of the reasoning or ANSWER, and text
        self._changed = asyncio.Event()
        self._task: asyncio.Task[Episode]
        self._cancelled_by: RequestFailed | None = None
        self._settled = False
        self._shown: Json = {}  # what is kept of the answer beside its episode

    @property
    def key(self) -> str:
        """The name of its key; "": the server needs no key."""
        return self._bill.key.name

    @property
    def charged(self) -> Decimal:
        """US dollars that its key was charged until now."""
        return self._bill.charged

    # ── running ───────────────────────────────────────────────────────────────────────────────────
    def start(self, ask: Ask, options: Sampling, place: ExitStack) -> None:
        """Begin the episode; ``place`` is closed when it has ended."""

        def end(_: asyncio.Task[Episode]) -> None:
            place.close()
            self._changed.set()

        self._task = asyncio.create_task(self._run(ask, options))
        self._task.add_done_callback(end)

    async def _run(self, ask: Ask, options: Sampling) -> Episode:
        try:
            context = CallContext(
                options=options, budget=self._bill.budget, keep_texts=self.request.store
            )
            return await ask(on_event=self, context=context)
        finally:
            if self.id and not self._settled:  # cancelled, or stopped without an Answered
                self._settle(None)

    async def begun(self) -> None:
        """Wait until the episode has an id.

        Raises:
            RequestFailed: it failed at once.
        """
        await self._changed.wait()
        task = self._task
        if task.done() and not task.cancelled() and task.exception() is not None:
            await self.answer()

    def cancel(self, reason: RequestFailed | None = None) -> None:
        """Cancel all its work; ``reason`` is for the client (None: it has left)."""
        if self._task.done():
            return
        if self._cancelled_by is None:
            left = RequestFailed(499, "cancelled", "the client closed the connection")
            self._cancelled_by = reason or left
        self._task.cancel()

    async def ended(self) -> None:
        """Wait until all its work has ended."""
        if not self._task.done():
            await asyncio.wait((self._task,))

    async def pieces(self, heartbeat_s: float) -> AsyncIterator[tuple[int, str] | None]:
        """Return what is to be shown, as it happens: a part of the reasoning (or ANSWER), and text.

        None comes after each ``heartbeat_s`` seconds of silence. The iterator ends with the
        episode.
        """
        while True:
            while self._pieces:
                part, text = self._pieces.popleft()
                while self._pieces and self._pieces[0][0] == part:
                    text += self._pieces.popleft()[1]
                yield part, text
            if self._task.done():
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(heartbeat_s):
                    await self._changed.wait()
            except TimeoutError:
                yield None

    async def answer(self) -> ServedAnswer:
        """Wait for the whole answer.

        Raises:
            RequestFailed: the episode failed.
        """
        await self.ended()
        if self._task.cancelled():
            raise self._cancelled_by or RequestFailed(
                500, "internal_error", "the episode was cancelled by its own code"
            )
        error = self._task.exception()
        if error is None:
            return served_answer(self._task.result(), self._narration.parts, self._names)
        if not isinstance(error, OpenConductorError):
            log.error("request %s failed by an internal error", self.id, exc_info=error)
            raise RequestFailed(500, "internal_error", f"internal error; request {self.id}")
        raise self._bill.failure(error)

    def rest_of(self, answer: ServedAnswer) -> str:
        """Return the text of the answer that was not streamed.

        Raises:
            RequestFailed: the answer does not begin with the text that was.
        """
        if not answer.text.startswith(self._streamed):
            raise RequestFailed(
                502, "worker_failed", "the worker's stream differs from its whole answer"
            )
        return answer.text[len(self._streamed) :]

    async def wait_durable(self) -> None:
        """Wait until the episode is on the disk."""
        await self._store.wait_durable()

    # ── events ────────────────────────────────────────────────────────────────────────────────────
    def __call__(self, event: Event) -> None:
        """Take in an event, and keep it."""
        if not isinstance(event, StepText):
            self._hand_on(event)
        match event:
            case StepText():
                if self.wants_text and event.step == self._last_step:
                    self._streamed += event.text
                    self._show(ANSWER, event.text)
            case CallEnded():
                used = event.call.usage
                self.tokens += used.input_tokens + used.output_tokens
                self._metrics.count_call(event.call)
                self._check_claim(event.call)
                self._bill.add(event)
            case Asked():
                self.id = event.episode
                self._bill.open(self.id)
                if self._events is None:
                    self._keep(None, tools=False)
                self._changed.set()
            case Planned():
                self._last_step = max(len(event.workflow or ()) - 1, 0)
                self._narration.add_plan(event)
            case Chosen():
                self._last_step = len(event.workflow) - 1
                self._narration.add_choice(event)
            case StepStarted():
                if event.step == self._last_step:
                    self._begin_answer(event)
                self._narration.add_start(event)
            case StepEnded():
                self.steps += 1
                is_answer = event.step == self._last_step
                if not (is_answer and self.wants_text):
                    self._narration.add_end(event, is_answer=is_answer)
            case Answered():
                self._metrics.count_unplanned(event.outcome)
                self._settle(event.outcome)
            case _:
                pass

    def _check_claim(self, call: Call) -> None:
        """Flag a worker that claims more tokens than its call may use."""
        claimed = call.usage
        if call.replayed or bound_usage(call) == claimed:
            return
        self._metrics.count_false_claim(call.worker)
        log.warning(
            "worker %s claims %d input and %d output tokens in request %s, more than its call may "
            "use; the key is charged what was reserved",
            call.worker,
            claimed.input_tokens,
            claimed.output_tokens,
            self.id,
        )

    def _hand_on(self, event: Event) -> None:
        """Hand an event to the tracer, and to the store: at once, or with the whole episode."""
        if self.tracer is not None:
            self.tracer(event)
        if self._events is None:
            self._store(event)
        else:
            self._events.append(event)

    def _begin_answer(self, event: StepStarted) -> None:
        if self._streamed:  # a second attempt cannot take back what the first one wrote
            raise TruncatedResponse(
                f"failed after {len(self._streamed)} characters of its answer were sent",
                worker=self._answering,
            )
        self._answering = self._names[event.worker]

    def _show(self, part: int, text: str) -> None:
        if self.request.stream:
            self._pieces.append((part, text))
            self._changed.set()

    # ── the bill ──────────────────────────────────────────────────────────────────────────────────
    def _settle(self, episode: Episode | None) -> None:
        """Store and count the bill; remember tool calls. None: the episode was cut off."""
        self._settled = True
        step = None if episode is None else answering_step(episode)
        tools = False
        if step is not None and step.completion is not None and step.completion.tool_calls:
            tools = True
            turn = ToolTurn(self._names[step.asked], step.messages, step.completion.tool_calls)
            self._remember(self._bill.key.name, self.id, turn)
        self._metrics.count_charge(self._bill.key.name, self._bill.charged)
        self._keep(self._bill.charged, tools=tools)
        self._bill.close()
        if self._events is not None:  # after the charge, which is exact whatever is lost
            self._store.put_episode(self._events)
        request = self.request
        keeps_texts = request.store and self._store.keeps_texts
        if episode is not None and request.settings is not None and keeps_texts:
            self._shown = {"settings": request.settings, "thoughts": self._narration.parts}
            self._store.put_record(f"{SHOWN}{self.id}", self._shown)

    def keep_sent(self, text: str) -> None:
        """Keep what is sent to the client, beside the episode."""
        self._store.put_record(f"{SHOWN}{self.id}", {**self._shown, "sent": text})

    def _keep(self, charged: Decimal | None, *, tools: bool) -> None:
        record: Json = {
            "key": self._bill.key.name,
            "model": self.request.model,
            "began": self._bill.began,
            "tools": tools,
            "instructed": self.request.instructed,
            "store": self.request.store,
            "charged": None if charged is None else str(charged),
        }
        self._store.put_record(f"{SERVED}{self.id}", record, texts=False)


def served_answer(
    episode: Episode, thoughts: Sequence[str], names: Mapping[int, str]
) -> ServedAnswer:
    """Return the answer of an episode that has ended, or of one that was kept.

    Args:
        episode: the episode.
        thoughts: the reasoning that is shown.
        names: the workers' names, by ordinal.

    Raises:
        RequestFailed: the episode has no answer.
    """
    if episode.answer is None:
        raise request_failure(episode.error or OpenConductorError("no answer and no error"))
    step = answering_step(episode)
    calls: tuple[Json, ...] = ()
    finish_reason: FinishReason = "stop"
    # Another text than the last step's is a vote's, or a baseline's own.
    if step is not None and step.completion is not None and step.completion.text == episode.answer:
        finish_reason = step.completion.finish_reason
        sampling = step.calls[-1].sampling if step.calls else Sampling()
        calls = served_calls(offered_calls(step.completion.tool_calls, sampling.body), episode.id)
        if finish_reason in ("stop", "tool_calls"):
            finish_reason = "tool_calls" if calls else "stop"
    return ServedAnswer(
        episode=episode,
        text=episode.answer,
        tool_calls=calls,
        finish_reason=finish_reason,
        thoughts=tuple(thoughts),
        orchestration=orchestration(episode, names),
    )


def served_calls(calls: Sequence[Mapping[str, object]], episode: str) -> tuple[Json, ...]:
    """Return a worker's tool calls under this server's ids."""
    served: list[Json] = []
    for index, call in enumerate(calls):
        function = as_object(call.get("function"))
        name = str(function.get("name", ""))
        arguments = str(function.get("arguments") or "{}")
        served.append(tool_call(call_id(episode, index), name, arguments))
    return tuple(served)
