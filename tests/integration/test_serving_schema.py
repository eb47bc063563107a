"""The server's description of itself holds: no fault under whatever body, and every answer is of the form it names.

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
    st.none(), st.booleans(), st.integers(), st.sampled_from([2**63, -(2**70), 10**30, 0, 1]),
    st.floats(allow_nan=False, allow_infinity=False), TEXT,
)  # fmt: skip
ANY = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
WORDS = ["text", "input_text", "refusal", "image_url", "input_image", "image", "document", "tool_use", "tool_result",
         "tool_reference", "thinking", "message", "function", "function_call", "function_call_output", "custom",
         "custom_tool_call", "namespace", "reasoning", "user", "assistant", "system", "developer", "tool", "auto",
         "none", "required", "any", "json_schema", "json_object", "url", "allowed_tools", "web_search",
         "call_" + "0" * 34, "resp_" + "0" * 32, "off", "full", "anna", "bert", "conductor", "f", "g"]  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
URL = "data:image/png;base64,aGk="
CONTROL = {"workers": ["anna", "bert"], "max_steps": 3, "max_rounds": 1, "max_calls": 9, "max_tokens": 9000,
           "seed": 1, "reasoning": "full",
           "max_dollars": "1", "max_seconds": 9.5, "max_price": "100", "tags": ["a", "b"]}  # fmt: skip
COMMON = {"model": "conductor", "stream": False, "conductor": CONTROL, "temperature": 0.5, "top_p": 0.9, "user": "x",
          "metadata": {"a": "b"}, "parallel_tool_calls": True}  # fmt: skip
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
RICH: dict[str, dict[str, Any]] = {
    "chat": {
        **COMMON, "max_tokens": 50, "stop": ["x"], "n": 1, "seed": 3,
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "stream_options": {"include_usage": True}, "presence_penalty": 0.1,
        "tools": [{"type": "function", "function": FUNCTION}, {"type": "web_search"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        "messages": [
            {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "6"}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]},
        ],
    },
    "responses": {
        **COMMON, "instructions": "Be brief.", "max_output_tokens": 50, "text": {"format": {
            "type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "detailed"}, "store": True, "truncation": "auto",
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "tools": [{"type": "function", **FUNCTION}, {"type": "web_search"},
                  {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": "a"}},
                  {"type": "namespace", "name": "m", "tools": [{"type": "function", **FUNCTION}]}],
        "input": [
            {"role": "system", "content": "Rules."}, {"type": "message", "role": "user", "content": "hi"},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "6"}]},
            {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "7"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"role": "user", "content": [{"type": "input_image", "image_url": URL}]},
        ],
    },
    "messages": {
        **COMMON, "max_tokens": 50, "system": [{"type": "text", "text": "Be brief."}], "stop_sequences": ["x"],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True},
                  {"type": "web_search_20250305", "name": "w"},
                  {"name": "g", "input_schema": SCHEMA, "defer_loading": True}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
                                              {"type": "text", "text": "so"},
                                              {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": [
                    {"type": "text", "text": "6"}, {"type": "tool_reference", "tool_name": "g"}]},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                {"type": "document", "source": {"type": "content", "content": "c"}}]},
        ],
    },
}  # fmt: skip


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
    body = copy.deepcopy(RICH[api])
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
                spot[last] = draw(st.sampled_from(WORDS))
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
    few = settings(max_examples=150, deadline=None, database=None, derandomize=True,
                   suppress_health_check=list(HealthCheck))  # fmt: skip

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
    """The program, in an environment of its own that is kept between runs; skips where it cannot be installed."""
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
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [
        str(schemathesis), "run", f"{server.url}/openapi.json", "--url", server.url, "--checks", checks,
        "--max-examples", "60",
        "--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--max-time", "120", "--no-color",
        "--request-timeout", "20", "--continue-on-failure", "--warnings", "off",
    ]  # fmt: skip
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=560, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert httpx.get(f"{server.url}/health/ready").status_code == 200
