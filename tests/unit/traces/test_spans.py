"""From the events of an episode to its spans, with the SDK's exporter in memory."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import openconductor as oc
from openconductor.calls.dispatcher import FanOut
from openconductor.protocols import CallContext
from openconductor.testing import PRICE, Scripted
from openconductor.traces import TracesTable, names, open_traces
from openconductor.traces.tracer import Traces
from openconductor.types import Completion, Usage

SECRET = "sk-not-for-a-collector"
PLAN = oc.Workflow(
    (oc.Step(0, "Think.", []), oc.Step(1, "Look.", []), oc.Step(0, "Answer.", [0, 1]))
)
REMOTE = "openai_compatible gpt-5 https://api.openai.com/v1"


@contextmanager
def traced(**table: Any) -> Iterator[tuple[Traces, InMemorySpanExporter]]:
    """Return a sink, and the exporter that gets its spans."""
    exporter = InMemorySpanExporter()
    with open_traces(TracesTable(**table), processor=SimpleSpanProcessor(exporter)) as traces:
        assert traces is not None
        yield traces, exporter


def pool(first: Any = "thought", second: Any = "seen") -> oc.WorkerPool:
    anna = Scripted(first, identity=REMOTE)
    bert = Scripted(second, identity="mcp search https://tools.example:8443/mcp")
    return oc.WorkerPool(
        [oc.Worker(anna, name="anna", price=PRICE), oc.Worker(bert, name="bert", price=PRICE)]
    )


def conductor(*plans: Any, **options: Any) -> oc.Conductor:
    planner = oc.Worker(Scripted(list(plans) or PLAN), name="planner", price=PRICE)
    return oc.Conductor(planner, pool=options.pop("pool", None) or pool(), **options)


def tree(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return the spans as indented lines in the order of their beginnings: names and links."""
    steps = {span.context.span_id: span.attributes.get(names.STEP) for span in spans}
    lines: list[str] = []

    def show(parent: int | None, indent: str) -> None:
        for span in sorted(spans, key=lambda span: (span.start_time, span.end_time)):
            if (None if span.parent is None else span.parent.span_id) == parent:
                seen = [steps[link.context.span_id] for link in span.links]
                failed = span.attributes.get(names.ERROR_TYPE, "")
                lines.append(f"{indent}{span.name} {seen or ''} {failed}".rstrip())
                show(span.context.span_id, f"{indent}  ")

    show(None, "")
    return lines


def by_name(exporter: InMemorySpanExporter, name: str) -> dict[str, Any]:
    """Return the attributes of the last span of this name."""
    spans = [span for span in exporter.get_finished_spans() if span.name == name]
    return dict(spans[-1].attributes or {})


def test_the_golden_tree_of_a_workflow_links_each_step_to_those_that_it_sees() -> None:
    with traced() as (traces, exporter):
        conductor().ask_sync("6 * 7?", on_event=traces.named("conductor", key="ann"))
    spans = exporter.get_finished_spans()
    assert sorted(tree(spans)) == sorted(
        [
            "invoke_workflow conductor",
            "  plan planner",
            "    chat planner",
            "  invoke_agent anna",
            "    chat gpt-5",
            "  invoke_agent bert",
            "    execute_tool search",
            "  invoke_agent anna [0, 1]",
            "    chat gpt-5",
        ]
    )
    root = by_name(exporter, "invoke_workflow conductor")
    assert root.pop("openconductor.episode")
    assert root == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "conductor",
        "openconductor.key": "ann",
    }
    assert by_name(exporter, "plan planner") == {
        "gen_ai.operation.name": "plan",
        "gen_ai.agent.name": "planner",
        "openconductor.valid": True,
    }
    assert by_name(exporter, "invoke_agent anna") == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "anna",
        "openconductor.step": 2,
        "openconductor.access": (0, 1),
    }
    assert by_name(exporter, "chat gpt-5") == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "api.openai.com",
        "openconductor.cost": 0.00002,
    }
    kinds = {span.name: span.kind.name for span in spans}
    assert kinds["chat gpt-5"] == "CLIENT"
    assert kinds["execute_tool search"] == "INTERNAL"


