"""The server as its clients meet it: answers, streams, tools, costs, limits, failures. The client
is OpenAI's own.
"""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

import openconductor as oc
from integration.orchestra import PLAN, Orchestra, orchestra
from integration.served import PATHS
from openconductor.baselines import make_baseline
from openconductor.errors import ConnectionLost, ContextTooLong, RateLimited
from openconductor.prompt import render_workflow
from openconductor.serving.key_ring import hash_key
from openconductor.serving.serve_config import KeyTable
from openconductor.types import Step, Usage, Workflow

ASKED: Any = [{"role": "user", "content": "What is 6 * 7?"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
IMAGE = "data:image/png;base64,iVBORw0KGgo="


def user_says(*parts: Any) -> Any:
    return [{"role": "user", "content": list(parts)}]


def image_at(url: str) -> Any:
    return {"type": "image_url", "image_url": {"url": url}}


def client(server: Orchestra, api_key: str = "none") -> openai.OpenAI:
    made = openai.OpenAI(base_url=f"{server.url}/v1", api_key=api_key, max_retries=0)
    return server.closing.enter_context(made)


def chat(server: Orchestra, **more: Any) -> Any:
    """Ask for a chat completion."""
    asked = {"model": "conductor", "messages": ASKED, **more}
    return client(server).chat.completions.create(**asked)


def test_an_answer_says_who_did_what_and_what_it_cost(server: Orchestra) -> None:
    server.play("thought", "42")
    answer = chat(server)
    (choice,) = answer.choices
    assert choice.message.content == "42"
    assert choice.finish_reason == "stop"
    plan = "1. anna: Think about it.\n2. bert (sees 1): Answer the question.\n\nStep 1: anna is at"
    assert choice.message.reasoning_content.startswith(plan)
    usage = answer.usage
    assert usage.prompt_tokens == 300
    assert usage.completion_tokens == 60
    assert usage.total_tokens == 360
    assert usage.prompt_tokens_details.cached_tokens == 120
    assert usage.completion_tokens_details.reasoning_tokens == 15
    calls = usage.orchestration["calls"]
    each = (60 * 3 + 40 * 0.3 + 20 * 15) / 1e6
    assert [entry["worker"] for entry in calls] == ["conductor", "anna", "bert"]
    for entry in calls:
        assert float(entry["dollars"]) == pytest.approx(each)
    assert float(usage.orchestration["dollars"]) == pytest.approx(3 * each)


def test_an_episode_is_read_back_by_the_id_of_its_answer(server: Orchestra) -> None:
    server.play("thought", "42")
    identifier = chat(server)._request_id
    episode = httpx.get(f"{server.url}/v1/episodes/{identifier}").json()
    assert (episode["id"], episode["answer"]) == (identifier, "42")
    (played,) = episode["rounds"]
    assert played["conductor"]["text"] == PLAN
    steps = [(step["worker_name"], step["response"]) for step in played["steps"]]
    assert steps == [("anna", "thought"), ("bert", "42")]


@pytest.mark.parametrize(
    ("level", "shown"), [("off", ()), ("full", ("Answer the question.", "a long thought"))]
)
def test_how_much_is_shown_can_be_chosen(
    server: Orchestra, level: str, shown: tuple[str, ...]
) -> None:
    server.play("a long thought")
    answer = chat(server, extra_body={"conductor": {"reasoning": level}})
    thoughts = getattr(answer.choices[0].message, "reasoning_content", "")
    assert all(part in thoughts for part in shown)
    assert bool(thoughts) == bool(shown)


@pytest.mark.parametrize(("finish", "told"), [("length", "length"), ("stop", "tool_calls")])
def test_a_call_of_a_tool_that_was_cut_is_not_told_as_whole(
    server: Orchestra, finish: str, told: str
) -> None:
    server.play("thought", ["let me see", {"add": {"a": 6}}])
    server.workers["bert"].finish = finish
    answer = chat(server, tools=[TOOL])
    assert answer.choices[0].finish_reason == told


def test_a_call_of_a_tool_that_was_not_offered_is_left_out(server: Orchestra) -> None:
    server.play("thought", ["let me see", {"add": {"a": 6}}])
    (choice,) = chat(server).choices
    assert choice.finish_reason == "stop"
    assert choice.message.tool_calls is None


def test_the_results_of_tools_come_back_to_their_worker_after_a_restart(server: Orchestra) -> None:
    """The tests of clients hold the rest."""

    def bert(messages: Any, sampling: Any) -> Any:
        if messages[-1].role == "tool":
            return f"it is {messages[-1].content}"
        return ["let me see", {"add": {"a": 6}}]

    server.play("thought", bert)
    (asking,) = chat(server, tools=[TOOL], temperature=0.3).choices
    (call,) = asking.message.tool_calls
    server.gateway.history._tool_turns.clear()  # the journal knows
    result = {"role": "tool", "tool_call_id": call.id, "content": "13"}
    (told,) = chat(server, messages=[*ASKED, asking.message, result], tools=[TOOL]).choices
    assert told.message.content == "it is 13"
    assert told.finish_reason == "stop"
    asked = (server.planner, *server.workers.values())
    assert [len(one.sent) for one in asked] == [1, 1, 2], "the worker goes on by itself"
    (_, alone) = server.workers["anna"].sent[0]
    assert "tools" not in alone.body
    (first, sampling), (second, _) = server.workers["bert"].sent
    assert sampling.body["tools"] == [TOOL]
    assert sampling.temperature == 0.3
    assert second[: len(first)] == first
    assert second[-1].parts[0] == {"tool_call_id": "own0"}


def test_where_the_worker_that_called_tools_fails_the_conductor_plans_anew(
    server: Orchestra,
) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        if all(turn.role != "tool" for turn in messages):
            return {"add": {"a": 6}}
        return ContextTooLong("too much") if len(messages) < 6 else "planned anew"

    server.play("thought", bert)
    message = chat(server, tools=[TOOL]).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "13"}
    again = chat(server, messages=[*ASKED, message, result], tools=[TOOL])
    assert again.choices[0].message.content == "planned anew"
    read = server.planner.sent[-1][0][-1].content
    assert "[calls add(" in read
    assert "[result]\n13" in read
    roles = {turn.role for turn in server.workers["anna"].sent[-1][0]}
    assert "tool" not in roles, "who is offered no tools reads of them"


@pytest.mark.parametrize("chosen", [{"workers": ["bert"]}, {"tags": ["b"]}], ids=str)
def test_a_request_chooses_its_workers(server: Orchestra, chosen: dict[str, Any]) -> None:
    plan = Workflow((Step(1, "Answer.", []),))
    server.play(plan=render_workflow(plan))
    chat(server, extra_body={"conductor": chosen})
    rules = server.planner.sent[-1][0][0].content
    assert "Model 1" in rules
    assert "Model 0" not in rules


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"workers": ["berta"]}, (400, "invalid_value")),
        ({"max_price": "2"}, (400, "invalid_value")),
        ({"max_stepps": 1}, (400, "invalid_value")),
        ({"max_calls": 1}, (402, "budget_exceeded")),
        ({"max_dollars": "0.000001"}, (402, "budget_exceeded")),
    ],
    ids=str,
)
def test_a_request_limits_itself_by_what_there_is(
    server: Orchestra, wish: dict[str, Any], told: tuple[int, str]
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        chat(server, extra_body={"conductor": wish})
    assert (caught.value.status_code, caught.value.code) == told


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RateLimited("slow down", retry_after=7), 429, "worker_rate_limited"),
        (ContextTooLong("too long"), 400, "context_length_exceeded"),
        (ConnectionLost("gone"), 502, "worker_failed"),
    ],
)
def test_a_failure_is_an_error_with_a_code(
    tmp_path: Path, error: Exception, status: int, code: str
) -> None:
    with orchestra(tmp_path, bert=error) as server:
        with pytest.raises(openai.APIStatusError) as caught:
            chat(server)
        metrics = httpx.get(f"{server.url}/metrics").text
    assert (caught.value.status_code, caught.value.code) == (status, code)
    headers = caught.value.response.headers
    assert headers["x-should-retry"] == "false", "what was paid for is not bought again"
    assert ("retry-after" in headers) == (status == 429)
    labels = f'api="chat",model="conductor",status="{status}"'
    assert f"openconductor_requests_total{{{labels}}} 1.0" in metrics


