"""What the APIs share: a client's request, an answer, failures, costs.

Each API is a module beside this one with an object of the protocol ``Api``. It turns a body into a
``ClientRequest``, and a ``ServedAnswer`` into a body or a stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from reprlib import repr as short
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openconductor import errors
from openconductor.config import nearest, suggest_key
from openconductor.ledger import CONDUCTOR, draw_entries
from openconductor.types import (
    Episode,
    FinishReason,
    Message,
    Sampling,
    StepResult,
    Usage,
    is_array,
    is_object,
)

Json = dict[str, Any]
Reasoning = Literal["off", "summary", "full"]
"""How much of the orchestration an answer shows: nothing, a line for each event, or all of it."""
IMAGE = "data:image/"
RECALLS = "recalls"
"""Key of a part that stands for the text of an earlier answer, by its episode.

The gateway replaces the part with the text."""
Name = Annotated[str, Field(max_length=256)]
"""A longer name is certainly unknown, and would take long to look up."""
_ALIKE = 0.82
"""From this likeness on, an unknown key of a body is a known one misspelt. ``top_k`` is below."""
_OTHERS = frozenset(
    {
        "max_new_tokens",
        "min_completion_tokens",
        "parse_tool_calls",
        "reasoning_format",
        "speed",
        "top_logprobs_num",
    }
)
"""Keys that other servers know, and that look like those of a body here."""
_CHECKED_KEYS = 100  # of a body; a request has fewer
_LONGEST_KEY = 40  # characters of a key that is checked
_LINE_ENDS = re.compile("[\u0085\u2028\u2029]")
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_CALL_ID = re.compile("call_([0-9a-f]{32})([0-9]{2,8})")
M = TypeVar("M", bound=BaseModel)


class RequestFailed(errors.OpenConductorError):
    """A request that is answered by an error.

    Attributes:
        status: the HTTP status.
        code: names the failure, for programs.
        message: explains it, for people.
        param: the field of the body that is wrong.
        retry_after: seconds after which another attempt may succeed; None: unknown.
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


# ── requests ──────────────────────────────────────────────────────────────────────────────────────
class Control(BaseModel):
    """``conductor`` in the body of every API. The key's limits hold as well.

    Attributes:
        workers: the names of the workers that may be asked.
        tags: workers with at least one of these tags.
        max_price: workers whose prices of input and output, in US dollars a million tokens, are at
            most this.
        max_steps: the most steps of a workflow.
        max_rounds: the most rounds.
        max_calls, max_tokens, max_dollars, max_seconds: the budget of the whole answer.
        seed: the seed of every call.
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
    """A body, or a part of one. Unknown fields are accepted and ignored."""

    model_config = ConfigDict(extra="allow")


class Body(Open):
    """The fields that the bodies of all APIs have."""

    model: Name
    stream: bool | None = None
    conductor: Control | None = None


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request, independent of its API.

    Attributes:
        body: as it came; an answer echoes parts of it.
        model: ``conductor``, a baseline's name, or ``direct:WORKER``.
        turns: the conversation, system turns first. Tool calls and their results have the form of
            chat completions (``Message.parts``), under the ids that this server gave out.
        options: options of the call that answers, as chat completions have them in a body
            (``tools``, ``tool_choice``, ``response_format``, ``stop`` …).
        stream: True if the answer is to be streamed.
        previous: the episode of an earlier answer, whose conversation comes before ``turns``.
        instructed: how many of the first turns belong to this request only, and not to a later
            conversation.
        store: False: no texts of the episode are kept, and its id is unknown afterwards.
        settings: what is kept of the body, so that the answer can be read again; None: nothing.
    """

    body: Body
    model: str
    turns: tuple[Message, ...]
    options: Sampling
    stream: bool
    previous: str | None = None
    instructed: int = 0
    store: bool = True
    settings: Json | None = None

    @property
    def control(self) -> Control:
        """The settings of the orchestration."""
        return self.body.conductor or Control()


def read_body(kind: type[M], body: Json) -> M:
    """Return a body as the model of its API.

    Raises:
        RequestFailed: it is invalid; the message names the first field that is wrong.
    """
    for key in islice(body, _CHECKED_KEYS):
        near = _misspelt(key, kind)
        if near is not None and near not in body:
            raise invalid(key, f"unknown key; the nearest known key is {near!r}")
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"{where or 'the body'}: {first['msg']}"
        if first["type"] == "extra_forbidden":
            message = f"{where}: unknown key{suggest_key(first['loc'], kind.model_json_schema())}"
        elif first["type"] != "missing":
            message += f", got {short(first['input'])}"
        raise RequestFailed(400, "invalid_value", message, param=where) from None


