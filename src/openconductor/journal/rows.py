"""Events become rows: what of each moment is written, in which column.

In: events, and what may be written of their texts. Out: tuples in the order of the columns named here, all but the
episode's number, which the writer knows.

Not covered: StepStarted and StepText (a step is written when it ended), and when anything is written (``journal``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from openconductor.errors import OpenConductorError, WorkerError, WorkflowError
from openconductor.events import Answered, Asked, CallEnded, Planned, RoundEnded, StepEnded
from openconductor.journal.privacy import Privacy
from openconductor.journal.text import (
    CallPath,
    access_text,
    digest,
    dumps,
    key_of,
    loads,
    packed,
    price_text,
    request_hash,
    sampling_text,
    storable,
)
from openconductor.types import Call, Completion, Question, StepResult, Usage, Workflow

Value = str | int | float | bytes | None
Row = tuple[Value, ...]

_USAGE = (
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "dollars",
    "unpriced_calls",
    "work_seconds",
)
EPISODES = ("number", "id", "above", "path", "sample", "started", "question")
ANSWERS = ("number", "id", "outcome", "seconds", *_USAGE, "error_type", "error", "answer")
ROUNDS = (
    *("episode", "round", "ended", "valid", "accepted", "reason", "error_type", "error"),
    *("workers", "access", "subtasks", "text"),
)
STEPS = (
    *("episode", "round", "step", "worker", "answered_by", "outcome", "started", "ended"),
    *(*_USAGE, "error_type", "error", "access", "subtask"),
)
TEXTS = ("number", "text")
OUTCOMES = ("key", "written", "record")
CALLS = (
    *("episode", "round", "step", "attempt", "worker", "identity", "outcome", "nested", "replayed", "replayable"),
    *("key", "request_hash", "started", *_USAGE, "price", "finish_reason", "text", "reasoning", "status"),
    *("error_type", "error", "request", "tool_calls", "body_sent"),
)

SUCCESSES = frozenset({"answered", "cut", "refused"})
"""Outcomes of a call whose completion came: what was paid for, and is not paid for again."""

_LARGEST = 2**53  # so that a thousand of the largest still add up in 64 bits
IN_REQUEST = None
"""What stands for a sent body's messages where these are the request's, word by word."""


_REMEMBERED = 16_000_000  # characters of texts whose numbers are known, until these are forgotten


class _Stored(NamedTuple):
    """A text's place: its number (None: not kept), the digest of what it was, and whether it is that in the file."""

    number: int | None
    digest: str
    whole: bool