def test_a_text_that_was_shown_and_then_broken_off_is_begun_by_nobody_else(tmp_path: Path) -> None:
    broken = ["4", 0.05, ConnectionLost("gone")]
    with orchestra(tmp_path, "thought", broken, conductor={"fallback": True}) as server:
        with pytest.raises(openai.APIError, match="were sent"):
            list(chat(server, stream=True))
        assert [len(worker.sent) for worker in server.workers.values()] == [1, 1]


def test_a_worker_that_claims_too_much_is_flagged_and_does_not_empty_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = KeyTable("ann", hash_key("ann"), dollars=Decimal(100))
    with orchestra(tmp_path, key=[key]) as server:
        server.workers["bert"].usage = Usage(10**9, 0, 10**9)
        ask = client(server, api_key="ann").chat.completions.create
        for _ in range(2):
            answer = ask(model="direct:bert", messages=ASKED)
            assert answer.choices[0].message.content == "fine"
        metrics = httpx.get(f"{server.url}/metrics").text
        charged = [record.value["charged"] for record in server.gateway.store.records()]
    assert len(charged) == 2
    assert all(Decimal(dollars) < Decimal("0.01") for dollars in charged)
    assert 'openconductor_false_claims_total{worker="bert"} 2.0' in metrics
    assert "worker bert claims 1000000000 input" in caplog.text


