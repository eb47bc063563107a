"""The server as its clients meet it: answers, streams, tools, costs, limits, failures. The client
is OpenAI's own.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from integration.orchestra import PLAN, Orchestra, orchestra
from openconductor.errors import ConnectionLost, ContextTooLong, RateLimited
from openconductor.prompt import render_workflow
from openconductor.serving.key_ring import hash_key
from openconductor.serving.serve_config import KeyTable
from openconductor.types import Step, Workflow

ASKED: Any = [{"role": "user", "content": "What is 6 * 7?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
IMAGE = "data:image/png;base64,iVBORw0KGgo="


def user_says(*parts: Any) -> Any:
    return [{"role": "user", "content": list(parts)}]


def client(server: Orchestra, **options: Any) -> openai.OpenAI:
    return server.closing.enter_context(
        openai.OpenAI(
            base_url=f"{server.url}/v1", **{"api_key": "none", "max_retries": 0, **options}
        )
    )


def test_an_answer_says_who_did_what_and_what_it_cost(server: Orchestra) -> None:
    server.play("thought", "42")
    answer = client(server).chat.completions.create(model="conductor", messages=ASKED)
    told = httpx.get(f"{server.url}/v1/episodes/{answer._request_id}").json()
    assert answer.choices[0].message.content == "42"
    assert answer.choices[0].finish_reason == "stop"
    thoughts = answer.choices[0].message.reasoning_content  # type: ignore[attr-defined]
    assert thoughts.startswith(
        "1. anna: Think about it.\n2. bert (sees 1): Answer the question.\n\nStep 1: anna is at"
    )
    usage = answer.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (300, 60, 360)
    assert usage.prompt_tokens_details.cached_tokens == 120  # type: ignore[union-attr]
    assert usage.completion_tokens_details.reasoning_tokens == 15  # type: ignore[union-attr]
    bill = usage.orchestration  # type: ignore[attr-defined]
    assert [entry["worker"] for entry in bill["calls"]] == ["conductor", "anna", "bert"]
    each = (60 * 3 + 40 * 0.3 + 20 * 15) / 1e6
    assert [float(entry["dollars"]) for entry in bill["calls"]] == [pytest.approx(each)] * 3
    assert float(bill["dollars"]) == pytest.approx(3 * each)
    assert told["id"] == answer._request_id
    assert told["answer"] == "42"
    (round_told,) = told["rounds"]
    assert round_told["conductor"]["text"] == PLAN
    assert [step["response"] for step in round_told["steps"]] == ["thought", "42"]
    assert [step["worker_name"] for step in round_told["steps"]] == ["anna", "bert"]


@pytest.mark.parametrize(
    ("level", "shown"), [("off", ()), ("full", ("Answer the question.", "a long thought"))]
)
def test_how_much_is_shown_can_be_chosen(
    server: Orchestra, level: str, shown: tuple[str, ...]
) -> None:
    server.play("a long thought")
    extra = {"conductor": {"reasoning": level}}
    answer = client(server).chat.completions.create(
        model="conductor", messages=ASKED, extra_body=extra
    )
    thoughts = getattr(answer.choices[0].message, "reasoning_content", "")
    assert all(part in thoughts for part in shown)
    assert bool(thoughts) == bool(shown)


def test_a_call_of_a_tool_that_was_cut_is_not_told_as_whole(server: Orchestra) -> None:
    server.play("thought", ["let me see", {"add": {"a": 6}}])
    for server.workers["bert"].finish, told in (("length", "length"), ("stop", "tool_calls")):
        answer = client(server).chat.completions.create(
            model="conductor", messages=ASKED, tools=[TOOL]
        )
        assert answer.choices[0].finish_reason == told
    answer = client(server).chat.completions.create(
        model="conductor", messages=ASKED
    )  # which offers none
    assert (answer.choices[0].finish_reason, answer.choices[0].message.tool_calls) == (
        "stop",
        None,
    )


def test_tools_go_to_the_last_worker_and_their_results_come_back_to_it(server: Orchestra) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        results = [turn for turn in messages if turn.role == "tool"]
        return f"it is {results[-1].content}" if results else ["let me see", {"add": {"a": 6}}]

    def ask(messages: Any) -> Any:
        asked: Any = {
            "model": "conductor",
            "messages": messages,
            "tools": [TOOL],
            "temperature": 0.3,
        }
        answer = client(server).chat.completions.create(**asked)
        return answer.choices[0].message, answer.choices[0].finish_reason

    server.play("thought", bert)
    message, finish = ask(ASKED)
    assert (message.content, finish) == ("let me see", "tool_calls")
    (call,) = message.tool_calls
    assert call.function.to_dict() == {"name": "add", "arguments": '{"a": 6}'}
    server.gateway.history._tool_turns.clear()  # as after a restart: the journal knows
    result = {"role": "tool", "tool_call_id": call.id, "content": "13"}
    message, finish = ask([*ASKED, message, result])
    assert (message.content, finish) == ("it is 13", "stop")
    workers, planner = server.workers, server.planner
    assert len(planner.sent) == len(workers["anna"].sent) == 1, "the worker goes on by itself"
    assert "tools" not in workers["anna"].sent[0][1].body
    (first, sampling), (second, _) = workers["bert"].sent
    assert (sampling.body["tools"], sampling.temperature) == ([TOOL], 0.3)
    assert second[: len(first)] == first
    assert second[-2].parts[0]["tool_calls"][0]["id"] == "own0"  # type: ignore[index]
    assert second[-1].parts[0] == {"tool_call_id": "own0"}


def test_where_the_worker_that_called_tools_fails_the_conductor_plans_anew(
    server: Orchestra,
) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        if any(turn.role == "tool" for turn in messages):
            return ContextTooLong("too much") if len(messages) < 6 else "planned anew"
        return {"add": {"a": 6}}

    server.play("thought", bert)
    ask = client(server).chat.completions.create
    message = ask(model="conductor", messages=ASKED, tools=[TOOL]).choices[0].message
    result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "13"}  # type: ignore[index]
    again = ask(model="conductor", messages=[*ASKED, message, result], tools=[TOOL])  # type: ignore[list-item]
    planner, anna = server.planner, server.workers["anna"]
    assert again.choices[0].message.content == "planned anew"
    assert "[calls add(" in planner.sent[-1][0][-1].content
    assert "[result]\n13" in planner.sent[-1][0][-1].content
    assert all(turn.role != "tool" for turn in anna.sent[-1][0]), (
        "who is offered no tools reads of them"
    )


def test_a_request_chooses_its_workers_steps_and_budget(server: Orchestra) -> None:
    alone = render_workflow(Workflow((Step(1, "Answer.", []),)))
    server.play(plan=alone)
    ask = client(server).chat.completions.create

    def post(**conductor: Any) -> Any:
        try:
            return ask(model="conductor", messages=ASKED, extra_body={"conductor": conductor})
        except openai.APIStatusError as error:
            return error.status_code, error.code  # type: ignore[attr-defined]

    post(workers=["bert"])
    assert "Model 1" in server.planner.sent[-1][0][0].content
    assert "Model 0" not in server.planner.sent[-1][0][0].content
    post(tags=["b"])
    assert "Model 0" not in server.planner.sent[-1][0][0].content
    assert post(workers=["berta"]) == (400, "invalid_value")
    assert post(max_price="2") == (400, "invalid_value")
    assert post(max_calls=1) == (402, "budget_exceeded")
    assert post(max_dollars="0.000001") == (402, "budget_exceeded")
    assert post(max_stepps=1) == (400, "invalid_value")


def test_a_failure_is_an_error_with_a_code(tmp_path: Path) -> None:
    failures: Any = [
        (RateLimited("slow down", retry_after=7), 429, "worker_rate_limited"),
        (ContextTooLong("too long"), 400, "context_length_exceeded"),
        (ConnectionLost("gone"), 502, "worker_failed"),
    ]
    with orchestra(tmp_path) as server:
        for error, status, code in failures:
            server.workers["bert"].plays = error
            with pytest.raises(openai.APIStatusError) as caught:
                client(server).chat.completions.create(model="conductor", messages=ASKED)
            assert (caught.value.status_code, caught.value.code) == (status, code)
            headers = caught.value.response.headers
            assert headers["x-should-retry"] == "false", (
                "what was paid for is not bought again by the client"
            )
            assert ("retry-after" in headers) == (status == 429)
        metrics = httpx.get(f"{server.url}/metrics").text
    for _, status, _ in failures:
        assert (
            f'openconductor_requests_total{{api="chat",model="conductor",status="{status}"}} 1.0'
            in metrics
        )


def test_a_text_that_was_shown_and_then_broken_off_is_begun_by_nobody_else(tmp_path: Path) -> None:
    with orchestra(
        tmp_path, "thought", ["4", 0.05, ConnectionLost("gone")], conductor={"fallback": True}
    ) as server:
        said = client(server).chat.completions.create(
            model="conductor", messages=ASKED, stream=True
        )
        with pytest.raises(openai.APIError, match="were sent"):
            list(said)
        assert [len(one.sent) for one in server.workers.values()] == [1, 1]


def test_a_worker_alone_and_a_baseline_are_models_too(tmp_path: Path) -> None:
    def vote(pool: Any) -> Any:
        from openconductor.baselines import make_baseline

        return {"moa": make_baseline("moa", pool, aggregator="bert")}

    with orchestra(tmp_path, "anna's", "bert's", baselines=vote) as server:
        ask = client(server)
        assert [model.id for model in ask.models.list()] == [
            "conductor",
            "moa",
            "direct:anna",
            "direct:bert",
        ]
        assert ask.models.retrieve("moa").id == "moa"
        said = [
            ask.chat.completions.create(model=name, messages=ASKED).choices[0].message.content
            for name in ("direct:anna", "moa")
        ]
        assert said == ["anna's", "bert's"]
        direct = ask.chat.completions.create(model="direct:anna", messages=ASKED, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in direct) == "anna's"
        with pytest.raises(openai.BadRequestError, match="cannot call tools"):
            ask.chat.completions.create(model="moa", messages=ASKED, tools=[TOOL])


@pytest.mark.alone
def test_a_silent_step_is_bridged_by_heartbeats(tmp_path: Path) -> None:
    silence = 0.5
    with orchestra(tmp_path, [silence, "thought"], "42", heartbeat_s=0.1) as server:
        body = {"model": "conductor", "messages": ASKED, "stream": True}
        lines, began, waits = [], time.monotonic(), []
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body) as response:
            for line in response.iter_lines():
                lines.append(line)
                waits.append(time.monotonic() - began)
    assert sum('"delta":{},"logprobs":null,"finish_reason":null' in line for line in lines) >= 3
    assert waits[0] < silence, "headers and the first bytes come at once"
    assert lines[-2] == "data: [DONE]"


def test_a_wrong_body_gets_an_error_that_names_the_field(server: Orchestra) -> None:
    elsewhere = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a"}}
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("model", {"model": None}),
        ("messages", {"messages": []}),
        ("messages.0.content.0.type", {"messages": user_says({"type": "audio"})}),
        ("messages.0.content.0.image_url.url", {"messages": user_says(elsewhere)}),
        ("n", {"n": 2}),
        ("temperature", {"temperature": "hot"}),
        ("tool_choice", {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
    ]
    for field, fields in wrong:
        body = {"model": "conductor", "messages": ASKED, **fields}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert not server.planner.sent


def test_what_is_no_request_gets_an_error(tmp_path: Path) -> None:
    with orchestra(tmp_path, body_mb=0.001) as server, httpx.Client(base_url=server.url) as http:
        for body, status in ((b"[]", 400), (b"\xff", 400), (b"x" * 2000, 413)):
            assert http.post("/v1/chat/completions", content=body).status_code == status
        assert http.get("/v1/chat/completions").status_code == 405
        assert http.get("/v1/nothing").status_code == 404
        assert http.get("/v1/episodes/abc").json()["error"]["code"] == "episode_not_found"
        count: Any = {"model": "conductor", "messages": ASKED}
        assert http.post("/v1/messages/count_tokens", json=count).json()["input_tokens"] > 0
        java = {
            "connection": "Upgrade, HTTP2-Settings",
            "upgrade": "h2c",
            "http2-settings": "AAEAAEAAAAIAAAAB",
        }
        for _ in range(2):
            assert (
                http.post("/v1/messages/count_tokens", json=count, headers=java).status_code == 200
            )
        blank: Any = {
            "model": "conductor",
            "messages": [{"role": "user", "content": " "}],
            "stream": True,
        }
        assert http.post("/v1/chat/completions", json=blank).status_code == 400
        wrong = http.post("/v1/messages/count_tokens", json=count | {"messages": []})
        assert (wrong.status_code, "messages" in wrong.text) == (400, True)


def test_unknown_parameters_and_tools_are_tolerated_and_images_go_along(server: Orchestra) -> None:
    shown = user_says(
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": IMAGE}},
    )
    answer = client(server).chat.completions.create(
        model="conductor",
        messages=[{"role": "developer", "content": "Be brief."}, *shown],
        extra_body={"unknown": 1, "store": True, "tools": [{"type": "web_search"}, TOOL]},
    )
    sent, sampling = server.workers["bert"].sent[0]
    assert answer.choices[0].message.content == "fine"
    assert sent[0].role == "system"
    assert sent[1].parts[0] == {"type": "image_url", "image_url": {"url": IMAGE}}
    assert sampling.body["tools"] == [TOOL]


def test_later_rounds_are_shown_when_they_are_over(tmp_path: Path) -> None:
    plans = iter([PLAN, "model_id = []\nsubtasks = []\naccess_list = []"])
    with orchestra(
        tmp_path, "thought", ["4", "2"], plan=lambda *_: next(plans), conductor={"max_rounds": 2}
    ) as server:
        chunks = list(
            client(server).chat.completions.create(model="conductor", messages=ASKED, stream=True)
        )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert [delta.content for delta in deltas if delta.content] == ["42"]
    assert "The answer stands." in "".join(
        getattr(delta, "reasoning_content", None) or "" for delta in deltas
    )


def test_a_conversation_goes_on_from_an_answer_or_from_its_parts_by_name(tmp_path: Path) -> None:
    with orchestra(
        tmp_path, "thought", "42", key=[KeyTable(name, hash_key(name)) for name in ("ann", "ben")]
    ) as server:
        ask = client(server, api_key="ann").responses.create
        first = ask(model="conductor", input="One.", instructions="Be short.")
        assert first.output_text == "42" and first.id == f"resp_{first._request_id}"
        named: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
        two: Any = {"role": "user", "content": "Two."}
        ask(model="direct:bert", input="Two.", previous_response_id=first.id)
        ask(model="direct:bert", input=[{"role": "user", "content": "One."}, *named, two])
        for messages, _ in server.workers["bert"].sent[-2:]:
            assert [(turn.role, turn.content) for turn in messages] == [
                ("user", "One."),
                ("assistant", "42"),
                ("user", "Two."),
            ]
        nobodys: Any = [{"type": "item_reference", "id": f"msg_{'0' * 32}"}]
        for key, given in (("ben", [*named, two]), ("ann", [*nobodys, two])):
            with pytest.raises(openai.NotFoundError, match="no message"):
                client(server, api_key=key).responses.create(model="direct:bert", input=given)


def test_the_description_names_every_path(server: Orchestra) -> None:
    document = httpx.get(f"{server.url}/openapi.json").json()
    assert json.dumps(document)
    for path in ("/health/live", "/health/ready", "/metrics", "/v1/models"):
        assert path in document["paths"]
        assert httpx.get(f"{server.url}{path}").status_code == 200
