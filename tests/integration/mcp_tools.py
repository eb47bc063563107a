"""A tiny MCP server: ``python mcp_tools.py`` speaks over stdio, ``serving`` over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import TextContent

LONGEST = 20.0  # seconds

server = MCPServer("tools", log_level="CRITICAL")


@server.tool()
def shout(text: str, marks: int = 1) -> str:
    """The text in capitals."""
    return text.upper() + "!" * marks


@server.tool()
def join(left: str, right: str) -> str:
    """Two texts in a row."""
    return left + right


@server.tool()
def count(number: int) -> int:
    """One more."""
    return number + 1


@server.tool()
def process(text: str) -> str:
    """This process, and the value of a variable of its environment."""
    return f"{os.getpid()} {os.environ.get(text, 'is not set')}"


@server.tool()
async def sleep(text: str) -> str:
    """The text, late."""
    await asyncio.sleep(LONGEST)
    return text


@server.tool()
def fail(text: str) -> str:
    """Nothing: it fails."""
    raise ValueError(f"cannot do {text}")


@server.tool()
def die(text: str) -> str:
    """Nothing: its process ends."""
    os._exit(3)


@server.tool()
def draw(text: str) -> list[TextContent | Image]:
    """Words and a picture."""
    return [
        TextContent(type="text", text=text),
        Image(data=b"\0", format="png"),
        TextContent(type="text", text="done"),
    ]


@server.tool(structured_output=False)
def nothing(text: str) -> str:
    """A blank."""
    return " "


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """The same tools over streamable HTTP on a free port of 127.0.0.1; gives the URL."""
    import uvicorn

    app = server.streamable_http_app()
    http = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(http.serve())
    try:
        while not http.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = http.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        http.should_exit = True
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)


if __name__ == "__main__":
    server.run("stdio")
