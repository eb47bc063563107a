"""What the APIs share: what a client asks, what it is told, and how a failure reads.

In: bodies that an API has read. Out: a ClientRequest for the gateway, and the pieces of an answer
for the API to write. Each API is a module beside this one with an object of the protocol ``Api``;
nothing here knows how one of them looks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from reprlib import repr as short
from typing import Annotated, Any, Literal, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openconductor import errors
from openconductor.ledger import CONDUCTOR, draw_entries
from openconductor.types import Episode, FinishReason, Message, Sampling, StepResult, Usage

Json = dict[str, Any]
Reasoning = Literal["off", "summary", "full"]
"""How much of the orchestration an answer shows as reasoning: nothing, a line for each thing that happens, or all."""
IMAGE = "data:image/"
RECALLS = "recalls"
"""The key of a part of an assistant's turn that stands for what an earlier answer said: its episode. The gateway puts
the text in its place."""
Name = Annotated[str, Field(max_length=256)]
"""A longer name is nobody's, and would take long to look up."""
_LINES = re.compile("[\u0085\u2028\u2029]")
M = TypeVar("M", bound=BaseModel)
N = TypeVar("N", float, Decimal)


class RequestFailed(errors.OpenConductorError):
    """A request that gets an error for an answer.

    Attributes:
        status: HTTP's.
        code: what failed, for programs.
        message: what failed, for people: where, what was got, what was expected.
        param: the field of the body, where one is wrong.
        retry_after: in seconds, where it is known when another attempt may succeed.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────
class Control(BaseModel):
    """What a request says of its orchestration: ``conductor`` in the body, of every API. A key's limits hold beside it.

    Attributes:
        workers: the names of those that may be asked.
        tags: workers that have at least one of them.
        max_price: workers whose prices of input and output, in US dollars a million tokens, are at
            most this.
        max_steps: the most steps of a workflow.
        max_rounds: the most rounds.
        max_calls, max_tokens, max_dollars, max_seconds: the budget of the whole answer.
        seed: that of every call.
        reasoning: how much is shown.
    """

    model_config = ConfigDict(extra="forbid")

    workers: Annotated[list[Name], Field(min_length=1)] | None = None
    tags: Annotated[list[Name], Field(min_length=1)] | None = None
    max_price: Annotated[Decimal, Field(ge=0)] | None = None
    max_steps: Annotated[int, Field(ge=1)] | None = None
    max_rounds: Annotated[int, Field(ge=1)] | None = None
    max_calls: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_dollars: Annotated[Decimal, Field(ge=0)] | None = None
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    seed: int | None = None
    reasoning: Reasoning | None = None


class Open(BaseModel):
    """A body, or a part of one. Fields that an API does not name are tolerated and do nothing."""

    model_config = ConfigDict(extra="allow")


class Body(Open):
    """What all bodies have."""

    model: Name
    stream: bool | None = None
    conductor: Control | None = None


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """What a client asks, whatever its API.

    Attributes:
        body: as it came, for what an answer echoes.
        model: who is asked: ``conductor``, a baseline's name, ``direct:WORKER``.
        turns: the conversation, the system's turns first; calls of tools and their results in the
            form of chat completions (``Message.parts``), under the ids that we gave out.
        wish: what the call that answers is to do, in the form of chat completions (``tools``,
            ``tool_choice``, ``response_format``, ``stop`` and the like in its ``body``).
        stream: whether the answer is to come as a stream.
        previous: the id of an earlier answer's episode, whose conversation comes before ``turns``.
        instructed: how many turns at the beginning are this request's alone, and no part of what
            follows on it.
    """

    body: Body
    model: str
    turns: tuple[Message, ...]
    wish: Sampling
    stream: bool
    previous: str | None = None
    instructed: int = 0

    @property
    def control(self) -> Control:
        """What it says of the orchestration."""
        return self.body.conductor or Control()


def read_body(kind: type[M], body: Json) -> M:
    """A body as the model of its API.

    Raises:
        RequestFailed: it is none; the message names the first field that is wrong, what was got and
            what was expected.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        got = "" if first["type"] == "missing" else f", got {short(first['input'])}"
        raise RequestFailed(
            400, "invalid_value", f"{where or 'the body'}: {first['msg']}{got}", param=where
        ) from None


def invalid(where: str, problem: str) -> RequestFailed:
    """The failure of a body whose field ``where`` is wrong; ``problem`` says what was got and what was expected."""
    return RequestFailed(400, "invalid_value", f"{where}: {problem}", param=where)