def test_the_sum_over_all_spans_is_the_bill_to_the_token_and_the_cent() -> None:
    used = Usage(100, 40, 20, 5)
    answers = [oc.WorkerTimeout("slow", usage=used), Completion("x", usage=used)]
    workers = oc.WorkerPool(
        [
            oc.Worker(Scripted(answers, identity=REMOTE), name="a", price=PRICE, retries=1),
            oc.Worker(Scripted("free"), name="b"),  # its price is unknown
        ]
    )
    with traced(cost_as="gen_ai.usage.cost") as (traces, exporter):
        episode = conductor(pool=workers).ask_sync("?", on_event=traces)
    kept = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]

    def total(name: str) -> float:
        return sum(attributes.get(name, 0) for attributes in kept)

    usage = episode.usage
    assert episode.answer == "x"
    assert total(names.INPUT_TOKENS) == usage.input_tokens
    assert total(names.CACHED_TOKENS) == usage.cached_tokens
    assert total(names.OUTPUT_TOKENS) == usage.output_tokens
    assert total(names.REASONING_TOKENS) == usage.reasoning_tokens
    assert Decimal(str(round(total(names.COST), 9))) == usage.dollars
    assert total("gen_ai.usage.cost") == total(names.COST)
    (failed,) = [attributes for attributes in kept if names.ERROR_TYPE in attributes]
    assert failed[names.ERROR_TYPE] == "timeout"
    assert names.ATTEMPT not in failed
    priced = {"a": 0, "b": 0}
    for attributes in kept:
        if attributes.get(names.REQUEST_MODEL) == "b":
            priced["b"] += names.COST in attributes
    assert priced["b"] == 0  # an unknown price is not 0


def test_texts_are_sent_on_request_only_and_never_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    question = f"Is {SECRET} café?"
    for content in (False, True):
        with traced(content=content) as (traces, exporter):
            conductor(pool=pool(f"{SECRET} it is")).ask_sync(question, on_event=traces)
        written = repr([span.to_json() for span in exporter.get_finished_spans()])
        assert SECRET not in written
        assert ("[key]" in written) is content
        assert ("Think." in written) is content
    root = by_name(exporter, "invoke_workflow openconductor")
    asked = '[{"role": "user", "parts": [{"type": "text", "content": "Is [key] caf\\u00e9?"}]}]'
    assert root[names.INPUT_MESSAGES] == asked
    assert "[key] it is" in root[names.OUTPUT_MESSAGES]


def test_the_environment_asks_for_texts_and_limits_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "20")
    with traced() as (traces, exporter):
        conductor().ask_sync("6 * 7?", on_event=traces)
    root = by_name(exporter, "invoke_workflow openconductor")
    assert root[names.INPUT_MESSAGES] == '[{"role": "user", "p'


def test_an_episode_whose_texts_are_not_kept_sends_none() -> None:
    context = CallContext(keep_texts=False)
    with traced(content=True) as (traces, exporter):
        conductor().ask_sync("6 * 7?", on_event=traces, context=context)
    spans = exporter.get_finished_spans()
    assert len(spans) == 9
    assert not any(names.INPUT_MESSAGES in (span.attributes or {}) for span in spans)


def test_calls_of_tools_and_images_are_named_in_texts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    question = (
        oc.Message("user", "Add.", (image,)),
        oc.Message("assistant", "", ({"tool_calls": [call]},)),
        oc.Message("tool", "3", ({"tool_call_id": "c1"},)),
    )
    with traced(content=True) as (traces, exporter):
        conductor().ask_sync(question, on_event=traces)
    written = by_name(exporter, "invoke_workflow openconductor")[names.INPUT_MESSAGES]
    assert "base64" not in written
    assert '{"type": "image_url"}' in written
    assert '"name": "add"' in written


# ── where a trace begins and goes ─────────────────────────────────────────────────────────────────
def test_each_attempt_at_a_worker_is_told_of_its_own_span_and_a_nested_one_of_that_above() -> None:
    inner_worker = Scripted("deep")
    inner = oc.Conductor(
        Scripted(oc.Workflow((oc.Step(0, "Answer."),))),
        pool=oc.WorkerPool([oc.Worker(inner_worker, name="i")]),
    )
    outer = Scripted([oc.ServerFailed("busy", retryable=True), "x"], remote=False)
    workers = oc.WorkerPool([oc.Worker(outer, name="a", retries=1), oc.Worker(inner, name="b")])
    with traced() as (traces, exporter):
        conductor(pool=workers).ask_sync("?", on_event=traces)
    spans = {span.context.span_id: span for span in exporter.get_finished_spans()}
    told = [call.context.trace for call in outer.calls]
    assert [spans[one.span].name for one in told] == ["chat a"] * len(told)
    assert len({one.span for one in told}) == len(told) == 3
    (below,) = [call.context.trace for call in inner_worker.calls]
    assert spans[below.span].name == "invoke_workflow b"
    assert {one.trace for one in (*told, below)} == {
        span.context.trace_id for span in spans.values()
    }