def test_a_worker_alone_and_a_baseline_are_models_too(tmp_path: Path) -> None:
    def vote(pool: Any) -> Any:
        return {"moa": make_baseline("moa", pool, aggregator="bert")}

    with orchestra(tmp_path, "anna's", "bert's", baselines=vote) as server:
        models = client(server).models
        names = ["conductor", "moa", "direct:anna", "direct:bert"]
        assert [model.id for model in models.list()] == names
        assert models.retrieve("moa").id == "moa"
        voted = chat(server, model="moa")
        assert voted.choices[0].message.content == "bert's"
        streamed = chat(server, model="direct:anna", stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in streamed]
        assert "".join(pieces) == "anna's"
        with pytest.raises(openai.BadRequestError, match="cannot call tools"):
            chat(server, model="moa", tools=[TOOL])


@pytest.mark.alone
def test_a_silent_step_is_bridged_by_heartbeats(tmp_path: Path) -> None:
    silence = 0.5
    body = {"model": "conductor", "messages": ASKED, "stream": True}
    lines: list[str] = []
    with orchestra(tmp_path, [silence, "thought"], "42", heartbeat_s=0.1) as server:
        began = time.monotonic()
        first = 0.0
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body) as response:
            for line in response.iter_lines():
                first = first or time.monotonic() - began
                lines.append(line)
    beats = [line for line in lines if '"delta":{},"logprobs":null,"finish_reason":null' in line]
    assert len(beats) >= 3
    assert first < silence, "headers and the first bytes come at once"
    assert lines[-2] == "data: [DONE]"


ELSEWHERE = image_at("http://127.0.0.1/a")


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("model", {"model": None}),
        ("messages", {"messages": []}),
        ("messages.0.content.0.type", {"messages": user_says({"type": "audio"})}),
        ("messages.0.content.0.image_url.url", {"messages": user_says(ELSEWHERE)}),
        ("n", {"n": 2}),
        ("temperature", {"temperature": "hot"}),
        ("tool_choice", {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
    ],
)
def test_a_wrong_body_gets_an_error_that_names_the_field(
    server: Orchestra, field: str, wrong: dict[str, Any]
) -> None:
    body = {"model": "conductor", "messages": ASKED, **wrong}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert not server.planner.sent


def test_what_is_no_request_gets_an_error(tmp_path: Path) -> None:
    with orchestra(tmp_path, body_mb=0.001) as server, httpx.Client(base_url=server.url) as http:
        for body, status in ((b"[]", 400), (b"\xff", 400), (b"x" * 2000, 413)):
            answer = http.post("/v1/chat/completions", content=body)
            assert answer.status_code == status
        assert http.get("/v1/chat/completions").status_code == 405
        assert http.get("/v1/nothing").status_code == 404
        missing = http.get("/v1/episodes/abc").json()
        assert missing["error"]["code"] == "episode_not_found"
        blank = {"messages": [{"role": "user", "content": " "}], "stream": True}
        asked = {"model": "conductor", **blank}
        assert http.post("/v1/chat/completions", json=asked).status_code == 400


def test_tokens_are_counted_for_a_client_that_would_upgrade_its_connection(
    server: Orchestra,
) -> None:
    """Java's client asks for HTTP/2 in every request."""
    java = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAEAAEA"}
    with httpx.Client(base_url=server.url, headers=java) as http:
        for turns, status in ((ASKED, 200), (ASKED, 200), ([], 400)):
            body = {"model": "conductor", "messages": turns}
            counted = http.post("/v1/messages/count_tokens", json=body)
            assert counted.status_code == status
            assert ("messages" in counted.text) == (status == 400)


