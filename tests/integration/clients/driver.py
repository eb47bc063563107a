"""Drives a script here: reads lines of JSON, does what each names, and writes the outcome as
JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

INTEGERS: Any = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
}
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
QUESTION = "What is 6 * 7?"
AGAIN = "And 7 * 7?"


@dataclass
class Job:
    """An order.

    Attributes:
        how: the API, where a client knows several.
        idle: the seconds of silence after which the client gives up; None: its default.
        mode: how a form of the answer is asked for; "": the client's default.
        conductor: the body's field of that name.
    """

    do: str
    url: str
    how: str
    model: str = "conductor"
    stream: bool = False
    idle: float | None = None
    mode: str = ""
    conductor: dict[str, Any] = field(default_factory=dict)

    @property
    def extra(self) -> dict[str, Any]:
        """Fields of the body that no client knows."""
        return {"conductor": self.conductor} if self.conductor else {}


def drive(does: dict[str, Callable[[Job], Any]], *failures: type[Exception]) -> None:
    """Serve until the input ends; a failure of the client's own kinds is told by its name, status
    and code.
    """
    for line in sys.stdin:
        job = Job(**json.loads(line))
        try:
            told = does[job.do](job)
        except failures as error:
            told = {name: getattr(error, name, None) for name in ("status_code", "code", "body")}
            told |= {"error": type(error).__name__, "words": str(error)}
        print(json.dumps(told, default=str), flush=True)


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call_tools(ask: Callable[[list[Any]], Any], results: Callable[[Any], list[Any]]) -> Any:
    """Ask, send the results of the calls along, and ask again until there are none."""
    turns = [user(QUESTION)]
    for _ in range(3):
        told = ask(turns)
        if not told["calls"]:
            return told
        turns += [*told["said"], *results(told["calls"])]
    raise AssertionError("it calls tools for ever")


def converse(ask: Callable[[list[Any]], Any]) -> Any:
    """Ask twice, the second time after the answer to the first."""
    first = ask([user(QUESTION)])
    return [first, ask([user(QUESTION), *first["said"], user(AGAIN)])]
