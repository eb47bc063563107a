"""A Conductor as one tool of an MCP server, over stdin and stdout (extra ``mcp``).

In: calls of the tool ``ask``. Out: for each the answer with its bill, or a failure with its code,
and while it is under way a progress notification for the plan and for each step that starts or
ends, where the client asked for them. A call that the client cancels ends all its work. What else
writes to stdout meanwhile ends up on stderr.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import anyio
import mcp_types as mcp
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, ConfigDict, Field

from openconductor.conductor import Conductor
from openconductor.errors import OpenConductorError
from openconductor.events import Event, Planned, StepEnded, StepStarted
from openconductor.serving.apis.wire import Json, failed, least, orchestration, read_body
from openconductor.types import Budget, Episode, Usage

ASK = "ask"
ABOUT = """Ask a team of language models. A conductor plans who does what, and the last of the workers gives the answer.
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


async def serve(conductor: Conductor, budget: Budget, version: str) -> None:
    """Offer the tool until the client closes stdin; no call may cost more than ``budget``."""
    tool = _AskTool(conductor, budget)
    server = Server(
        "openconductor", version=version, on_list_tools=tool.listed, on_call_tool=tool.called
    )
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


class _AskTool:
    """The tool, as the server's handlers; each call is an episode of its own, and several may be under way."""

    def __init__(self, conductor: Conductor, budget: Budget) -> None:
        self._conductor, self._budget = conductor, budget
        self._names = {ordinal: worker.name for ordinal, worker in conductor.pool}
        self._about = ABOUT + ", ".join(self._names.values())

    async def listed(
        self, context: _Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListToolsResult:
        """What the client is offered."""
        tool = mcp.Tool(
            name=ASK, description=self._about, input_schema=ToolInput.model_json_schema()
        )
        return mcp.ListToolsResult(tools=[tool])

    async def called(
        self, context: _Context, params: mcp.CallToolRequestParams
    ) -> mcp.CallToolResult:
        """Answer a call; what fails is a result that says so, for the model of the client to read."""
        if params.name != ASK:
            raise MCPError(mcp.INVALID_PARAMS, f"no tool {params.name!r}; expected {ASK!r}")
        try:
            episode = await self._ask(read_body(ToolInput, params.arguments or {}), context)
        except OpenConductorError as error:
            return self._failure(error, error.episode)
        if episode.answer is None:
            return self._failure(
                episode.error or OpenConductorError("no answer and no error"), episode
            )
        content: Json = {
            "answer": episode.answer,
            "orchestration": orchestration(episode, self._names),
        }
        return mcp.CallToolResult(
            content=[mcp.TextContent(text=episode.answer)], structured_content=content
        )

    async def _ask(self, asked: ToolInput, context: _Context) -> Episode:
        """Answer, and tell of it on the way; whoever cancels this waits until all work has ended."""
        most = self._budget
        pool, max_steps = self._conductor.pool, self._conductor.max_steps
        if asked.workers is not None:
            pool = pool.subset([pool.ordinal_of(name) for name in asked.workers])
        max_steps = min(max_steps, asked.max_steps or max_steps)
        conductor = replace(self._conductor, pool=pool, max_steps=max_steps)
        dollars, seconds = (
            least(most.dollars, asked.max_dollars),
            least(most.seconds, asked.max_seconds),
        )
        budget = Budget(most.calls, most.tokens, dollars, seconds)
        told = _Progress(self._names)
        asking = asyncio.create_task(conductor.ask(asked.question, budget=budget, on_event=told))
        asking.add_done_callback(lambda _: told.news.put_nowait(None))
        try:
            moment = 0
            while (line := await told.news.get()) is not None:
                moment += 1
                await context.session.report_progress(moment, None, line)
            return await asking
        finally:
            asking.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({asking})

    def _failure(self, error: OpenConductorError, episode: Episode | None) -> mcp.CallToolResult:
        """A failure with its code, and with what was spent by then."""
        told = failed(error)
        content: Json = {"error": {"code": told.code, "message": told.message}}
        if episode is not None and episode.rounds:
            content["orchestration"] = orchestration(episode, self._names)
        text = mcp.TextContent(text=f"{told.code}: {told.message}")
        return mcp.CallToolResult(content=[text], structured_content=content, is_error=True)


class _Progress:
    """Takes events in as lines that tell of the plan and the steps; None comes after the last one."""

    wants_text = False

    def __init__(self, names: Mapping[int, str]) -> None:
        self.news: asyncio.Queue[str | None] = asyncio.Queue()
        self._names = names

    def __call__(self, event: Event) -> None:
        if isinstance(event, Planned) and event.workflow is not None:
            steps = (
                ", ".join(self._names[step.worker] for step in event.workflow)
                or "the answer stands"
            )
            self.news.put_nowait(f"planned: {steps}{_cost(event.completion.usage)}")
        elif isinstance(event, StepStarted):
            self.news.put_nowait(f"step {event.step + 1} started: {self._names[event.worker]}")
        elif isinstance(event, StepEnded):
            result = event.result
            how = "ended" if result.error is None else f"failed ({type(result.error).__name__})"
            self.news.put_nowait(
                f"step {event.step + 1} {how}: {self._names[result.asked]}{_cost(result.usage)}"
            )


def _cost(usage: Usage) -> str:
    unknown = f", {usage.unpriced_calls} of unknown price" if usage.unpriced_calls else ""
    return f" ({usage.tokens} tokens, ${usage.dollars:f}{unknown})"
