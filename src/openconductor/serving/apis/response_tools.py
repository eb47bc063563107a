"""The tools of a Responses request, as the functions that workers are offered.

Codex brings its users' MCP servers as ``namespace`` tools, and edits files with a ``custom`` tool.
Workers know functions only; a call of one goes back in the form in which the tool came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import cast

from openconductor.serving.apis.response_items import ClientTool
from openconductor.serving.apis.wire import (
    Json,
    as_list,
    as_object,
    invalid,
    read_text,
    short,
    unexpected,
)

_LONGEST_NAME = 64  # characters of a function's name, at OpenAI and others


def flat_name(name: str, namespace: object) -> str:
    """Return the name of the function that stands for a tool, possibly of a namespace."""
    if not namespace:
        return name
    whole = f"{namespace}__{name}"
    if len(whole) <= _LONGEST_NAME:
        return whole
    return f"{whole[: _LONGEST_NAME - 9]}_{sha256(whole.encode()).hexdigest()[:8]}"


def read_tools(given: Sequence[Json]) -> dict[str, ClientTool]:
    """Return the tools that workers can be offered, by the names of their functions.

    Hosted and unknown tools are left out.

    Raises:
        RequestFailed: a tool is invalid.
    """
    tools: dict[str, ClientTool] = {}
    for where, entry, namespace in _flatten(given):
        kind = entry.get("type")
        if kind not in ("function", "custom"):
            continue
        name = read_text(entry, "name", where)
        function: Json = {"name": flat_name(name, namespace)}
        if kind == "custom":
            function |= _custom_function(entry)
        else:
            for key in ("description", "parameters", "strict"):
                if entry.get(key) is not None:
                    function[key] = entry[key]
            parameters = function.get("parameters", {})
            if not isinstance(parameters, dict):
                raise unexpected(f"{where}.parameters", parameters, "a JSON schema")
        tools[function["name"]] = ClientTool(name, function, namespace, kind == "custom")
    return tools


def _flatten(given: Sequence[Json]) -> Iterator[tuple[str, Json, str | None]]:
    """Return each tool with its place in the body, and its namespace."""
    for index, tool in enumerate(given):
        where = f"tools.{index}"
        if tool.get("type") != "namespace":
            yield where, tool, None
            continue
        for inner, entry in enumerate(as_list(tool.get("tools"))):
            namespace = read_text(tool, "name", where)
            yield f"{where}.tools.{inner}", as_object(entry), namespace


def _custom_function(entry: Json) -> Json:
    """Return the function for a free-form tool: its one argument is the text."""
    lines = ["Call it with one argument, `input`: the text itself."]
    if entry.get("description"):
        lines.insert(0, str(entry["description"]))
    form = as_object(entry.get("format"))
    if form.get("definition"):
        lines.append(f"The text must match this grammar ({form.get('syntax')}):")
        lines.append(str(form["definition"]))
    text = {"type": "string", "description": "The whole input of the tool, as it is."}
    return {
        "description": "\n".join(lines),
        "parameters": {
            "type": "object",
            "properties": {"input": text},
            "required": ["input"],
            "additionalProperties": False,
        },
    }


def read_tool_options(
    tools: Mapping[str, ClientTool], choice: object, parallel: bool | None
) -> Json:
    """Return the tools on offer and the choice among them, in the form of chat completions.

    Raises:
        RequestFailed: the choice is invalid, or names a tool that is not offered.
    """
    names = list(tools)
    if isinstance(choice, dict):
        chosen = cast("Json", choice)
        if chosen.get("type") != "allowed_tools":
            return _offer(tools, names, _function_choice(tools, chosen), parallel)
        entries = as_list(chosen.get("tools"))
        allowed = [_chosen_name(as_object(entry)) for entry in entries]
        _check_allowed(tools, entries, allowed)
        names = [name for name in names if name in allowed]
        choice = chosen.get("mode")
    if choice not in (None, "auto", "none", "required"):
        expected = "'auto', 'none', 'required' or one of the tools"
        raise unexpected("tool_choice", choice, expected)
    if choice == "required" and not names:
        raise invalid("tool_choice", "got 'required', but no function or custom tool is offered")
    return _offer(tools, names, choice, parallel)


def _check_allowed(
    tools: Mapping[str, ClientTool], entries: Sequence[object], allowed: Sequence[str | None]
) -> None:
    """Check that functions and custom tools that a choice allows are on offer."""
    for entry, name in zip(entries, allowed, strict=True):
        if name is not None and name not in tools:
            raise invalid("tool_choice", f"got {short(entry)}, which is not offered in `tools`")


def _function_choice(tools: Mapping[str, ClientTool], chosen: Json) -> Json:
    name = _chosen_name(chosen)
    if name not in tools:
        raise invalid(
            "tool_choice", f"got {short(chosen)}, which is not a function or custom tool here"
        )
    return {"type": "function", "function": {"name": name}}


def _offer(
    tools: Mapping[str, ClientTool], names: Sequence[str], choice: object, parallel: bool | None
) -> Json:
    if not names:
        return {}
    options: Json = {
        "tools": [{"type": "function", "function": tools[name].function} for name in names]
    }
    if choice is not None:
        options["tool_choice"] = choice
    if parallel is not None:
        options["parallel_tool_calls"] = parallel
    return options


def _chosen_name(entry: Json) -> str | None:
    """Return the function that an entry of ``tool_choice`` stands for; None: another kind."""
    if entry.get("type") not in ("function", "custom"):
        return None
    return flat_name(str(entry.get("name")), entry.get("namespace"))