class Texts:
    """The texts of turns and responses, each written once for all calls that name it (until it is forgotten here).

    Args:
        privacy: cleans every text.
        content: whether texts are kept at all.
        first: the number of the first text that is new.
    """

    __slots__ = ("_characters", "_content", "_new", "_next", "_privacy", "_stored", "_verbatim")

    def __init__(self, privacy: Privacy, *, content: bool, first: int) -> None:
        self._privacy = privacy
        self._content = content
        self._next = first
        self._stored: dict[str, _Stored] = {}
        self._verbatim: dict[str, int] = {}
        self._characters = 0
        self._new: list[Row] = []

    def of(self, text: str) -> _Stored:
        """The text's place in the file; a new one comes out of ``new_rows`` next time."""
        stored = self._stored.get(text)
        if stored is None:
            self._make_room(text)
            cleaned = self._privacy.text(text) if self._content else ""
            number = self._add(cleaned) if self._content else None
            stored = self._stored[text] = _Stored(number, digest(text), cleaned is text)
        return stored

    def verbatim(self, text: str) -> int:
        """The number of a text that has been cleaned."""
        number = self._verbatim.get(text)
        if number is None:
            self._make_room(text)
            number = self._verbatim[text] = self._add(text)
        return number

    def digest(self, text: str) -> str:
        """The digest of the text as it was."""
        return self.of(text).digest

    def new_rows(self) -> list[Row]:
        """The rows of the texts that are new since this was asked last."""
        rows, self._new = self._new, []
        return rows

    def forget(self) -> None:
        """Take every text that comes for a new one."""
        self._stored.clear()
        self._verbatim.clear()
        self._characters = 0

    def _make_room(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > _REMEMBERED:
            self.forget()

    def _add(self, text: str) -> int:
        number = self._next
        self._next += 1
        self._new.append((number, packed(text)))
        return number


class Rows:
    """Makes the rows. Calls and texts may be asked for by several threads, one at a time; the rest by one thread.

    Args:
        privacy: cleans every text.
        content: whether texts are written at all; hashes and numbers always are.
        first_text: the number of the first text that is new.
    """

    __slots__ = ("_content", "_privacy", "texts")

    def __init__(self, privacy: Privacy, *, content: bool, first_text: int = 1) -> None:
        self._privacy = privacy
        self._content = content
        self.texts = Texts(privacy, content=content, first=first_text)

    def refresh(self) -> None:
        """Look again for secrets that must not be written."""
        if self._privacy.refresh():
            self.texts.forget()

    def asked(self, event: Asked, started: float) -> Row:
        """The episode's row as it begins, from its id on; ``started`` is in seconds since 1970."""
        path = dumps(event.path) if event.path else "[]"
        return (event.episode, event.above, path, event.sample, started, self._question(event.question))

    def answered(self, event: Answered) -> Row:
        """What the episode's row gets when it is over."""
        episode = event.outcome
        return (
            event.episode,
            "answered" if episode.answer is not None else "failed",
            episode.seconds,
            *_usage(episode.usage),
            *self._error(episode.error),
            self._text(episode.answer),
        )

    def planned(self, event: Planned) -> Row:
        """The round's row while it is under way."""
        return self._round(event.round, None, event.completion, event.workflow, event.error)

    def round(self, event: RoundEnded) -> Row:
        """The round's row when it is over."""
        one = event.outcome
        return self._round(event.round, event.at, one.completion, one.workflow, one.error)

    def step(self, event: StepEnded) -> Row:
        """The step's row."""
        return self.result(event.round, event.step, event.result)

    def result(self, round: int, index: int, result: StepResult) -> Row:  # noqa: A002 - the column's name
        """The row of a step that this became of."""
        step, answered = result.step, result.completion is not None
        by = step.worker if result.worker is None else result.worker
        return (
            *(round, index, step.worker, by if answered else None, _outcome(result)),
            *(result.started, result.ended, *_usage(result.usage), *self._error(result.error)),
            *(access_text(step.access), self._text(step.subtask)),
        )

    def call(self, event: CallEnded, place: tuple[int, CallPath] | None) -> tuple[Row, str | None]:
        """The call's row, and its key where it may be answered from here again.

        Args:
            event: the call.
            place: its episode's sample and path; None is not known, and then it has no key.
        """
        call, said = event.call, event.call.completion
        asked = request_hash(call.messages, call.sampling, self.texts.digest)
        key = None
        if place is not None:
            sample, path = place
            key = key_of(
                asked, call.worker, call.identity, sample=sample, round=event.round, step=event.step, path=path
            )
        text, reasoning, tools, whole = self._response(said)
        replayable = key is not None and whole and not call.replayed and call.outcome in SUCCESSES
        row = (
            *(event.round, event.step, call.attempt, self._name(call.worker), self._name(call.identity)),
            *(call.outcome, call.nested, call.replayed, replayable, key, asked, call.started, *_usage(call.usage)),
            *(None if call.price is None else price_text(call.price), said.finish_reason if said else None),
            *(text, reasoning, _status(call.error), *self._error(call.error), self._request(call)),
            *(tools, self._body(call)),
        )
        return row, key if replayable else None

    def kept(self, key: str, written: float, record: Mapping[str, object]) -> Row:
        """The row of what is kept of a question; ``written`` is in seconds since 1970."""
        return self._name(key), written, self._cleaned(record)

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────
    def _text(self, text: str | None) -> str | None:
        return storable(self._privacy.text(text)) if self._content and text is not None else None

    def _value(self, value: object) -> str | None:
        return self._cleaned(value) if self._content and value is not None else None

    def _cleaned(self, value: object) -> str:
        return dumps(self._privacy.value(value))

    def _name(self, name: str) -> str:
        return storable(self._privacy.scrub(name))

    def _error(self, error: OpenConductorError | None) -> tuple[str | None, str | None]:
        """The error's class and its message, which may echo what was sent."""
        return (None, None) if error is None else (type(error).__name__, self._text(str(error)))

    def _round(
        self,
        index: int,
        ended: float | None,
        said: Completion | None,
        workflow: Workflow | None,
        error: OpenConductorError | None,
    ) -> Row:
        steps = workflow.steps if workflow is not None else None
        reason = error.reason.value if isinstance(error, WorkflowError) else None
        return (
            *(index, ended, workflow is not None, None if steps is None else not steps, reason),
            *self._error(error),
            None if steps is None else dumps([step.worker for step in steps]),
            None if steps is None else f"[{','.join(access_text(step.access) for step in steps)}]",
            None if steps is None else self._value([step.subtask for step in steps]),
            self._text(said.text) if said is not None else None,
        )

    def _question(self, question: Question) -> str | None:
        if isinstance(question, str):
            return self._value(question)
        turns: list[dict[str, object]] = []
        for turn in question:
            value: dict[str, object] = {"role": turn.role, "content": turn.content}
            turns.append({**value, "parts": turn.parts} if turn.parts else value)
        return self._value(turns)

    def _request(self, call: Call) -> str | None:
        """What was asked, as JSON in which numbers stand for the texts."""
        if not self._content:
            return None
        turns: list[str] = []
        for turn in call.messages:
            parts = f',"parts":{self.texts.verbatim(self._cleaned(turn.parts))}' if turn.parts else ""
            turns.append(f'{{"content":{self.texts.of(turn.content).number}{parts},"role":{dumps(turn.role)}}}')
        sampling = call.sampling
        if sampling.body:
            sampling = replace(sampling, body=cast("Mapping[str, object]", self._privacy.value(sampling.body)))
        return f'{{"messages":[{",".join(turns)}],"sampling":{sampling_text(sampling)}}}'

    def _response(self, said: Completion | None) -> tuple[int | None, int | None, str | None, bool]:
        """The response's text, reasoning and tool calls, and whether they are what came, word by word."""
        if said is None or not self._content:
            return None, None, None, False
        text, reasoning, tools = self.texts.of(said.text), None, None
        whole = text.whole
        if said.reasoning:
            stored = self.texts.of(said.reasoning)
            reasoning, whole = stored.number, whole and stored.whole
        if said.tool_calls:
            tools = self._value(said.tool_calls)
            whole = whole and tools is not None and loads(tools) == list(said.tool_calls)
        return text.number, reasoning, tools, whole

    def _body(self, call: Call) -> str | None:
        """What was sent, without the messages where these are the request's: they would double every row."""
        sent = call.completion.body_sent if call.completion is not None else None
        if sent is None:
            return None
        turns = sent.get("messages")
        if turns == [{"role": turn.role, "content": turn.content} for turn in call.messages]:
            sent = {**sent, "messages": IN_REQUEST}
        return self._value(sent)


def _outcome(result: StepResult) -> str:
    if result.completion is not None:
        return "answered"
    if result.error is not None:
        return "failed"
    return "cancelled" if result.started is not None else "not_reached"


def _status(error: OpenConductorError | None) -> int | None:
    return error.status if isinstance(error, WorkerError) else None


def _usage(usage: Usage) -> Row:
    tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens)
    if max(tokens) > _LARGEST or min(tokens) < -_LARGEST:  # a server may report any number
        tokens = tuple(max(-_LARGEST, min(count, _LARGEST)) for count in tokens)
    return (*tokens, format(usage.dollars, "f"), usage.unpriced_calls, usage.seconds)