@lru_cache(1024)
def _misspelt(key: str, kind: type[BaseModel]) -> str | None:
    """Return the field that an unknown key looks like. None: none, or the key is known."""
    if key in kind.model_fields or key in _OTHERS or len(key) > _LONGEST_KEY:
        return None
    return nearest(key, kind.model_fields, at_least=_ALIKE)


def invalid(where: str, problem: str) -> RequestFailed:
    """Return the failure of a body whose field ``where`` is wrong."""
    return RequestFailed(400, "invalid_value", f"{where}: {problem}", param=where)


def unexpected(where: str, value: object, expected: str) -> RequestFailed:
    """Return the failure of a body whose field ``where`` has a wrong value."""
    return invalid(where, f"got {short(value)}, expected {expected}")


def image_part(url: object, where: str, detail: object = None) -> Json:
    """Return an image as a part of a Message, from a data URL.

    Raises:
        RequestFailed: it is another URL: the server fetches nothing for a client.
    """
    if not isinstance(url, str) or not url.startswith(IMAGE) or ";base64," not in url[:100]:
        raise unexpected(where, url, "an image as a data URL (data:image/png;base64,...)")
    image = {"url": url}
    if detail:
        image["detail"] = str(detail)
    return {"type": "image_url", "image_url": image}


def read_content(content: object, where: str) -> tuple[str, list[Mapping[str, object]]]:
    """Return the text and the images of a turn or a tool result of OpenAI's APIs.

    Raises:
        RequestFailed: it is neither a text nor a list of such parts.
    """
    if isinstance(content, str):
        return content, []
    if not is_array(content):
        raise unexpected(where, content, "a text or a list of parts")
    texts: list[str] = []
    images: list[Mapping[str, object]] = []
    for index, value in enumerate(content):
        part = as_object(value)
        place = f"{where}.{index}"
        kind = part.get("type")
        if kind == "refusal":
            texts.append(read_text(part, "refusal", place))
        elif kind in ("text", "input_text", "output_text"):
            texts.append(read_text(part, "text", place))
        elif kind in ("image_url", "input_image"):
            images.append(_read_image(part, place))
        else:
            raise unexpected(f"{place}.type", kind, "a text or an image (data URL)")
    return "\n".join(texts), images


def _read_image(part: Json, where: str) -> Json:
    image = as_object(part.get("image_url"))
    where = f"{where}.image_url"
    if image:
        url = image.get("url")
        detail = image.get("detail")
        where += ".url"
    else:  # Responses have the URL itself there
        url = part.get("image_url")
        detail = part.get("detail")
    return image_part(url, where, detail if detail in ("auto", "low", "high") else None)


def as_object(value: object) -> Json:
    """Return an object; {} in place of anything else, which is then rejected."""
    return value if is_object(value) else {}


def as_list(value: object) -> list[object]:
    """Return a list; in place of anything else an empty one."""
    return value if is_array(value) else []


def read_text(entry: Json, key: str, where: str) -> str:
    """Return the string under a key.

    Raises:
        RequestFailed: it is not a string.
    """
    value = entry.get(key)
    if not isinstance(value, str):
        raise unexpected(f"{where}.{key}", value, "a string")
    return value


# ── answers ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """A whole answer.

    Attributes:
        episode: its episode; ``episode.id`` names the answer everywhere.
        text: for the user; "" if there are only tool calls.
        tool_calls: ``{"id", "type": "function", "function": {"name", "arguments"}}``, under the
            server's ids.
        finish_reason: of the call that answered.
        thoughts: the reasoning that is shown, in parts (the plan, then each step).
        orchestration: the costs (see the function).
    """

    episode: Episode
    text: str
    tool_calls: tuple[Json, ...] = ()
    finish_reason: FinishReason = "stop"
    thoughts: tuple[str, ...] = ()
    orchestration: Json = field(default_factory=dict[str, Any])


class AnswerStream(Protocol):
    """Writes one answer as server-sent events; each method returns the bytes to send.

    The order is ``begin``, any number of ``add_reasoning``, ``add_text`` and ``heartbeat``, then
    ``end`` or ``fail``.
    """

    def begin(self) -> bytes:
        """Open the answer."""
        ...

    def add_reasoning(self, part: int, text: str) -> bytes:
        """Add to a part of the reasoning.

        Parts are numbered from 0, and one ends where the next begins. A part can go on after text
        was added (a later round).
        """
        ...

    def add_text(self, text: str) -> bytes:
        """Add to the answer's text."""
        ...

    def heartbeat(self) -> bytes:
        """Keep a client from giving up while nothing happens."""
        ...

    def end(self, answer: ServedAnswer) -> bytes:
        """End the answer with its tool calls, finish reason and usage. Its text was added."""
        ...

    def fail(self, error: RequestFailed) -> bytes:
        """End an answer that failed."""
        ...


