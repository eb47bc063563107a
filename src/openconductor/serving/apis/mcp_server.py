"""A Conductor as one tool of an MCP server, over stdin and stdout (extra ``mcp``).

Each call of the tool ``ask`` is an episode. Clients that ask for progress are notified of the plan
and of each step. A call that the client cancels ends all its work. The transport owns stdout, and
what else is written there goes to stderr.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, cast

import anyio
import mcp_types as mcp
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, ConfigDict, Field

from openconductor.calls.budget import RunBudget
from openconductor.calls.dispatcher import FanOut
from openconductor.calls.options import least
from openconductor.conductor import Conductor
from openconductor.errors import OpenConductorError
from openconductor.events import Chosen, Event, Planned, StepEnded, StepStarted
from openconductor.protocols import CallContext, OnEvent
from openconductor.serving.apis.wire import Json, orchestration, read_body, request_failure
from openconductor.types import Budget, Episode, Usage

if TYPE_CHECKING:
    from openconductor.traces.tracer import Traces

ASK = "ask"
ABOUT = """\
Ask a team of language models. A conductor plans who does what, and the last of the workers gives \
the answer.
Say all that matters in the question: nobody sees this conversation. The workers: """
_Context = ServerRequestContext[dict[str, Any]]


class ToolInput(BaseModel):
    """The arguments of a call."""

    model_config = ConfigDict(extra="forbid")

    question: Annotated[
        str, Field(description="What is asked, with all that is needed to answer it.")
    ]
    workers: Annotated[
        list[str] | None, Field(min_length=1, description="Who may be asked, by name.")
    ] = None
    max_dollars: Annotated[
        Decimal | None, Field(ge=0, description="The most that it may cost, in US dollars.")
    ] = None
    max_seconds: Annotated[float | None, Field(gt=0, description="The most that it may take.")] = (
        None
    )
    max_steps: Annotated[int | None, Field(ge=1, description="The most steps of a plan.")] = None


async def serve(
    conductor: Conductor,
    budget: Budget,
    version: str,
    *,
    total: Budget | None = None,
    store: OnEvent | None = None,
    traces: Traces | None = None,
) -> None:
    """Offer the tool until the client closes stdin.

    Args:
        conductor: answers.
        budget: the most that one answer may cost.
        version: the version of this package.
        total: the most that all answers together may cost; None: no limit.
        store: keeps all calls.
        traces: records the spans of each answer. None: nobody does.
    """
    total_budget = RunBudget(total or Budget())
    total_budget.option = "--total-{limit}"
    tool = _AskTool(conductor, budget, total_budget, store, traces)
    server = Server(
        "openconductor", version=version, on_list_tools=tool.list_tools, on_call_tool=tool.call
    )
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


class _AskTool:
    """The tool, as the handlers of the server. Several calls may run at once."""

    def __init__(
        self,
        conductor: Conductor,
        budget: Budget,
        total: RunBudget,
        store: OnEvent | None,
        traces: Traces | None,
    ) -> None:
        self._conductor = conductor
        self._budget = budget
        self._context = CallContext(budget=total)
        self._store = store
        self._traces = traces
        self._names = conductor.pool.names

    async def list_tools(
        self, context: _Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListToolsResult:
        """Return the one tool."""
        about = ABOUT + ", ".join(self._names.values())
        schema = ToolInput.model_json_schema()
        return mcp.ListToolsResult(
            tools=[mcp.Tool(name=ASK, description=about, input_schema=schema)]
        )

    async def call(
        self, context: _Context, params: mcp.CallToolRequestParams
    ) -> mcp.CallToolResult:
        """Answer a call. A failure is a result too, for the client's model to read."""
        if params.name != ASK:
            raise MCPError(mcp.INVALID_PARAMS, f"no tool {params.name!r}; the tool is {ASK!r}")
        try:
            episode = await self._ask(read_body(ToolInput, params.arguments or {}), context)
        except OpenConductorError as error:
            return self._failure(error, error.episode)
        if episode.answer is None:
            error = episode.error or OpenConductorError("no answer and no error")
            return self._failure(error, episode)
        content: Json = {
            "answer": episode.answer,
            "orchestration": orchestration(episode, self._names),
        }
        text = mcp.TextContent(text=episode.answer)
        return mcp.CallToolResult(content=[text], structured_content=content)

    async def _ask(self, given: ToolInput, context: _Context) -> Episode:
        """Answer, and report progress; a cancellation waits until all work has ended."""
        conductor = self._conductor
        if given.workers is not None:
            ordinals = [conductor.pool.ordinal_of(name) for name in given.workers]
            conductor = replace(conductor, pool=conductor.pool.subset(ordinals))
        if given.max_steps is not None:
            conductor = replace(conductor, max_steps=min(conductor.max_steps, given.max_steps))
        budget = replace(
            self._budget,
            dollars=least(self._budget.dollars, given.max_dollars),
            seconds=least(self._budget.seconds, given.max_seconds),
        )
        progress = _Progress(self._names)
        traces = None
        if self._traces is not None:
            headers = cast("Mapping[str, str]", context.meta or {})
            traces = self._traces.named(ASK, headers=headers)
        sinks = [sink for sink in (self._store, traces, progress) if sink is not None]
        answer = conductor.ask(
            given.question, budget=budget, on_event=FanOut(*sinks), context=self._context
        )
        ask = asyncio.create_task(answer)
        ask.add_done_callback(lambda _: progress.lines.put_nowait(None))
        try:
            count = 0
            while True:
                line = await progress.lines.get()
                if line is None:
                    return await ask
                count += 1
                await context.session.report_progress(count, None, line)
        finally:
            ask.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({ask})

    def _failure(self, error: OpenConductorError, episode: Episode | None) -> mcp.CallToolResult:
        """Return a failure with its code, and with the costs until then."""
        failure = request_failure(error)
        content: Json = {"error": {"code": failure.code, "message": failure.message}}
        if episode is not None and episode.rounds:
            content["orchestration"] = orchestration(episode, self._names)
        text = mcp.TextContent(text=f"{failure.code}: {failure.message}")
        return mcp.CallToolResult(content=[text], structured_content=content, is_error=True)


class _Progress:
    """Queues a line for the plan and for each step; None comes after the last one."""

    wants_text = False

    def __init__(self, names: Mapping[int, str]) -> None:
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._names = names

    def __call__(self, event: Event) -> None:
        match event:
            case Planned() if event.workflow is not None:
                names = [self._names[step.worker] for step in event.workflow]
                plan = ", ".join(names) or "the answer stands"
                line = f"planned: {plan}{_cost(event.completion.usage)}"
            case Chosen():
                names = [self._names[step.worker] for step in event.workflow]
                line = f"without a plan: {', '.join(names)}"
            case StepStarted():
                line = f"step {event.step + 1} started: {self._names[event.worker]}"
            case StepEnded():
                result = event.result
                ending = "ended"
                if result.error is not None:
                    ending = f"failed ({type(result.error).__name__})"
                worker = self._names[result.asked]
                line = f"step {event.step + 1} {ending}: {worker}{_cost(result.usage)}"
            case _:
                return
        self.lines.put_nowait(line)


def _cost(usage: Usage) -> str:
    unknown = f", {usage.unpriced_calls} of unknown price" if usage.unpriced_calls else ""
    return f" ({usage.tokens} tokens, ${usage.dollars:f}{unknown})"