def image_part(url: object, where: str, detail: object = None) -> Json:
    """An image as a part of a Message, from a data URL.

    Raises:
        RequestFailed: it is at another address: nothing is fetched for a client.
    """
    if not isinstance(url, str) or not url.startswith(IMAGE) or ";base64," not in url[:100]:
        raise invalid(
            where, f"got {short(url)}, expected an image as a data URL (data:image/png;base64,...)"
        )
    return {
        "type": "image_url",
        "image_url": {"url": url, **({"detail": detail} if detail else {})},
    }


def read_content(content: object, where: str) -> tuple[str, list[Mapping[str, object]]]:
    """The text of a turn, or of a tool's result, and its images, in the form of either API of OpenAI's.

    Raises:
        RequestFailed: it is neither a text nor a list of such parts.
    """
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise invalid(where, f"got {short(content)}, expected a text or a list of parts")
    texts: list[str] = []
    images: list[Mapping[str, object]] = []
    for index, part in enumerate(map(as_object, cast("list[object]", content))):
        place, kind = f"{where}.{index}", part.get("type")
        if kind in ("text", "input_text", "output_text", "refusal"):
            texts.append(read_text(part, "refusal" if kind == "refusal" else "text", place))
        elif kind in ("image_url", "input_image"):
            image, spot = as_object(part.get("image_url")), f"{place}.image_url.url"
            if not image:  # Responses have the URL itself there
                image, spot = {**part, "url": part.get("image_url")}, f"{place}.image_url"
            detail = image["detail"] if image.get("detail") in ("auto", "low", "high") else None
            images.append(image_part(image.get("url"), spot, detail))
        else:
            raise invalid(
                f"{place}.type", f"got {short(kind)}, expected text, or an image with a data URL"
            )
    return "\n".join(texts), images


def as_object(value: object) -> Json:
    """An object; an empty one, which is refused for what it lacks, in place of anything else."""
    return cast("Json", value) if isinstance(value, dict) else {}


def read_text(entry: Json, key: str, where: str) -> str:
    """What stands under a key.

    Raises:
        RequestFailed: it is not a string.
    """
    if not isinstance(value := entry.get(key), str):
        raise invalid(f"{where}.{key}", f"got {short(value)}, expected a string")
    return value


def least(*limits: N | None) -> N | None:
    """The lowest limit; None where there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


# ── what is told ──────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """A whole answer.

    Attributes:
        episode: how it came about; ``episode.id`` names it everywhere.
        text: for the user; "" where there are only calls of tools.
        tool_calls: ``{"id", "type": "function", "function": {"name", "arguments"}}``, under our
            ids.
        finish_reason: of the call that answered.
        thoughts: the reasoning that is shown, a text a part (the plan, then each step).
        orchestration: what it cost, and who (see the function).
    """

    episode: Episode
    text: str
    tool_calls: tuple[Json, ...] = ()
    finish_reason: FinishReason = "stop"
    thoughts: tuple[str, ...] = ()
    orchestration: Json = field(default_factory=dict[str, Any])


class AnswerStream(Protocol):
    """Writes one answer as server-sent events; each method returns the bytes to send, b"" for none.

    In this order: ``begin``; any number of ``think``, ``say`` and ``beat``; then ``end`` or
    ``fail``, once.
    """

    def begin(self) -> bytes:
        """What opens the answer."""
        ...

    def think(self, part: int, text: str) -> bytes:
        """A piece of reasoning; parts are numbered from 0, and one ends where the next begins.

        A part can go on after text was said (a later round).
        """
        ...

    def say(self, text: str) -> bytes:
        """A piece of the answer's text."""
        ...

    def beat(self) -> bytes:
        """What keeps a client from giving up while nothing happens."""
        ...

    def end(self, answer: ServedAnswer) -> bytes:
        """What ends the answer: its calls of tools, why it ended, what it used. Its text was said before."""
        ...

    def fail(self, error: RequestFailed) -> bytes:
        """What ends an answer that failed."""
        ...


class Api(Protocol):
    """One API: reads its bodies and writes its answers."""

    name: str
    path: str
    body: type[Body]

    def read(self, body: Json) -> ClientRequest:
        """What a body asks.

        Raises:
            RequestFailed: it is not a body of this API, or asks for what cannot be done here.
        """
        ...

    def answer(self, request: ClientRequest, answer: ServedAnswer, *, created: int) -> Json:
        """The body of a whole answer, of an episode that began at ``created`` (seconds since 1970)."""
        ...

    def stream(self, request: ClientRequest, episode: str, *, created: int) -> AnswerStream:
        """A stream for the answer of the episode of this id."""
        ...

    def failure(self, error: RequestFailed) -> Json:
        """The body of a failure."""
        ...