class Api(Protocol):
    """One API: reads its bodies and writes its answers."""

    name: str
    path: str
    body: type[Body]

    def read(self, body: Json) -> ClientRequest:
        """Return the request of a body.

        Raises:
            RequestFailed: the body is invalid, or asks for something that is not offered here.
        """
        ...

    def answer(self, request: ClientRequest, answer: ServedAnswer, *, created: int) -> Json:
        """Return the body of an answer whose episode began at ``created`` (seconds since 1970)."""
        ...

    def stream(self, request: ClientRequest, episode: str, *, created: int) -> AnswerStream:
        """Return a stream for the answer of the episode of this id."""
        ...

    def failure(self, error: RequestFailed) -> Json:
        """Return the body of a failure."""
        ...


def event(data: Json, name: str = "") -> bytes:
    """Return a server-sent event; ``name`` is its type, if the API names it.

    Line ends of Unicode are escaped, because some clients split by them.
    """
    text = as_json(data).decode()
    text = _LINE_ENDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode()


def as_json(data: object) -> bytes:
    """Return a body as it is sent."""
    return _ENCODE(data).encode("utf-8", "replace")


# ── tool calls ────────────────────────────────────────────────────────────────────────────────────
def call_id(episode: str, index: int) -> str:
    """Return the id of a tool call for clients; it has at most 40 characters."""
    return f"call_{episode}{index:02d}"


def tool_call(identifier: object, name: object, arguments: object) -> Json:
    """Return a tool call in the form of chat completions; its arguments are a JSON text."""
    function = {"name": name, "arguments": arguments}
    return {"id": identifier, "type": "function", "function": function}


def parse_call_id(identifier: str) -> tuple[str, int] | None:
    """Return the episode and the index of a tool call; None: the id is not one of this server's."""
    match = _CALL_ID.fullmatch(identifier)
    return None if match is None else (match[1], int(match[2]))


def read_arguments(text: str) -> Json | None:
    """Return the arguments of a tool call. None: they are not a JSON object."""
    try:
        arguments = json.loads(text)
        json.dumps(arguments, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return arguments if is_object(arguments) else None


# ── costs ─────────────────────────────────────────────────────────────────────────────────────────
def orchestration(episode: Episode, names: Mapping[int, str]) -> Json:
    """Return the costs of an episode: totals, and an entry for each planning and each step.

    Dollars are exact decimal strings. Calls of unknown price are counted as ``unpriced_calls``, and
    are in no sum. ``rule`` and ``no_plan`` are there if a rule chose the workflow, and if the first
    attempt at a plan gave none.

    Args:
        episode: the episode.
        names: the workers' names, by ordinal.
    """
    entries: list[Json] = []
    for entry in draw_entries(episode):
        worker = CONDUCTOR if entry.asked is None else names[entry.asked]
        entries.append(
            {
                "round": entry.round,
                "step": entry.step,
                "worker": worker,
                "attempts": len(entry.attempts),
                **_costs(entry.usage),
            }
        )
    unplanned: Json = {}
    if episode.rule is not None:
        unplanned["rule"] = episode.rule
    if episode.no_plan is not None:
        unplanned["no_plan"] = str(episode.no_plan)
    return {
        "episode": episode.id,
        **unplanned,
        "seconds": round(episode.seconds, 3),
        **_costs(episode.usage),
        "calls": entries,
    }


def _costs(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "dollars": format(usage.dollars, "f"),
        "unpriced_calls": usage.unpriced_calls,
    }


# ── failures ──────────────────────────────────────────────────────────────────────────────────────
_FAILURES = (
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
"""Status and code of each kind of error; the first that fits counts."""
_ERROR_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def request_failure(error: errors.OpenConductorError) -> RequestFailed:
    """Return the failure that a client is told of when an episode ends in an error."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, errors.BudgetExceeded):
        if error.limit == "seconds":
            return RequestFailed(504, "deadline_exceeded", str(error))
        return RequestFailed(402, "budget_exceeded", str(error))
    for kind, status, code in _FAILURES:
        if isinstance(error, kind):
            after = error.retry_after if isinstance(error, errors.WorkerError) else None
            return RequestFailed(status, code, str(error), retry_after=after)
    return RequestFailed(500, "internal_error", f"internal error ({type(error).__name__})")


def openai_failure(error: RequestFailed) -> Json:
    """Return the body of a failure, in the form of OpenAI's APIs."""
    default = "invalid_request_error" if error.status < 500 else "server_error"
    return {
        "error": {
            "message": error.message,
            "type": _ERROR_TYPES.get(error.status, default),
            "param": error.param,
            "code": error.code,
        }
    }


def answering_step(episode: Episode) -> StepResult | None:
    """Return the last step of the last workflow that answered; None: no workflow did."""
    for played in reversed(episode.rounds):
        if played.transcript is not None and played.answer is not None:
            return played.transcript.results[-1]
    return None
