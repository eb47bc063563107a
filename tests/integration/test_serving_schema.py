"""The server's description of itself holds: no fault under whatever body, and every answer is of
the form it names.

Twice: a property of our own, over bodies that use all that an API knows and are then broken here
and there (fast); and schemathesis, in an environment of its own, over ``/openapi.json`` (slow).
"""

from __future__ import annotations

import copy
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from integration.orchestra import PLAN, Orchestra, orchestra
from openconductor.serving.apis.openapi import ANSWERS
from openconductor.serving.app import APIS

SCHEMATHESIS = "4.32.5"
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
KNOWN = json.loads((Path(__file__).parent / "api_bodies.json").read_text())


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each value in a body stands."""
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        yield (*above, key)
        yield from places(inner, (*above, key))


@st.composite
def bodies(draw: st.DrawFn, api: str) -> Any:
    """A body with some of what the API knows, and none to three places broken."""
    body = copy.deepcopy(KNOWN["bodies"][api])
    must = {"model", "messages", "max_tokens"} if api != "responses" else {"model", "input"}
    for name in sorted(set(body) - must):
        if draw(st.booleans()):
            del body[name]
    body["model"] = draw(st.sampled_from(["conductor", "conductor", "direct:anna", "direct:bert"]))
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3]))):
        *way, last = draw(st.sampled_from(list(places(body)) or [("x",)]))
        spot: Any = body
        for step in way:
            spot = spot[step]
        match draw(
            st.sampled_from(["replace", "replace", "word", "delete", "twice", "wrap", "extra"])
        ):
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
    return body


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestra]:
    """Its last worker calls what tools it is offered, every second time."""

    def bert(messages: Any, sampling: Any) -> Any:
        bert.times += 1  # type: ignore[attr-defined]
        offered = [
            str(one.get("function", {}).get("name", "")) for one in sampling.body.get("tools", ())
        ]
        calls = {name: {"a": [1]} for name in offered}
        return ["so", calls] if calls and bert.times % 2 else "fine"  # type: ignore[attr-defined]

    bert.times = 0  # type: ignore[attr-defined]
    with orchestra(tmp_path_factory.mktemp("schema"), "thought", bert, plan=PLAN) as made:
        yield made


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_no_body_makes_a_fault_and_every_answer_is_of_the_form_that_is_named(
    server: Orchestra, api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answered, failed = (
        jsonschema.Draft202012Validator(ANSWERS[api.name]),
        jsonschema.Draft202012Validator(FAILURE),
    )
    seen: dict[int, int] = {}
    few = settings(
        max_examples=150,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )

    with httpx.Client(timeout=20) as client:

        @few
        @given(bodies(api.name))
        def try_one(body: Any) -> None:
            content = json.dumps(body).encode()
            answer = client.post(f"{server.url}{api.path}", content=content)
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            stream = answer.headers["content-type"].startswith("text/event-stream")
            assert answer.status_code < 500 or "no_workflow" in answer.text, answer.text[
                :500
            ]  # the plan's own fault
            if answer.status_code == 200 and stream:
                assert answer.text.rstrip().split("\n\n")[-1].startswith(("data: ", "event: ")), (
                    "it ends with an event"
                )
                assert "internal_error" not in answer.text
            else:
                (answered if answer.status_code == 200 else failed).validate(answer.json())

        try_one()
        assert client.get(f"{server.url}/health/ready").status_code == 200
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert seen[200] > 20 < seen[400], seen


# ── schemathesis ──────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="session")
def schemathesis() -> Path:
    """The program, in an environment of its own that is kept between runs; skips where it cannot be
    installed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openconductor-tests"
    home = cache / f"schemathesis-{SCHEMATHESIS}-{sys.version_info[0]}.{sys.version_info[1]}"
    if not (program := home / "bin" / "schemathesis").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True, capture_output=True)
        pip = [
            home / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            f"schemathesis=={SCHEMATHESIS}",
        ]
        if subprocess.run(pip, check=False, capture_output=True, timeout=280).returncode:
            shutil.rmtree(home, ignore_errors=True)
            pytest.skip("schemathesis cannot be installed here")
    return program


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_schemathesis_finds_no_fault(server: Orchestra, schemathesis: Path, tmp_path: Path) -> None:
    checks = "not_a_server_error,status_code_conformance,"
    checks += "content_type_conformance,response_schema_conformance"
    command = [
        str(schemathesis),
        "run",
        f"{server.url}/openapi.json",
        "--url",
        server.url,
        "--checks",
        checks,
        "--max-examples",
        "60",
        "--phases",
        "examples,coverage,fuzzing",
        "--generation-deterministic",
        "--max-time",
        "120",
        "--no-color",
        "--request-timeout",
        "20",
        "--continue-on-failure",
        "--warnings",
        "off",
    ]
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=560, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert httpx.get(f"{server.url}/health/ready").status_code == 200
