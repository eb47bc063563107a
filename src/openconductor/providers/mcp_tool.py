"""A tool of an MCP server as a worker (extra ``mcp``). In: turns. Out: what the tool answered, as text.

Through the official SDK. The text of the last user's turn, or the subtask alone, is one argument of
the tool; ``Sampling.body`` holds further ones. A server's session is opened at the first call and
kept, one an event loop, by a task of its own (the SDK's contexts must be left by the task that
entered them); what breaks it is a failure of the calls that it carried, and the next call opens
another.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Literal, cast

import anyio
import httpx2
import mcp_types
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from openconductor import errors
from openconductor.config import nearest, one_of
from openconductor.privacy import MARK, SHORTEST, forms
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.providers import http
from openconductor.providers.chat_failures import excerpt, failure, key_of
from openconductor.providers.chat_wire import plain
from openconductor.types import Completion, Message, Sampling, Usage

MOST_PAGES = 100  # of a server's list of tools
KEPT_BYTES = 4096  # of the end of what a server wrote to its standard error

_STREAM = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
_BROKEN = (MCPError, OSError, ValueError, RuntimeError, httpx2.HTTPError, ExceptionGroup, *_STREAM)
"""What the SDK raises of a server, a session or a call."""


class _Session:
    """An open session with a server, or one that is being opened; ``hold`` keeps it until it is to be closed."""

    def __init__(self, hold: Callable[[_Session], Coroutine[None, None, None]]) -> None:
        self.opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.opened.add_done_callback(
            lambda opened: opened.cancelled() or opened.exception()
        )  # nobody may wait for it
        self.closing = asyncio.Event()
        self.schema: Mapping[str, object] = {}
        self.status = 0  # of the last HTTP response that refused a request
        self.owner = asyncio.create_task(hold(self))

    async def aclose(self) -> None:
        """Close it, and wait until its server has ended."""
        self.closing.set()
        await asyncio.wait({self.owner})


class _Tail:
    """Reads what a server writes to its standard error, all of it, and keeps the end."""

    def __init__(self, secrets: Iterable[str]) -> None:
        reader, writer = os.pipe()
        self.errlog = os.fdopen(writer, "w")
        self._kept, self._secrets = b"", [secret for secret in secrets if len(secret) >= SHORTEST]
        self._thread = threading.Thread(
            target=self._read, args=(reader,), name="openconductor-mcp", daemon=True
        )
        self._thread.start()

    def _read(self, reader: int) -> None:
        with os.fdopen(reader, "rb", 0) as pipe:
            while piece := pipe.read(KEPT_BYTES):
                self._kept = (self._kept + piece)[-KEPT_BYTES:]

    def words(self) -> str:
        """The end of it, once the server is gone, without the values that it was given; "" where it wrote nothing."""
        self.errlog.close()
        self._thread.join(0.5)  # something that the server has left behind may hold the pipe open
        text = self._kept.decode("utf-8", "replace")
        for form in (form for secret in self._secrets for form in forms(secret)):
            text = text.replace(form, MARK)
        text = excerpt(text, end=True)
        return f"; its standard error ends in: {text}" if text else ""


class McpToolProvider(http.Closing, Provider):
    """Calls one tool of a server, over stdio or streamable HTTP.

    Nothing is known about tokens or price. A session is closed by ``aclose``, at the end of ``async
    with``, or else when ``asyncio.run`` (or whoever runs the event loop) cancels the tasks that are
    left; a cancelled call leaves it open. A step's subtask is the text of its last turn; where it
    sees no other step, the question stands before it, unless ``send`` is ``subtask``.

    Args:
        tool: the tool's name at the server.
        command: starts a server that speaks over its standard input and output: a program and its
            arguments. It gets the few environment variables that it needs to run (PATH, HOME …) and
            those in ``env``; what it writes to its standard error is kept from the terminal, and
            its end is shown where the server does not start.
        url: where a server speaks streamable HTTP; exactly one of ``command`` and ``url`` is given.
        argument: the tool's argument that gets the text; None: the only required one that is a
            string.
        send: what that text is: the last ``turn``, or the step's ``subtask`` alone (the last turn,
            where no step asks).
        api_key_env: the environment variable whose value goes to ``url`` as a bearer token; None is
            none.
        env: further environment variables that ``command`` gets, by name.
        timeout_s: total deadline of a call, in seconds; None is none. ``call.deadline`` holds
            beside it.

    Attributes:
        tool: as given.
        identity: what stands behind a worker's name; a command's arguments, which may hold what is
            private, are in it as a digest.
        remote: whether the server is behind a network.

    Raises:
        ConfigError: an option is wrong, or both or none of ``command`` and ``url`` are given.
    """

    def __init__(
        self,
        tool: str,
        *,
        command: Sequence[str] | None = None,
        url: str | None = None,
        argument: str | None = None,
        send: Literal["turn", "subtask"] = "turn",
        api_key_env: str | None = None,
        env: Sequence[str] = (),
        timeout_s: float | None = 600.0,
    ) -> None:
        if (command is None) == (url is None):
            raise errors.ConfigError(
                "command, url: expected exactly one of a server's command and its URL"
            )
        self.tool = http.checked_name(tool, "a tool's name at the server")
        self._command = None if command is None else _checked_command(command)
        self._url = None if url is None else http.checked_url(url)
        self._argument = argument
        self._send = one_of("send", send, ("turn", "subtask"))
        self.api_key_env = http.checked_variable(api_key_env)
        self._env = tuple(cast(str, http.checked_variable(name)) for name in env)
        if self._url is None and self.api_key_env is not None:
            raise errors.ConfigError(
                "api_key_env: a command gets its keys by `env`, expected none beside `command`"
            )
        self._timeout_s = http.checked_seconds("timeout_s", timeout_s)
        self._held = http.PerLoop(lambda: _Session(self._hold), _Session.aclose)
        self.remote = self._url is not None
        self.identity = f"mcp {self.tool} {self._server}"
        if self._send == "subtask":
            self.identity += " subtask"

    @property
    def _server(self) -> str:
        if self._command is None:
            return cast(str, self._url)
        digest = hashlib.blake2b("\0".join(self._command).encode(), digest_size=4).hexdigest()
        return f"{self._command[0]}#{digest}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tool!r} of {self._server})"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Call the tool; ``on_text`` gets the answer in one piece, ``body_sent`` is the call's name and arguments.

        Texts of the answer are joined by line breaks; of images and other media there is a note of
        their kind.

        Raises:
            WorkerError: of the kinds below; the tool itself failed (not retryable).
            ConfigError: the server has no such tool; ``argument`` is none of its, or none is named
                and it has not exactly one that is required and a string.
            Rejected: the turn has parts (images); the server refuses the arguments.
            AuthFailed, RateLimited, ServerFailed: the HTTP server said so.
            Unreachable: no server; ConnectionLost: it went away; WorkerTimeout: the deadline
                passed.
            MalformedResponse: it does not speak MCP; EmptyResponse: the tool answered nothing.
        """
        started = time.perf_counter()
        async with http.attempt(
            f"tool {self.tool!r} of {self._server}", self._timeout_s, call.deadline
        ):
            subtask = call.subtask if self._send == "subtask" else None
            arguments, text = await self._call(
                messages if subtask is None else [Message("user", subtask)], sampling
            )
        if on_text is not None:
            on_text(text)
        usage = Usage(seconds=time.perf_counter() - started)
        return Completion(text, usage=usage, body_sent={"name": self.tool, "arguments": arguments})

    async def _call(
        self, messages: Sequence[Message], sampling: Sampling
    ) -> tuple[dict[str, object], str]:
        """(arguments, answer) of one call."""
        turn = next(
            (message for message in reversed(messages) if message.role == "user"),
            Message("user", ""),
        )
        if turn.parts:
            raise errors.Rejected("got a turn with parts (images), expected text alone")
        held = await self._held.get()
        if held.closing.is_set() or held.owner.done():
            await self.aclose()
            held = await self._held.get()
        client = await asyncio.shield(held.opened)  # others may wait for it too
        arguments = plain(sampling.body)
        arguments[self._argument_of(held.schema, arguments)] = turn.content
        held.status = 0
        try:
            result = await client.call_tool(self.tool, arguments)
        except _BROKEN as error:
            failed = _failed(error, held.status)
        else:
            return arguments, _answer(result)
        if isinstance(failed, errors.ConnectionLost):
            held.closing.set()
        raise failed

    def _argument_of(self, schema: Mapping[str, object], given: Mapping[str, object]) -> str:
        """The argument that gets the text."""
        properties = cast("Mapping[str, Mapping[str, object]]", schema.get("properties") or {})
        if self._argument is not None:
            if properties and self._argument not in properties:
                raise errors.ConfigError(
                    f"tool {self.tool!r}: no argument {self._argument!r}; the nearest is "
                    f"{nearest(self._argument, list(properties))!r}"
                )
            return self._argument
        required = [
            name
            for name in cast("Sequence[str]", schema.get("required") or ())
            if name not in given
        ]
        texts = [name for name in required if properties.get(name, {}).get("type") == "string"]
        if len(texts) != 1:
            listed = ", ".join(properties) or "none"
            raise errors.ConfigError(
                f"tool {self.tool!r}: {len(texts)} required arguments are strings ({', '.join(texts) or 'none'}), "
                f"expected one, or `argument` to name one of its arguments ({listed})"
            )
        return texts[0]

    # ── the session ───────────────────────────────────────────────────────────────────────────────
    async def _hold(self, held: _Session) -> None:
        """Open a session, keep it until it is to be closed, and close it; its failures are those of its calls."""
        passed = {name: os.environ[name] for name in self._env if name in os.environ}
        tail = None if self._command is None else _Tail(passed.values())
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(http.CONNECT_SECONDS):
                    if self._command is not None and tail is not None:
                        server = StdioServerParameters(
                            command=self._command[0], args=[*self._command[1:]], env=passed
                        )
                        transport = stdio_client(server, errlog=tail.errlog)
                    else:
                        client = await stack.enter_async_context(
                            _http_client(held, self.api_key_env)
                        )
                        transport = streamable_http_client(cast(str, self._url), http_client=client)
                    client = await stack.enter_async_context(Client(transport))
                    held.schema = cast(
                        "Mapping[str, object]", (await self._described(client)).input_schema
                    )
                held.opened.set_result(client)
                await held.closing.wait()
        except _BROKEN as error:
            if not held.opened.done():
                failed = _failed(error, held.status, opening=True)
                if tail is not None and isinstance(failed, errors.WorkerError):
                    failed.message += tail.words()
                held.opened.set_exception(failed)
        finally:
            if tail is not None:
                tail.errlog.close()
            if not held.opened.done():
                held.opened.set_exception(
                    errors.Unreachable("the session was ended before it was open")
                )

    async def _described(self, client: Client) -> mcp_types.Tool:
        """The tool as the server describes it, or a ConfigError."""
        names: list[str] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                if tool.name == self.tool:
                    return tool
                names.append(tool.name)
            cursor = page.next_cursor
            if cursor is None:
                break
        near = f"; the nearest is {nearest(self.tool, names)!r}" if names else ""
        raise errors.ConfigError(f"model: {self._server} has no tool {self.tool!r}{near}")


