"""The server as its clients meet it: answers, streams, tools, costs, limits, failures. The client is OpenAI's own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from integration.orchestra import PLAN, USED, Orchestra, orchestra
from openconductor.errors import ConnectionLost, ContextTooLong, RateLimited
from openconductor.prompt import render_workflow
from openconductor.types import Step, Workflow

ASKED: Any = [{"role": "user", "content": "What is 6 * 7?"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
IMAGE = "data:image/png;base64,iVBORw0KGgo="


def user_says(*parts: Any) -> Any:
    return [{"role": "user", "content": list(parts)}]


def client(server: Orchestra, **options: Any) -> openai.OpenAI:
    return server.closing.enter_context(
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", **{"max_retries": 0, **options})
    )


def read(answer: Any, said: list[str]) -> None:
    """Read a stream to its end; its text goes to ``said``."""
    said.extend(chunk.choices[0].delta.content or "" for chunk in answer)


def test_an_answer_says_who_did_what_and_what_it_cost(tmp_path: Path) -> None:
    with orchestra(tmp_path, "thought", "42") as server:
        answer = client(server).chat.completions.create(model="conductor", messages=ASKED)
        told = httpx.get(f"{server.url}/v1/episodes/{answer._request_id}").json()
    assert answer.choices[0].message.content == "42"
    assert answer.choices[0].finish_reason == "stop"
    thoughts = answer.choices[0].message.reasoning_content  # type: ignore[attr-defined]
    assert thoughts.startswith("1. anna: Think about it.\n2. bert (sees 1): Answer the question.\n\nStep 1: anna is at")
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
    assert [call["response"]["text"] for call in told["calls"]] == [PLAN, "thought", "42"]


def test_a_stream_shows_the_steps_and_the_answer_as_it_is_written(tmp_path: Path) -> None:
    with orchestra(tmp_path, "thought", ["4", 0.05, "2", 0.05, "!"]) as server:
        options: Any = {"include_usage": True}
        chunks = list(client(server).chat.completions.create(
            model="conductor", messages=ASKED, stream=True, stream_options=options
        ))  # fmt: skip
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "42!"
    assert len([delta for delta in deltas if delta.content]) == 3
    thoughts = [getattr(delta, "reasoning_content", None) for delta in deltas]
    assert "".join(thought or "" for thought in thoughts).endswith("Step 2: bert is at work.")
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 3 * USED.tokens


@pytest.mark.parametrize(("level", "shown"), [("off", ()), ("full", ("Answer the question.", "a long thought"))])
def test_how_much_is_shown_can_be_chosen(tmp_path: Path, level: str, shown: tuple[str, ...]) -> None:
    with orchestra(tmp_path, "a long thought") as server:
        extra = {"conductor": {"reasoning": level}}
        answer = client(server).chat.completions.create(model="conductor", messages=ASKED, extra_body=extra)
    thoughts = getattr(answer.choices[0].message, "reasoning_content", "")
    assert all(part in thoughts for part in shown)
    assert bool(thoughts) == bool(shown)


@pytest.mark.parametrize("stream", [False, True])
def test_tools_go_to_the_last_worker_and_their_results_come_back_to_it(tmp_path: Path, stream: bool) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        results = [turn for turn in messages if turn.role == "tool"]
        return f"it is {results[-1].content}" if results else ["let me see", {"add": {"a": 6}}]

    def ask(messages: Any) -> Any:
        answer = client(server).chat.completions.create(
            model="conductor", messages=messages, tools=[TOOL], stream=stream, temperature=0.3
        )
        if not stream:
            return answer.choices[0].message.model_dump(exclude_none=True), answer.choices[0].finish_reason
        message: Any = {"role": "assistant", "content": "", "tool_calls": []}
        for chunk in answer:
            finish = chunk.choices[0].finish_reason
            message["content"] += chunk.choices[0].delta.content or ""
            message["tool_calls"] += [call.model_dump() for call in chunk.choices[0].delta.tool_calls or ()]
        return message, finish

    with orchestra(tmp_path, "thought", bert) as server:
        message, finish = ask(ASKED)
        assert finish == "tool_calls"
        assert message["content"] == "let me see"
        (call,) = message["tool_calls"]
        assert call["function"] == {"name": "add", "arguments": '{"a": 6}'}
        server.gateway._called.clear()  # as after a restart: the journal knows
        result = {"role": "tool", "tool_call_id": call["id"], "content": "13"}
        message, finish = ask([*ASKED, message, result])
        assert (message["content"], finish) == ("it is 13", "stop")
        workers, planner = server.workers, server.planner
    assert len(planner.sent) == 1, "the worker goes on by itself"
    assert len(workers["anna"].sent) == 1
    assert "tools" not in workers["anna"].sent[0][1].body
    (first, sampling), (second, _) = workers["bert"].sent
    assert sampling.body["tools"] == [TOOL]
    assert sampling.temperature == 0.3
    assert second[: len(first)] == first
    assert second[-2].parts[0]["tool_calls"][0]["id"] == "own0"  # type: ignore[index]
    assert second[-1].parts[0] == {"tool_call_id": "own0"}


def test_where_the_worker_that_called_tools_fails_the_conductor_plans_anew(tmp_path: Path) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        if any(turn.role == "tool" for turn in messages):
            return ContextTooLong("too much") if len(messages) < 6 else "planned anew"
        return {"add": {"a": 6}}

    with orchestra(tmp_path, "thought", bert) as server:
        ask = client(server).chat.completions.create
        message = ask(model="conductor", messages=ASKED, tools=[TOOL]).choices[0].message
        result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "13"}  # type: ignore[index]
        again = ask(model="conductor", messages=[*ASKED, message, result], tools=[TOOL])  # type: ignore[list-item]
        planner, anna = server.planner, server.workers["anna"]
    assert again.choices[0].message.content == "planned anew"
    assert "[calls add(" in planner.sent[-1][0][-1].content
    assert "[result]\n13" in planner.sent[-1][0][-1].content
    assert all(turn.role != "tool" for turn in anna.sent[-1][0]), "who is offered no tools reads of them"


def test_a_request_chooses_its_workers_steps_and_budget(tmp_path: Path) -> None:
    alone = render_workflow(Workflow((Step(1, "Answer.", []),)))
    with orchestra(tmp_path, plan=alone) as server:
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


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RateLimited("slow down", retry_after=7), 429, "worker_rate_limited"),
        (ContextTooLong("too long"), 400, "context_length_exceeded"),
        (ConnectionLost("gone"), 502, "worker_failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_is_an_error_with_a_code(
    tmp_path: Path, error: Exception, status: int, code: str, stream: bool
) -> None:
    with orchestra(tmp_path, "thought", error) as server:
        with pytest.raises(openai.APIError) as caught:
            read(client(server).chat.completions.create(model="conductor", messages=ASKED, stream=stream), [])
        metrics = httpx.get(f"{server.url}/metrics").text
    assert caught.value.code == code
    if not stream:
        assert caught.value.status_code == status  # type: ignore[attr-defined]
        headers = caught.value.response.headers  # type: ignore[attr-defined]
        assert headers["x-should-retry"] == "false", "what was paid for is not bought again by the client"
        assert ("retry-after" in headers) == (status == 429)
    assert f'openconductor_requests_total{{api="chat",model="conductor",status="{status}"}} 1.0' in metrics


def test_a_text_that_was_shown_and_then_broken_off_ends_in_an_error(tmp_path: Path) -> None:
    with orchestra(tmp_path, "thought", ["4", 0.1, ConnectionLost("gone")], conductor={"fallback": True}) as server:
        said: list[str] = []
        with pytest.raises(openai.APIError):
            read(client(server).chat.completions.create(model="conductor", messages=ASKED, stream=True), said)
        assert "".join(said) == "4"
        assert len(server.workers["anna"].sent) == 1, "nobody begins it a second time"


def test_a_worker_alone_and_a_baseline_are_models_too(tmp_path: Path) -> None:
    def vote(pool: Any) -> Any:
        from openconductor.baselines import make_baseline

        return {"moa": make_baseline("moa", pool, aggregator="bert")}

    with orchestra(tmp_path, "anna's", "bert's", baselines=vote) as server:
        ask = client(server)
        assert [model.id for model in ask.models.list()] == ["conductor", "moa", "direct:anna", "direct:bert"]
        assert ask.models.retrieve("moa").id == "moa"
        said = [ask.chat.completions.create(model=name, messages=ASKED).choices[0].message.content
                for name in ("direct:anna", "moa")]  # fmt: skip
        assert said == ["anna's", "bert's"]
        direct = ask.chat.completions.create(model="direct:anna", messages=ASKED, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in direct) == "anna's"
        with pytest.raises(openai.BadRequestError, match="cannot call tools"):
            ask.chat.completions.create(model="moa", messages=ASKED, tools=[TOOL])


def test_a_silent_step_is_bridged_by_beats(tmp_path: Path) -> None:
    with orchestra(tmp_path, [1.0, "thought"], "42") as server:
        body = {"model": "conductor", "messages": ASKED, "stream": True}
        lines, began, waits = [], time.monotonic(), []
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=0.7) as response:
            for line in response.iter_lines():
                lines.append(line)
                waits.append(time.monotonic() - began)
    assert sum('"delta":{},"logprobs":null,"finish_reason":null' in line for line in lines) >= 3
    assert waits[0] < 0.5, "headers and the first bytes come at once"
    assert lines[-2] == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["planning", "step", "answer"])
def test_a_client_that_goes_away_ends_its_episode_and_pays_for_it(tmp_path: Path, where: str, stream: bool) -> None:
    slow = ["some", 5.0, "more"]
    plays: Any = {
        "plan": slow if where == "planning" else PLAN,
        "anna": slow if where == "step" else "thought",
        "bert": slow,
    }
    with orchestra(tmp_path, **plays) as server:
        body = {"model": "conductor", "messages": ASKED, "stream": stream}
        working = {"planning": server.planner, "step": server.workers["anna"], "answer": server.workers["bert"]}[where]
        with httpx.Client(timeout=0.6) as going:
            if stream:
                with going.stream("POST", f"{server.url}/v1/chat/completions", json=body) as response:
                    lines = response.iter_lines()
                    while not working.sent:
                        next(lines)
            else:
                with pytest.raises(httpx.ReadTimeout):
                    going.post(f"{server.url}/v1/chat/completions", json=body)
        end = time.monotonic() + 1.0
        while not working.cancelled and time.monotonic() < end:
            time.sleep(0.01)
        assert working.cancelled == 1
        end = time.monotonic() + 1.0
        while server.gateway._turns and time.monotonic() < end:
            time.sleep(0.01)
        assert not server.gateway._turns
        server.gateway.journal.flush()
        (episode,) = server.gateway.journal.episodes()
        calls = list(server.gateway.journal.calls(episode.id))
        record = server.gateway.journal.find_outcome(f"serve/{episode.id}")
    assert episode.outcome == "unfinished"
    assert [call.outcome for call in calls][-1] == "cancelled"
    paid = sum(call.usage.dollars for call in calls)
    assert record is not None
    assert float(str(record["charged"])) > float(paid), "what was cut off is charged at what it may have cost"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": ASKED}, "model"),
        ({"model": "conductor"}, "messages"),
        ({"model": "conductor", "messages": []}, "messages"),
        ({"model": "conductor", "messages": user_says({"type": "audio"})}, "messages.0.content.0.type"),
        (
            {
                "model": "conductor",
                "messages": user_says({"type": "image_url", "image_url": {"url": "http://127.0.0.1/a"}}),
            },
            "messages.0.content.0.image_url.url",
        ),
        ({"model": "conductor", "messages": ASKED, "n": 2}, "n"),
        ({"model": "conductor", "messages": ASKED, "temperature": "hot"}, "temperature"),
        (
            {"model": "conductor", "messages": ASKED, "tools": [{"type": "web_search"}], "tool_choice": "required"},
            "tool_choice",
        ),
    ],
)
def test_a_wrong_body_gets_an_error_that_names_the_field(tmp_path: Path, body: Any, field: str) -> None:
    with orchestra(tmp_path) as server:
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert not server.planner.sent


def test_what_is_no_request_gets_an_error(tmp_path: Path) -> None:
    with orchestra(tmp_path, body_mb=0.001) as server:
        path = f"{server.url}/v1/chat/completions"
        tries = [(b"{", 400), (b"[]", 400), (b'{"a": NaN}', 400), (b"\xff", 400), (b"x" * 2000, 413)]
        for body, status in tries:
            assert httpx.post(path, content=body).status_code == status
        assert httpx.get(path).status_code == 405
        assert httpx.get(f"{server.url}/v1/nothing").status_code == 404
        assert httpx.get(f"{server.url}/v1/episodes/abc").json()["error"]["code"] == "episode_not_found"


def test_unknown_parameters_and_tools_are_tolerated_and_images_go_along(tmp_path: Path) -> None:
    with orchestra(tmp_path) as server:
        shown = user_says({"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": IMAGE}})
        answer = client(server).chat.completions.create(
            model="conductor", messages=[{"role": "developer", "content": "Be brief."}, *shown],
            extra_body={"unknown": 1, "store": True, "tools": [{"type": "web_search"}, TOOL]},
        )  # fmt: skip
        sent, sampling = server.workers["bert"].sent[0]
    assert answer.choices[0].message.content == "fine"
    assert sent[0].role == "system"
    assert sent[1].parts[0] == {"type": "image_url", "image_url": {"url": IMAGE}}
    assert sampling.body["tools"] == [TOOL]


def test_later_rounds_are_shown_when_they_are_over(tmp_path: Path) -> None:
    plans = iter([PLAN, "model_id = []\nsubtasks = []\naccess_list = []"])
    with orchestra(tmp_path, "thought", ["4", "2"], plan=lambda *_: next(plans), conductor={"max_rounds": 2}) as server:
        chunks = list(client(server).chat.completions.create(model="conductor", messages=ASKED, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert [delta.content for delta in deltas if delta.content] == ["42"]
    assert "The answer stands." in "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)


def test_an_item_that_is_referred_to_is_what_was_said(tmp_path: Path) -> None:
    with orchestra(tmp_path, "thought", "42") as server:
        ask = client(server).responses.create
        first = ask(model="conductor", input="What is 6 * 7?")
        after: Any = [*ASKED, *({"type": "item_reference", "id": item.id} for item in first.output)]
        ask(model="conductor", input=[*after, {"role": "user", "content": "Why?"}])
        sent = [turn.content for turn in server.workers["bert"].sent[-1][0]]
        assert sent[:2] == ["What is 6 * 7?", "42"] and sent[2].startswith("Why?")
        nobodys: Any = [{"type": "item_reference", "id": f"msg_{'0' * 32}"}]
        with pytest.raises(openai.NotFoundError, match="no message"):
            ask(model="conductor", input=[*ASKED, *nobodys])


def test_the_description_names_every_path(tmp_path: Path) -> None:
    with orchestra(tmp_path) as server:
        document = httpx.get(f"{server.url}/openapi.json").json()
        assert json.dumps(document)
        for path in ("/health/live", "/health/ready", "/metrics", "/v1/models"):
            assert path in document["paths"]
            assert httpx.get(f"{server.url}{path}").status_code == 200