def test_unknown_parameters_and_tools_are_tolerated_and_images_go_along(server: Orchestra) -> None:
    image = image_at(IMAGE)
    shown = user_says({"type": "text", "text": "What is it?"}, image)
    messages = [{"role": "developer", "content": "Be brief."}, *shown]
    tools = [{"type": "web_search"}, TOOL]
    answer = chat(server, messages=messages, tools=tools, store=True, extra_body={"unknown": 1})
    assert answer.choices[0].message.content == "fine"
    sent, sampling = server.workers["bert"].sent[0]
    assert sent[0].role == "system"
    assert sent[1].parts[0] == image
    assert sampling.body["tools"] == [TOOL]


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
@pytest.mark.parametrize("model", ["conductor", "direct:bert"])
def test_a_conversation_may_end_with_any_turn(server: Orchestra, role: str, model: str) -> None:
    messages = [*ASKED, {"role": role, "content": "It is"}]
    assert chat(server, model=model, messages=messages).choices[0].message.content == "fine"
    sent, _ = server.workers["bert"].sent[-1]
    assert any(turn.content == "It is" for turn in sent)
    assert (sent[-1].content == "It is") == (role == "assistant" or model != "conductor")


@pytest.mark.parametrize("model", ["conductor", "direct:bert"])
def test_an_answer_that_a_client_of_anthropics_begins_is_gone_on_with(
    server: Orchestra, model: str
) -> None:
    def ask(beginning: str) -> httpx.Response:
        turns = [*ASKED, {"role": "assistant", "content": beginning}]
        body = {"model": model, "max_tokens": 9, "messages": turns}
        return httpx.post(f"{server.url}/v1/messages", json=body)

    server.play("thought", " 42")
    (*_, said) = ask("It is").json()["content"]
    assert said == {"type": "text", "text": " 42"}, "the beginning is not repeated"
    assert server.workers["bert"].sent[-1][0][-1].content == "It is"
    wrong = ask("It is ")
    assert (wrong.status_code, "whitespace" in wrong.text) == (400, True)


