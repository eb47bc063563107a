"""The server's description of itself holds: no fault under whatever body, and every answer is of
the form it names.

The bodies use all that an API knows and are then broken here and there.
"""

from __future__ import annotations

import copy
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from integration.orchestra import Orchestra
from openconductor.serving.apis.openapi import ANSWERS
from openconductor.serving.app import APIS

FAILURE = {
    "type": "object",
    "properties": {"error": {"type": "object", "required": ["message"]}},
    "required": ["error"],
}
TEXT = st.one_of(
    st.sampled_from(["", "hi", "\0", "\ud83d", "\u2028", "conductor", "f", "x" * 3000]),
    st.text(max_size=8),
)
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**70), 10**30, 0, 1]),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
ANY = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FEW = settings(
    max_examples=150,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
KNOWN = json.loads((Path(__file__).parent / "api_bodies.json").read_text())


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value in a body."""
    keys: Iterable[Any] = ()
    if isinstance(value, dict):
        keys = value.keys()
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield (*above, key)
        yield from places(value[key], (*above, key))


@st.composite
def bodies(draw: st.DrawFn, api: str) -> Any:
    """Draw a body with some of what the API knows, and none to three places broken."""
    body = copy.deepcopy(KNOWN["bodies"][api])
    must = {"model", "messages", "max_tokens", "input"}
    for name in sorted(set(body) - must):
        if draw(st.booleans()):
            del body[name]
    body["model"] = draw(st.sampled_from(["conductor", "conductor", "direct:anna", "direct:bert"]))
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3]))):
        break_somewhere(draw, body)
    return body


def break_somewhere(draw: st.DrawFn, body: Any) -> None:
    *way, last = draw(st.sampled_from(list(places(body)) or [("x",)]))
    spot = body
    for step in way:
        spot = spot[step]
    match draw(st.sampled_from(["replace", "replace", "word", "delete", "twice", "wrap", "extra"])):
        case "replace":
            spot[last] = draw(ANY)
        case "word":
            spot[last] = draw(st.sampled_from(KNOWN["words"]))
        case "wrap":
            spot[last] = [spot[last]]
        case "twice" if isinstance(spot, list):
            spot.insert(0, copy.deepcopy(spot[last]))
        case "extra" if isinstance(spot, dict):
            spot[draw(TEXT)] = draw(ANY)
        case _:
            del spot[last]


class EverySecondTime:
    """Calls the tools that it is offered, every second time."""

    times = 0

    def __call__(self, messages: Any, sampling: Any) -> Any:
        self.times += 1
        tools = sampling.body.get("tools", ())
        names = [str(tool.get("function", {}).get("name", "")) for tool in tools]
        if names and self.times % 2:
            return ["so", {name: {"a": [1]} for name in names}]
        return "fine"


@pytest.fixture
def server(server: Orchestra) -> Orchestra:
    server.play("thought", EverySecondTime())
    return server


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_no_body_makes_a_fault_and_every_answer_is_of_the_form_that_is_named(
    server: Orchestra, api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answered = jsonschema.Draft202012Validator(ANSWERS[api.name])
    failed = jsonschema.Draft202012Validator(FAILURE)
    seen: Counter[int] = Counter()

    @FEW
    @given(bodies(api.name))
    def ask(body: Any) -> None:
        answer = client.post(f"{server.url}{api.path}", content=json.dumps(body).encode())
        seen[answer.status_code] += 1
        # A plan that names a worker which the request excludes is the plan's own fault.
        assert answer.status_code < 500 or "no_workflow" in answer.text, answer.text[:500]
        if answer.headers["content-type"].startswith("text/event-stream"):
            last = answer.text.rstrip().split("\n\n")[-1]
            assert last.startswith(("data: ", "event: ")), "it ends with an event"
            assert "internal_error" not in answer.text
        elif answer.status_code == 200:
            answered.validate(answer.json())
        else:
            failed.validate(answer.json())

    with httpx.Client(timeout=20) as client:
        ask()
        assert client.get(f"{server.url}/health/ready").status_code == 200
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert seen[200] > 20 < seen[400], seen