def test_a_trace_begins_at_the_headers_of_a_request_or_at_the_current_span() -> None:
    above = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with traced() as (traces, exporter):
        named = traces.named("conductor", headers={"traceparent": above, "tracestate": "a=b"})
        conductor().ask_sync("?", on_event=named)
        root = next(span for span in exporter.get_finished_spans() if "workflow" in span.name)
        assert f"{root.context.trace_id:032x}" == above[3:35]
        assert f"{root.parent.span_id:016x}" == above[36:52]
        assert root.context.trace_state.to_header() == "a=b"
        exporter.clear()
        with TracerProvider().get_tracer("app").start_as_current_span("app") as current:
            conductor().ask_sync("?", on_event=traces)
        root = next(span for span in exporter.get_finished_spans() if "workflow" in span.name)
        assert root.parent.span_id == current.get_span_context().span_id
        exporter.clear()
        conductor().ask_sync("?", on_event=traces.named("c", headers={"traceparent": "00-bad"}))
        root = next(span for span in exporter.get_finished_spans() if "workflow" in span.name)
        assert root.parent is None


def test_a_trace_that_is_not_sampled_records_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planner = Scripted(PLAN)
    for variable, value, headers in (
        ("OTEL_TRACES_SAMPLER", "always_off", {}),
        ("OTEL_SDK_DISABLED", "true", {}),
        ("OTEL_SDK_DISABLED", "TRUE", {}),
        ("OTEL_TRACES_EXPORTER", "None", {}),
        ("OTEL_SERVICE_NAME", "x", {"traceparent": f"00-{'1' * 32}-{'2' * 16}-00"}),
    ):
        monkeypatch.setenv(variable, value)
        with traced() as (traces, exporter):
            sink = traces.named("conductor", headers=headers)
            oc.Conductor(planner, pool=pool()).ask_sync("?", on_event=sink)
        monkeypatch.delenv(variable)
        assert exporter.get_finished_spans() == ()
        told = planner.calls[-1].context.trace
        assert told is not None
        assert told.traceparent.endswith("-00")


def test_a_process_has_the_name_that_the_environment_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for expected in ("openconductor", "router"):
        with traced() as (traces, exporter):
            conductor().ask_sync("?", on_event=traces)
        (resource,) = {span.resource for span in exporter.get_finished_spans()}
        assert resource.attributes["service.name"] == expected
        assert resource.attributes["service.version"] == oc.__version__
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=router")


# ── what fails ────────────────────────────────────────────────────────────────────────────────────
def test_a_text_that_is_no_workflow_is_a_plan_that_failed() -> None:
    with traced() as (traces, exporter):
        conductor("no lists").ask_sync("?", on_event=traces)
    assert tree(exporter.get_finished_spans()) == [
        "invoke_workflow openconductor  missing_list",
        "  plan planner  missing_list",
        "    chat planner",
    ]
    assert by_name(exporter, "plan planner")[names.VALID] is False


def test_a_worker_that_fails_fails_its_step_and_its_episode() -> None:
    with traced() as (traces, exporter):
        workers = pool(oc.Refused("no"))
        conductor(oc.Workflow((oc.Step(0, "Answer."),)), pool=workers).ask_sync(
            "?", on_event=traces
        )
    lines = tree(exporter.get_finished_spans())
    assert "  invoke_agent anna  refused" in lines
    assert lines[0] == "invoke_workflow openconductor  refused"


def test_a_planner_that_fails_has_a_plan_that_never_came() -> None:
    with traced() as (traces, exporter):
        conductor(oc.AuthFailed("no key"), on_no_plan="default_worker").ask_sync(
            "?", on_event=traces
        )
    lines = tree(exporter.get_finished_spans())
    assert "  plan planner  auth_failed" in lines
    assert lines[0] == "invoke_workflow openconductor"


async def test_an_episode_that_is_cancelled_is_recorded_with_all_that_was_under_way() -> None:
    started = asyncio.Event()

    async def hang(call: Any) -> str:
        started.set()
        await asyncio.sleep(math.inf)
        return ""

    with traced() as (traces, exporter):
        asking = asyncio.create_task(
            conductor(pool=pool(second=hang)).ask("?", on_event=FanOut(traces))
        )
        await started.wait()
        asking.cancel()
        await asyncio.wait([asking])
    lines = tree(exporter.get_finished_spans())
    assert lines[0] == "invoke_workflow openconductor  cancelled"
    assert "  invoke_agent bert  cancelled" in lines
    assert "    execute_tool search  cancelled" in lines
    assert traces._live == {}


def test_times_are_those_of_the_clock_and_children_lie_within_their_parents() -> None:
    before = time.time_ns()
    with traced() as (traces, exporter):
        conductor().ask_sync("?", on_event=traces)
    spans = {span.context.span_id: span for span in exporter.get_finished_spans()}
    slack = 1_000_000  # the loop's clock and that of the day are read one after the other
    for span in spans.values():
        assert before - slack <= span.start_time <= span.end_time <= time.time_ns() + slack
        if span.parent is not None:
            above = spans[span.parent.span_id]
            assert above.start_time - slack <= span.start_time
            assert span.end_time <= above.end_time + slack


def test_without_a_table_there_is_no_sink_and_nothing_is_imported() -> None:
    with open_traces(None) as traces:
        assert traces is None