def test_later_rounds_are_shown_when_they_are_over(server: Orchestra) -> None:
    plans = iter([PLAN, "model_id = []\nsubtasks = []\naccess_list = []"])
    server.play("thought", ["4", "2"], plan=lambda *_: next(plans))
    chunks = list(chat(server, stream=True, extra_body={"conductor": {"max_rounds": 2}}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert [delta.content for delta in deltas if delta.content] == ["42"]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    assert "The answer stands." in "".join(thoughts)


def test_a_conversation_goes_on_from_an_answer_or_from_its_parts_by_name(tmp_path: Path) -> None:
    keys = [KeyTable(name, hash_key(name)) for name in ("ann", "ben")]
    one: Any = {"role": "user", "content": "One."}
    two: Any = {"role": "user", "content": "Two."}
    with orchestra(tmp_path, "thought", "42", key=keys) as server:
        ask = client(server, api_key="ann").responses.create
        first = ask(model="conductor", input="One.", instructions="Be short.")
        assert first.output_text == "42"
        assert first.id == f"resp_{first._request_id}"
        named: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
        ask(model="direct:bert", input="Two.", previous_response_id=first.id)
        ask(model="direct:bert", input=[one, *named, two])
        for messages, _ in server.workers["bert"].sent[-2:]:
            assert [turn.role for turn in messages] == ["user", "assistant", "user"]
            assert [turn.content for turn in messages] == ["One.", "42", "Two."]
        nobodys = [{"type": "item_reference", "id": f"msg_{'0' * 32}"}]
        for key, parts in (("ben", named), ("ann", nobodys)):
            with pytest.raises(openai.NotFoundError, match="no message"):
                client(server, api_key=key).responses.create(model="conductor", input=[*parts, two])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["conductor", "direct:bert"])
def test_of_an_answer_that_is_not_to_be_stored_no_text_is_kept(
    tmp_path: Path, model: str, stream: bool
) -> None:
    parts = (f"secret{number}" for number in range(1, 6))
    question, rules, thought, answer, tool = parts
    plan = render_workflow(Workflow((Step(0, "secret6"), Step(1, "secret7", "all"))))
    asked: Any = {"model": model, "input": question, "instructions": rules, "stream": stream}
    asked["tools"] = [{"type": "function", "name": tool}]
    with orchestra(tmp_path, thought, [answer, {tool: {"a": "secret8"}}], plan=plan) as server:
        path = f"{server.url}/v1/responses"
        told = httpx.post(path, json={**asked, "store": False})
        assert answer in told.text
        identifier = told.headers["x-request-id"]
        after = httpx.post(path, json={**asked, "previous_response_id": f"resp_{identifier}"})
        assert (after.status_code, "previous_response_not_found" in after.text) == (404, True)
        chosen: Any = {"messages": [{"role": "user", "content": question}], "store": False}
        chat(server, model=model, **chosen)
        episode = httpx.get(f"{server.url}/v1/episodes/{identifier}").json()
        assert Decimal(episode["request"]["charged"]) > 0, "numbers and the bill stay"
        kept_episode = server.gateway.store.episode(identifier)
        assert kept_episode is not None
        assert kept_episode.usage.output_tokens > 0
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert identifier.encode() in kept
    assert b"secret" not in kept


def test_the_first_page_says_what_this_is_and_which_paths_there_are(server: Orchestra) -> None:
    page = httpx.get(f"{server.url}/").json()
    assert (page["name"], page["version"]) == ("openconductor", oc.__version__)
    assert {f"POST {path}" for path in PATHS.values()} < set(page["endpoints"])
    assert "anna" not in str(page)
    fixed = [line for line in page["endpoints"] if line.startswith("GET") and "{" not in line]
    assert len(fixed) >= 6
    for line in fixed:
        path = line.removeprefix("GET ")
        expected = 403 if path == "/v1/keys" else 200  # for an admin key alone
        assert httpx.get(f"{server.url}{path}").status_code == expected, path


def test_an_answer_is_read_again_and_deleted(tmp_path: Path) -> None:
    keys = [KeyTable(name, hash_key(name)) for name in ("ann", "ben")]
    tool: Any = {"type": "function", "name": "add", "parameters": SCHEMA}
    asked: Any = {
        "model": "conductor",
        "input": [
            {"role": "user", "content": "One."},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]},
        ],
        "instructions": "Be short.",
        "tools": [tool],
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
    }
    with orchestra(tmp_path, "thought", ["42", {"add": {"a": 6}}], key=keys) as server:
        ann = client(server, api_key="ann").responses
        first = ann.create(**asked)
        assert ann.retrieve(first.id).to_dict() == first.to_dict()
        listed = ann.input_items.list(first.id, order="asc", limit=2)
        kinds = [(item.type, getattr(item, "role", "")) for item in listed]
        assert kinds == [("message", "user"), ("message", "assistant"), ("message", "user")]
        (newest,) = ann.input_items.list(first.id, limit=1).data
        assert newest.to_dict()["content"] == [
            {"type": "input_image", "image_url": IMAGE, "detail": "auto"}
        ]
        wrong = httpx.get(
            f"{server.url}/v1/responses/{first.id}/input_items?limit=0",
            headers={"x-api-key": "ann"},
        )
        assert wrong.json()["error"]["param"] == "limit"
        with pytest.raises(openai.NotFoundError):
            client(server, api_key="ben").responses.retrieve(first.id)
        ann.delete(first.id)
        for forget in (ann.retrieve, ann.delete, ann.input_items.list):
            with pytest.raises(openai.NotFoundError):
                forget(first.id)
        with pytest.raises(openai.NotFoundError):
            ann.create(model="conductor", input="Two.", previous_response_id=first.id)
        episode = server.gateway.store.episode(first._request_id)
        assert episode is not None
        assert (episode.question, episode.answer) == ("", None)
        assert all(call.completion is None for call in episode.calls)
        assert episode.usage.output_tokens > 0, "numbers stay"


def test_models_have_the_form_of_the_client_that_asks(server: Orchestra) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as asking:
        models = list(asking.models.list())
        assert [model.id for model in models] == ["conductor", "direct:anna", "direct:bert"]
        one = asking.models.retrieve("direct:anna")
        assert (one.type, one.display_name) == ("model", "direct:anna")
        with pytest.raises(anthropic.NotFoundError) as caught:
            asking.models.retrieve("nobody")
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    assert client(server).models.retrieve("conductor").object == "model"


def test_the_description_names_every_path(server: Orchestra) -> None:
    document = httpx.get(f"{server.url}/openapi.json").json()
    assert json.dumps(document)
    assert "delete" in document["paths"]["/v1/responses/{identifier}"]
    for path in ("/health", "/health/live", "/health/ready", "/metrics", "/v1/models"):
        assert path in document["paths"]
        assert httpx.get(f"{server.url}{path}").status_code == 200