def _failed(error: Exception, status: int, *, opening: bool = False) -> errors.OpenConductorError:
    """What an error of the SDK means; ``status`` is that of an HTTP response that refused, 0 where there was none."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    if isinstance(error, errors.OpenConductorError):
        return error
    if status:
        return failure(status, b"")
    words = excerpt(f"{type(error).__name__}: {error}")
    if isinstance(error, MCPError):  # the server, or the SDK in its place, says so
        if error.code == mcp_types.REQUEST_TIMEOUT:
            return errors.WorkerTimeout(words)
        if error.code == mcp_types.INTERNAL_ERROR:
            return errors.ServerFailed(words, status=None)
        if error.code == mcp_types.CONNECTION_CLOSED:
            return (
                errors.Unreachable(f"the server went away: {words}")
                if opening
                else errors.ConnectionLost(words)
            )
        if not (opening or error.code == mcp_types.PARSE_ERROR):
            return errors.Rejected(words)
    elif isinstance(error, TimeoutError):
        return errors.Unreachable(f"no session within {http.CONNECT_SECONDS} s")
    elif not isinstance(error, ValueError):
        if not opening:
            return errors.ConnectionLost(f"the session broke: {words}")
        absent = isinstance(error, FileNotFoundError | PermissionError)
        return errors.Unreachable(f"no server: {words}", retryable=not absent)
    return errors.MalformedResponse(f"it does not speak MCP: {words}")


def _answer(result: mcp_types.CallToolResult) -> str:
    """The text of an answer."""
    text = "\n".join(_text_of(block) for block in result.content)
    if result.is_error:
        raise errors.WorkerError(f"it reported an error: {excerpt(text)}", retryable=False)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if not text.strip():
        raise errors.EmptyResponse("it answered nothing")
    return text


def _text_of(block: mcp_types.ContentBlock) -> str:
    if isinstance(block, mcp_types.TextContent):
        return block.text
    if isinstance(block, mcp_types.EmbeddedResource):
        resource = block.resource
        return (
            resource.text
            if isinstance(resource, mcp_types.TextResourceContents)
            else f"[{resource.uri}]"
        )
    return f"[{block.uri}]" if isinstance(block, mcp_types.ResourceLink) else f"[{block.mime_type}]"


def _http_client(held: _Session, variable: str | None) -> httpx2.AsyncClient:
    """The HTTP client of a session; it notes the statuses that the SDK keeps to itself."""

    async def note(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            held.status = response.status_code

    key = key_of(variable)
    headers = {"User-Agent": "openconductor"} | ({"Authorization": f"Bearer {key}"} if key else {})
    timeout = httpx2.Timeout(None, connect=http.CONNECT_SECONDS)  # a call's deadline ends it
    return httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [note]})


def _checked_command(command: object) -> tuple[str, ...]:
    words = cast("Sequence[object]", command) if isinstance(command, list | tuple) else ()
    if not words or not all(isinstance(word, str) and word for word in words):
        raise errors.ConfigError(
            f"command: got {command!r}, expected a list of a program and its arguments"
        )
    return cast("tuple[str, ...]", tuple(words))
