"""The HTTP cases of the public Open Responses suite (openresponses.org), as tests of our own.

Each has a request, and what the answer or each event of the stream must hold.

``/v1/responses/compact`` and WebSocket are not served, so the suite's other nine cases fail.
"""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import pytest

from integration.orchestra import Orchestra
from integration.served import events

pytestmark = pytest.mark.slow

PNG = "data:image/png;base64,iVBORw0KGgo="
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}
TEXT = {"type": "string"}
INTEGER = {"type": "integer"}
NULLABLE_TEXT = {"type": ["string", "null"]}
NULLABLE_INTEGER = {"type": ["integer", "null"]}
NULLABLE_OBJECT = {"type": ["object", "null"]}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}


def holds(**fields: object) -> dict[str, Any]:
    """Return the schema of an object with these fields, all of them required."""
    return {"type": "object", "required": list(fields), "properties": fields}


OUTPUT_TEXT = holds(type={"const": "output_text"}, text=TEXT, annotations={"type": "array"})
STATUS = {"enum": ["in_progress", "completed", "incomplete"]}
ITEMS = {
    "message": holds(
        id=TEXT,
        status=STATUS,
        role={"const": "assistant"},
        content={"type": "array", "items": OUTPUT_TEXT},
    ),
    "function_call": holds(id=TEXT, call_id=TEXT, name=TEXT, arguments=TEXT, status=STATUS),
    "reasoning": holds(id=TEXT, summary={"type": "array"}),
}
USAGE = holds(
    input_tokens=INTEGER,
    output_tokens=INTEGER,
    total_tokens=INTEGER,
    input_tokens_details=holds(cached_tokens=INTEGER),
    output_tokens_details=holds(reasoning_tokens=INTEGER),
)
RESPONSE = holds(
    id=TEXT,
    object={"const": "response"},
    created_at=INTEGER,
    completed_at=NULLABLE_INTEGER,
    status=TEXT,
    incomplete_details=NULLABLE_OBJECT,
    model=TEXT,
    previous_response_id=NULLABLE_TEXT,
    instructions={"type": ["string", "array", "null"]},
    output={"type": "array"},
    error=NULLABLE_OBJECT,
    tools={
        "type": "array",
        "items": holds(type=TEXT, name=TEXT, description={}, parameters={}, strict={}),
    },
    tool_choice={"type": ["string", "object"]},
    truncation={"enum": ["auto", "disabled"]},
    parallel_tool_calls=BOOLEAN,
    text=holds(format=holds(type=TEXT)),
    top_p=NUMBER,
    presence_penalty=NUMBER,
    frequency_penalty=NUMBER,
    top_logprobs=INTEGER,
    temperature=NUMBER,
    reasoning=NULLABLE_OBJECT,
    user=NULLABLE_TEXT,
    usage={"anyOf": [USAGE, {"type": "null"}]},
    max_output_tokens=NULLABLE_INTEGER,
    max_tool_calls=NULLABLE_INTEGER,
    store=BOOLEAN,
    background=BOOLEAN,
    service_tier=TEXT,
    metadata={"type": "object"},
    safety_identifier=NULLABLE_TEXT,
    prompt_cache_key=NULLABLE_TEXT,
)
WHOLE = holds(response=RESPONSE)
ITEM = holds(output_index=INTEGER, item=holds(type=TEXT, id=TEXT))
IN_ITEM: dict[str, Any] = {"item_id": TEXT, "output_index": INTEGER}
IN_TEXT: dict[str, Any] = {**IN_ITEM, "content_index": INTEGER}
IN_SUMMARY: dict[str, Any] = {**IN_ITEM, "summary_index": INTEGER}
EVENTS = {
    "created": WHOLE,
    "in_progress": WHOLE,
    "completed": WHOLE,
    "output_item.added": ITEM,
    "output_item.done": ITEM,
    "content_part.added": holds(**IN_TEXT, part=OUTPUT_TEXT),
    "content_part.done": holds(**IN_TEXT, part=OUTPUT_TEXT),
    "output_text.delta": holds(**IN_TEXT, delta=TEXT),
    "output_text.done": holds(**IN_TEXT, text=TEXT),
    "reasoning_summary_part.added": holds(**IN_SUMMARY, part=holds(type=TEXT, text=TEXT)),
    "reasoning_summary_part.done": holds(**IN_SUMMARY, part=holds(type=TEXT, text=TEXT)),
    "reasoning_summary_text.delta": holds(**IN_SUMMARY, delta=TEXT),
    "reasoning_summary_text.done": holds(**IN_SUMMARY, text=TEXT),
    "function_call_arguments.delta": holds(**IN_ITEM, delta=TEXT),
    "function_call_arguments.done": holds(**IN_ITEM, name=TEXT, arguments=TEXT),
}
"""The fields of each kind of event, beside its type and number."""


def says(role: str, content: object, **more: object) -> dict[str, object]:
    return {"type": "message", "role": role, "content": content, **more}


CASES = {
    "a text": {"input": [says("user", "Say hello.")]},
    "a stream": {"input": [says("user", "Count to 5.")], "stream": True},
    "a system prompt": {"input": [says("system", "Be a pirate."), says("user", "Hello.")]},
    "a tool": {"input": [says("user", "The weather in Rome?")], "tools": [WEATHER]},
    "a stream of a tool": {
        "input": [says("user", "The weather in Rome?")],
        "tools": [WEATHER],
        "stream": True,
    },
    "an image": {
        "input": [
            says(
                "user",
                [
                    {"type": "input_text", "text": "What is it?"},
                    {"type": "input_image", "image_url": PNG},
                ],
            )
        ]
    },
    "several turns": {
        "input": [
            says("user", "I am Alice."),
            says("assistant", "Hello Alice!"),
            says("user", "Who am I?"),
        ]
    },
    "turns with phases": {
        "input": [
            says("user", "Look it up."),
            says("assistant", "I am looking.", phase="commentary"),
            says("assistant", "It is 42.", phase="final_answer"),
            says("user", "And twice that?"),
        ]
    },
}


def check(schema: dict[str, Any], value: object) -> None:
    jsonschema.Draft202012Validator(schema).validate(value)


def check_response(response: dict[str, Any]) -> None:
    check(RESPONSE, response)
    for item in response["output"]:
        check(ITEMS[item["type"]], item)


def use_tools(messages: Any, sampling: Any) -> Any:
    return {"get_weather": {"place": "Rome"}} if "tools" in sampling.body else "fine"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", ["conductor", "direct:bert"])
def test_an_http_case_of_the_suite_passes(server: Orchestra, case: str, model: str) -> None:
    server.play("thought", use_tools)
    asked = {"model": model, **CASES[case]}
    answer = httpx.post(f"{server.url}/v1/responses", json=asked, timeout=20)
    assert answer.status_code == 200, answer.text
    if "stream" in asked:
        told = events(answer.text)
        for number, event in enumerate(told):
            assert event["sequence_number"] == number
            check(EVENTS[event["type"].removeprefix("response.")], event)
        response = told[-1]["response"]
        kinds = {event["type"] for event in told}
        assert ("tools" in asked) == ("response.function_call_arguments.done" in kinds)
    else:
        response = answer.json()
    check_response(response)
    assert response["status"] == "completed"
    expected = "function_call" if "tools" in asked else "message"
    assert expected in [item["type"] for item in response["output"]]
