"""What every script here shares: it reads lines of JSON, does what each names, and writes what came
of it as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

ADD = "Add two numbers."
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
QUESTION = "What is 6 * 7?"
AGAIN = "And 7 * 7?"


def drive(does: dict[str, Callable[..., Any]], *failures: type[Exception]) -> None:
    """Serve until the input ends; a failure of the client's own kinds is told by its name, status
    and code.
    """
    for line in sys.stdin:
        job = json.loads(line)
        try:
            told = does[job.pop("do")](**job)
        except failures as error:
            told = {name: getattr(error, name, None) for name in ("status_code", "code", "body")}
            told |= {"error": type(error).__name__, "words": str(error)}
        print(json.dumps(told, default=str), flush=True)