def event(data: Json, name: str = "") -> bytes:
    """A server-sent event; ``name`` is its type, where the API names it.

    What else ends a line in Unicode is escaped: some clients split by it.
    """
    text = _LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", as_json(data).decode())
    return (b"event: %b\n" % name.encode() if name else b"") + b"data: %b\n\n" % text.encode()


def as_json(data: object) -> bytes:
    """A body as it is sent."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


# ── calls of tools ────────────────────────────────────────────────────────────────────────────────
def call_id(episode: str, index: int) -> str:
    """The id under which a client learns of a call of its tools: at most 40 characters, and it names the episode."""
    return f"call_{episode}{index:02d}"


def called_in(identifier: str) -> tuple[str, int] | None:
    """The episode and the index of a call that we gave an id; None for an id of somebody else."""
    given = re.fullmatch("call_([0-9a-f]{32})([0-9]{2,8})", identifier)
    return given and (given[1], int(given[2]))


def read_arguments(text: str) -> Json:
    """What a worker calls a tool with; empty where that is not an object, or holds a number that JSON has not."""
    try:
        given = json.loads(text)
        json.dumps(given, allow_nan=False)
    except (ValueError, RecursionError):
        return {}
    return as_object(given)


# ── what it cost ──────────────────────────────────────────────────────────────────────────────────
def orchestration(episode: Episode, names: Mapping[int, str]) -> Json:
    """What an episode cost, and who: the totals, and an entry for the Conductor of each round and for each step.

    Dollars are decimal strings, exact; ``unpriced_calls`` are calls whose price is not known, and
    in no sum.

    Args:
        episode: the episode.
        names: the workers', by ordinal.
    """
    entries: list[Json] = []
    for entry in draw_entries(episode):
        transcript, worker = episode.rounds[entry.round].transcript, CONDUCTOR
        if entry.step is not None and transcript is not None:
            worker = names[transcript.results[entry.step].asked]
        attempts = len(entry.attempts)
        entries.append({"round": entry.round, "step": entry.step, "worker": worker, "attempts": attempts,
                        **costs(entry.usage)})  # fmt: skip
    return {
        "episode": episode.id,
        "seconds": round(episode.seconds, 3),
        **costs(episode.usage),
        "calls": entries,
    }


def costs(usage: Usage) -> Json:
    """A usage as it is reported: tokens, dollars as a decimal string, calls of unknown price."""
    tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {**tokens, "dollars": format(usage.dollars, "f"), "unpriced_calls": usage.unpriced_calls}


# ── failures ──────────────────────────────────────────────────────────────────────────────────────
_KINDS: Sequence[tuple[type[errors.OpenConductorError], int, str]] = (
    (errors.RateLimited, 429, "worker_rate_limited"),
    (errors.WorkerTimeout, 504, "worker_timeout"),
    (errors.ContextTooLong, 400, "context_length_exceeded"),
    (errors.Refused, 400, "content_filter"),
    (errors.CircuitOpen, 503, "worker_unavailable"),
    (errors.WorkerError, 502, "worker_failed"),
    (errors.WorkflowError, 502, "no_workflow"),
    (errors.ConfigError, 400, "invalid_value"),
    (errors.JournalError, 503, "journal_failed"),
)


_TYPES = {401: "authentication_error", 402: "insufficient_quota", 403: "permission_error", 404: "not_found_error",
          429: "rate_limit_error"}  # fmt: skip


def failed(error: errors.OpenConductorError) -> RequestFailed:
    """The failure that an error of an episode is, for the client."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, errors.BudgetExceeded):
        late = error.limit == "seconds"
        return RequestFailed(
            504 if late else 402, "deadline_exceeded" if late else "budget_exceeded", str(error)
        )
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            after = error.retry_after if isinstance(error, errors.WorkerError) else None
            return RequestFailed(status, code, str(error), retry_after=after)
    return RequestFailed(
        500, "internal_error", f"an error of the server's own ({type(error).__name__})"
    )


def openai_failure(error: RequestFailed) -> Json:
    """The body of a failure, in the form of OpenAI's APIs."""
    kind = _TYPES.get(
        error.status, "invalid_request_error" if error.status < 500 else "server_error"
    )
    return {
        "error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    }


def answering_step(episode: Episode) -> StepResult | None:
    """The step whose response is the answer: the last one that a workflow ended in; None where there is none."""
    ends = (
        one.transcript.results[-1]
        for one in reversed(episode.rounds)
        if one.transcript and one.answer is not None
    )
    return next(ends, None)
