"""The tools of a Responses request, as the functions that workers are offered.

Codex brings its users' MCP servers as ``namespace`` tools, and edits files with a ``custom`` tool.
Workers know functions only; a call of one goes back in the form in which the tool came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from openconductor.serving.apis.options import ToolChoice
from openconductor.serving.apis.response_items import ClientTool
from openconductor.serving.apis.wire import (
    Json,
    as_list,
    as_object,
    read_text,
    unexpected,
)
from openconductor.types import is_object

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
        offered = {"type": "function", "function": function}
        tools[function["name"]] = ClientTool(name, offered, namespace, kind == "custom")
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


def read_choice(choice: object) -> ToolChoice:
    """Return the choice among the tools. Hosted tools that it allows are left out.

    Raises:
        RequestFailed: it is invalid, or demands a hosted tool.
    """
    expected = "'auto', 'none', 'required', or a function or custom tool"
    if not is_object(choice):
        return ToolChoice(_read_mode(choice, expected))
    if choice.get("type") == "allowed_tools":
        names = [_chosen_name(as_object(entry)) for entry in as_list(choice.get("tools"))]
        allowed = [name for name in names if name is not None]
        return ToolChoice(_read_mode(choice.get("mode"), expected), allowed=allowed)
    name = _chosen_name(choice)
    if name is None:
        raise unexpected("tool_choice", choice, expected)
    return ToolChoice(function=name)


def _read_mode(mode: object, expected: str) -> object:
    if mode not in (None, "auto", "none", "required"):
        raise unexpected("tool_choice", mode, expected)
    return mode


def _chosen_name(entry: Json) -> str | None:
    """Return the function that an entry of ``tool_choice`` stands for; None: another kind."""
    if entry.get("type") not in ("function", "custom"):
        return None
    return flat_name(str(entry.get("name")), entry.get("namespace"))
