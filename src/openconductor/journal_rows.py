"""Events become rows: what of each moment is written, in which column.

In: events, and what may be written of their texts. Out: tuples in the order of the columns named here, all but the
episode's number, which the writer knows.

Not covered: StepStarted and StepText (a step is written when it ended), and when anything is written (``journal``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from openconductor.errors import OpenConductorError, WorkerError, WorkflowError
from openconductor.events import Answered, Asked, CallEnded, Planned, RoundEnded, StepEnded
from openconductor.journal_privacy import Privacy
from openconductor.journal_text import (
    CallPath,
    Quotes,
    access_text,
    digest,
    dumps,
    key_of,
    price_text,
    request_text,
    storable,
    turns_text,
)
from openconductor.types import Call, Completion, Message, Question, StepResult, Usage, Workflow

Value = str | int | float | None
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
CALLS = (
    *("episode", "round", "step", "attempt", "worker", "identity", "outcome", "nested", "replayed", "replayable"),
    *("key", "request_hash", "started", *_USAGE, "price", "finish_reason", "status", "error_type", "error"),
    *("body_sent", "response", "request"),
)

SUCCESSES = frozenset({"answered", "cut", "refused"})
"""Outcomes of a call whose completion came: what was paid for, and is not paid for again."""

_LARGEST = 2**53  # so that a thousand of the largest still add up in 64 bits
IN_REQUEST = None
"""What stands for a sent body's messages where these are the request's, word by word."""


class Rows:
    """Makes the rows.

    Args:
        privacy: cleans every text.
        content: whether texts are written at all; hashes and numbers always are.
    """

    __slots__ = ("_content", "_quote", "privacy")

    def __init__(self, privacy: Privacy, *, content: bool) -> None:
        self.privacy = privacy
        self._content = content
        self._quote = Quotes()

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
        call = event.call
        asked = request_text(call.messages, call.sampling, self._quote)
        request_hash = digest(asked)
        key = None
        if place is not None:
            sample, path = place
            key = key_of(
                request_hash, call.worker, call.identity, sample=sample, round=event.round, step=event.step, path=path
            )
        response, whole = self._response(call.completion)
        replayable = key is not None and whole and not call.replayed and call.outcome in SUCCESSES
        price = None if call.price is None else price_text(call.price)
        row = (
            *(event.round, event.step, call.attempt, self._name(call.worker)),
            *(self._name(call.identity), call.outcome, call.nested, call.replayed, replayable, key, request_hash),
            *(call.started, *_usage(call.usage), price, call.completion.finish_reason if call.completion else None),
            *(_status(call.error), *self._error(call.error), self._body(call), response),
            self._request(call, asked),
        )
        return row, key if replayable else None

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────
    def _text(self, text: str | None) -> str | None:
        return storable(self.privacy.text(text)) if self._content and text is not None else None

    def _value(self, value: object) -> str | None:
        return dumps(self.privacy.value(value)) if self._content and value is not None else None

    def _name(self, name: str) -> str:
        return storable(self.privacy.scrub(name))

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
        if not self._content:
            return None
        if isinstance(question, str):
            return self._quote(self.privacy.text(question))
        return turns_text([self._cleaned(turn) for turn in question], self._quote)

    def _request(self, call: Call, asked: str) -> str | None:
        """What was asked, of which ``asked`` is the text as it was."""
        if not self._content:
            return None
        cleaned = [self._cleaned(turn) for turn in call.messages]
        sampling, body = call.sampling, call.sampling.body
        if not self.privacy.idle and body:
            sampling = replace(sampling, body=cast("dict[str, object]", self.privacy.value(body)))
        if sampling is call.sampling and all(new is old for new, old in zip(cleaned, call.messages, strict=True)):
            return asked
        return request_text(cleaned, sampling, self._quote)

    def _cleaned(self, turn: Message) -> Message:
        text = self.privacy.text(turn.content)
        if text is turn.content and (self.privacy.idle or not turn.parts):
            return turn
        return Message(turn.role, text, tuple(cast("list[dict[str, object]]", self.privacy.value(turn.parts))))

    def _response(self, said: Completion | None) -> tuple[str | None, bool]:
        """The response as JSON, and whether it is what came, word by word."""
        if said is None or not self._content:
            return None, False
        privacy = self.privacy
        text, reasoning = privacy.text(said.text), privacy.text(said.reasoning)
        whole = text is said.text and reasoning is said.reasoning
        kept = f'{{"text":{self._quote(text)}'
        if reasoning:
            kept += f',"reasoning":{self._quote(reasoning)}'
        if said.tool_calls:
            calls = dumps(privacy.value(said.tool_calls))
            kept += f',"tool_calls":{calls}'
            whole = whole and (privacy.idle or calls == dumps(said.tool_calls))
        return kept + "}", whole

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
