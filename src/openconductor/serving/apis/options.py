"""Options of the call that answers, in the form of chat completions: format, tools, the choice.

The APIs differ in how a body says them, and agree in what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from openconductor.serving.apis.wire import (
    Body,
    Json,
    Open,
    invalid,
    read_text,
    short,
    unexpected,
)

Penalty = Annotated[float, Field(ge=-2, le=2)]


class StreamOptions(Open):
    """Additions to a stream."""

    include_usage: bool | None = None


class OpenAIBody(Body):
    """The fields that OpenAI's two APIs share."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    store: bool | None = None
    stream_options: StreamOptions | None = None

    def check(self) -> None:
        """Check that the fields ask for nothing that no answer has.

        Raises:
            RequestFailed: log probabilities, or additions to a stream without a stream.
        """
        for name in ("logprobs", "top_logprobs"):
            if getattr(self, name):
                raise invalid(name, "answers have no log probabilities; leave it out")
        additions = self.stream_options and self.stream_options.model_dump()
        if additions and not self.stream:
            problem = f"got {short(additions)}, which requires `stream: true`"
            raise invalid("stream_options", problem)


def read_format(kind: object, described: Json, where: str, inner: str) -> Json:
    """Return the option for a format of the answer; none for a text.

    Args:
        kind: the format's type.
        described: the name and the schema of a ``json_schema``.
        where: the field with the type.
        inner: the field with the schema.

    Raises:
        RequestFailed: the type is unknown, or the schema or its name is missing.
    """
    if kind == "text":
        return {}
    form: Json = {"type": kind}
    if kind == "json_schema":
        read_text(described, "name", inner)
        schema = described.get("schema")
        if not isinstance(schema, dict):
            raise unexpected(f"{inner}.schema", schema, "a JSON schema (an object)")
        form["json_schema"] = {
            key: value for key, value in described.items() if key != "type" and value is not None
        }
    elif kind != "json_object":
        raise unexpected(f"{where}.type", kind, "text, json_object or json_schema")
    return {"response_format": form}


class ToolChoice(NamedTuple):
    """A choice among the tools.

    Attributes:
        mode: ``auto``, ``none`` or ``required``; None: left open.
        function: the name of the one that must be called.
        allowed: the names of those that may be called; None: all.
    """

    mode: object = None
    function: str | None = None
    allowed: Sequence[str] | None = None


def offer_tools(functions: Mapping[str, Json], choice: ToolChoice, parallel: bool | None) -> Json:
    """Return the options that offer tools; none if there are no tools.

    Args:
        functions: the client's tools, by name, in the form of chat completions.
        choice: the client's choice among them.
        parallel: False: one call at most; None: left open.

    Raises:
        RequestFailed: the choice needs a tool that is not on offer.
    """
    names = list(functions)
    options: Json = {}
    if choice.function is not None:
        _check_offered([choice.function], functions)
        options["tool_choice"] = {"type": "function", "function": {"name": choice.function}}
    elif choice.mode is not None:
        options["tool_choice"] = choice.mode
    if choice.allowed is not None:
        _check_offered(choice.allowed, functions)
        names = [name for name in names if name in choice.allowed]
    if not names:
        if choice.mode == "required":
            problem = "got 'required', and no function that may be called is on offer"
            raise invalid("tool_choice", problem)
        return {}
    options["tools"] = [functions[name] for name in names]
    if parallel is not None:
        options["parallel_tool_calls"] = parallel
    return options


def _check_offered(names: Sequence[str], functions: Mapping[str, Json]) -> None:
    for name in names:
        if name not in functions:
            listed = ", ".join(functions) or "none"
            problem = f"got {short(name)}; the functions on offer are: {listed}"
            raise invalid("tool_choice", problem)
