"""A tool of an MCP server as a worker (extra ``mcp``), through the official SDK.

The text of the last user's turn, or the subtask alone, is one argument of the tool;
``Sampling.body`` holds further ones. The first call opens a session with the server, one an event
loop. A task of its own keeps it, because the SDK's contexts must be left by the task that entered
them. An error that breaks the session is a failure of the calls that it carried, and the next call
opens another.
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
from openconductor.providers.wire import http
from openconductor.providers.wire.chat import plain
from openconductor.providers.wire.failures import excerpt, failure, key_of
from openconductor.providers.wire.http_settings import HttpSettings
from openconductor.types import Completion, Message, Sampling, Usage

MOST_PAGES = 100  # of a server's list of tools
KEPT_BYTES = 4096  # of the end of a server's standard error

_STREAM = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
# Errors that the SDK raises for a server, a session or a call.
_BROKEN = (MCPError, OSError, ValueError, RuntimeError, httpx2.HTTPError, ExceptionGroup, *_STREAM)


class _Session:
    """A session with a server, open or being opened, which a task of its own keeps.

    Attributes:
        opened: the SDK's client, once the session is open.
        closing: set to end the session.
        schema: JSON Schema of the tool's arguments.
        status: of the last HTTP response that refused a request; 0: none did.
        owner: the task that runs ``hold``.
    """

    def __init__(self, hold: Callable[[_Session], Coroutine[None, None, None]]) -> None:
        self.opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # asyncio complains of an exception that nobody took; maybe nobody waits.
        self.opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        self.closing = asyncio.Event()
        self.schema: Mapping[str, object] = {}
        self.status = 0
        self.owner = asyncio.create_task(hold(self))

    @property
    def ended(self) -> bool:
        """True if no further call can use it."""
        return self.closing.is_set() or self.owner.done()

    async def aclose(self) -> None:
        """Close the session, and wait until its server has ended."""
        self.closing.set()
        await asyncio.wait({self.owner})


class _Tail:
    """Reads all of a server's standard error in a thread, and keeps the end."""

    def __init__(self, secrets: Iterable[str]) -> None:
        reader, writer = os.pipe()
        self.errlog = os.fdopen(writer, "w")
        self._kept = b""
        self._secrets = [secret for secret in secrets if len(secret) >= SHORTEST]
        self._thread = threading.Thread(
            target=self._read, args=(reader,), name="openconductor-mcp", daemon=True
        )
        self._thread.start()

    def _read(self, reader: int) -> None:
        with os.fdopen(reader, "rb", 0) as pipe:
            while piece := pipe.read(KEPT_BYTES):
                self._kept = (self._kept + piece)[-KEPT_BYTES:]

    def describe(self) -> str:
        """Return the end of it for a message, without the secrets, once the server is gone."""
        self.errlog.close()
        self._thread.join(0.5)  # a process that the server left behind may hold the pipe open
        text = self._kept.decode("utf-8", "replace")
        for secret in self._secrets:
            for form in forms(secret):
                text = text.replace(form, MARK)
        text = excerpt(text, end=True)
        return f"; its standard error ends in: {text}" if text else ""


class McpToolProvider(http.Closing, Provider):
    """Calls one tool of a server, over stdio or streamable HTTP.

    Tokens and price are unknown. A session is closed by ``aclose``, at the end of ``async with``,
    or else when ``asyncio.run`` (or another runner of the event loop) cancels the tasks that are
    left. A cancelled call leaves it open. ``identity`` holds a digest of a command's arguments,
    which may be private.

    Args:
        tool: the tool's name at the server.
        command: a program and its arguments, which start a server that speaks over its standard
            input and output. It gets the few environment variables that it needs to run (PATH, HOME
            …) and those in ``env``. Its standard error does not reach the terminal; if the server
            does not start, the error shows the end of it.
        url: address of a server that speaks streamable HTTP. Exactly one of ``command`` and
            ``url`` is given.
        argument: the tool's argument that gets the text. None: the only required one that is a
            string.
        send: the text that is sent: the last ``turn`` (a step's subtask, behind the question where
            the step sees no other step), or the ``subtask`` alone (the last turn, where no step
            asks).
        api_key_env: the environment variable whose value goes to ``url`` as a bearer token. None:
            no token.
        headers, query, proxy, client_cert: as ``HttpSettings`` takes them, for ``url``.
        env: further environment variables that ``command`` gets, by name.
        timeout_s: total deadline of a call, in seconds. None: no limit. ``call.deadline`` holds
            beside it.

    Attributes:
        tool: as given.

    Raises:
        ConfigError: an option is invalid, or both or neither of ``command`` and ``url`` are given.
    """

    def __init__(  # noqa: PLR0913 - each is a key of a pool file
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
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        proxy: str | None = None,
        client_cert: str | Sequence[str] | None = None,
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
        self._settings = HttpSettings(headers, query, proxy, client_cert, logs_addresses=True)
        self.variables = self._settings.variables
        if self._url is None and self._settings:
            raise errors.ConfigError(
                "headers, query, proxy, client_cert: expected none of them beside `command`"
            )
        self._timeout_s = http.checked_seconds("timeout_s", timeout_s)
        self._held = http.PerLoop(lambda: _Session(self._hold), _Session.aclose)
        self.remote = self._url is not None
        self.identity = f"mcp {self.tool} {self._server}"
        if self._send == "subtask":
            self.identity += " subtask"
        if self._settings.identity:
            self.identity += f" {self._settings.identity}"

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
        """Call the tool; ``on_text`` gets the answer in one piece.

        Texts of the answer are joined by line breaks; images and other media become a note of their
        kind. ``body_sent`` holds the tool's name and arguments.

        Raises:
            WorkerError: of the kinds below; the tool itself failed (not retryable).
            ConfigError: the tool or its ``argument`` is unknown, or no argument is named and not
                exactly one is required and a string.
            Rejected: the turn has parts (images), or the server refuses the arguments.
            AuthFailed, RateLimited, ServerFailed: the HTTP server said so.
            Unreachable: no server. ConnectionLost: it went away. WorkerTimeout: the deadline
                passed.
            MalformedResponse: it does not speak MCP. EmptyResponse: the tool answered nothing.
        """
        started = time.perf_counter()
        turn = _last_turn(messages)
        if self._send == "subtask" and call.subtask is not None:
            turn = Message("user", call.subtask)
        where = f"tool {self.tool!r} of {self._server}"
        async with http.attempt(where, self._timeout_s, call.deadline):
            if turn.parts:
                raise errors.Rejected("got a turn with parts (images), expected text alone")
            meta = None if call.trace is None else {"traceparent": call.trace.traceparent}
            arguments, answer = await self._call(turn.content, plain(sampling.body), meta)
        if on_text is not None:
            on_text(answer)
        usage = Usage(seconds=time.perf_counter() - started)
        sent = {"name": self.tool, "arguments": arguments}
        return Completion(answer, usage=usage, body_sent=sent)

    async def _call(
        self, text: str, arguments: dict[str, object], meta: dict[str, str] | None
    ) -> tuple[dict[str, object], str]:
        """Call the tool; return all its arguments, and its answer.

        ``meta`` goes into the request's ``_meta``, where MCP servers look for a trace.
        """
        session = await self._held.get()
        if session.ended:
            await self.aclose()
            session = await self._held.get()
        client = await asyncio.shield(session.opened)  # others may wait for it too
        arguments[self._choose_argument(session.schema, arguments)] = text
        session.status = 0
        try:
            request_meta = cast("mcp_types.RequestParamsMeta | None", meta)
            result = await client.call_tool(self.tool, arguments, meta=request_meta)
        except _BROKEN as error:
            failed = _failure(error, session.status)
        else:
            return arguments, _answer(result)
        if isinstance(failed, errors.ConnectionLost):
            session.closing.set()
        raise failed  # out here, so that no error of the SDK is its context

    def _choose_argument(self, schema: Mapping[str, object], given: Mapping[str, object]) -> str:
        """Return the argument that gets the text; raise ConfigError if there is none."""
        properties = cast("Mapping[str, Mapping[str, object]]", schema.get("properties") or {})
        if self._argument is not None:
            if properties:
                one_of(f"argument of tool {self.tool!r}", self._argument, properties)
            return self._argument
        strings: list[str] = []
        for name in cast("Sequence[str]", schema.get("required") or ()):
            if name not in given and properties.get(name, {}).get("type") == "string":
                strings.append(name)
        if len(strings) != 1:
            raise errors.ConfigError(
                f"tool {self.tool!r}: required strings {strings}, expected one, "
                f"or `argument` to name one of its arguments {list(properties)}"
            )
        return strings[0]

    # ── the session ───────────────────────────────────────────────────────────────────────────────
    async def _hold(self, session: _Session) -> None:
        """Open a session, keep it until it is to be closed, and close it."""
        passed = {name: os.environ[name] for name in self._env if name in os.environ}
        tail = None if self._command is None else _Tail(passed.values())
        opened = session.opened
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(http.CONNECT_SECONDS):
                    client = await self._open(stack, session, passed, tail)
                opened.set_result(client)
                await session.closing.wait()
        except _BROKEN as error:
            if not opened.done():
                failed = _failure(error, session.status, opening=True)
                if tail is not None and isinstance(failed, errors.WorkerError):
                    failed.message += tail.describe()
                opened.set_exception(failed)
        finally:
            if tail is not None:
                tail.errlog.close()
            if not opened.done():
                opened.set_exception(errors.Unreachable("the session ended before it was open"))

    async def _open(
        self, stack: AsyncExitStack, session: _Session, env: dict[str, str], tail: _Tail | None
    ) -> Client:
        """Connect to the server, and read the tool's schema."""
        if self._command is not None and tail is not None:
            program, *arguments = self._command
            server = StdioServerParameters(command=program, args=arguments, env=env)
            transport = stdio_client(server, errlog=tail.errlog)
        else:
            http_client = self._http_client(session)
            await stack.enter_async_context(http_client)
            transport = streamable_http_client(cast(str, self._url), http_client=http_client)
        client = await stack.enter_async_context(Client(transport))
        tool = await self._find_tool(client)
        session.schema = cast("Mapping[str, object]", tool.input_schema)
        return client

    def _http_client(self, session: _Session) -> httpx2.AsyncClient:
        """Return a session's HTTP client, which notes the statuses that the SDK keeps to itself."""

        async def note(response: httpx2.Response) -> None:
            if response.status_code >= 400:
                session.status = response.status_code

        timeout = httpx2.Timeout(None, connect=http.CONNECT_SECONDS)  # a call's deadline ends it
        client = self._settings.httpx_client(timeout)
        client.headers["User-Agent"] = "openconductor"
        key = key_of(self.api_key_env)
        if key:
            client.headers["Authorization"] = f"Bearer {key}"
        client.event_hooks["response"].append(note)
        return client

    async def _find_tool(self, client: Client) -> mcp_types.Tool:
        """Return the tool as the server describes it, or raise ConfigError."""
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
        known = ", ".join(names) or "none"
        near = nearest(self.tool, names)
        raise errors.ConfigError(
            f"model: got {self.tool!r}, expected a tool of {self._server}: {known}; "
            f"nearest: {near!r}"
        )


def _last_turn(messages: Sequence[Message]) -> Message:
    """Return the user's last turn; an empty one if there is none."""
    for message in reversed(messages):
        if message.role == "user":
            return message
    return Message("user", "")


def _failure(error: Exception, status: int, *, opening: bool = False) -> errors.OpenConductorError:
    """Return the failure that an error of the SDK means.

    Args:
        error: the error.
        status: of an HTTP response that refused the request; 0: none did.
        opening: the session was being opened.
    """
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    if isinstance(error, errors.OpenConductorError):
        return error
    if status:
        return failure(status, b"")
    words = excerpt(f"{type(error).__name__}: {error}")
    if isinstance(error, MCPError):  # of the server, or of the SDK in its place
        if error.code == mcp_types.REQUEST_TIMEOUT:
            return errors.WorkerTimeout(words)
        if error.code == mcp_types.INTERNAL_ERROR:
            return errors.ServerFailed(words, status=None)
        if error.code == mcp_types.CONNECTION_CLOSED and opening:
            return errors.Unreachable(f"the server went away: {words}")
        if error.code == mcp_types.CONNECTION_CLOSED:
            return errors.ConnectionLost(words)
        if not opening and error.code != mcp_types.PARSE_ERROR:
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
    """Return the text of an answer, or raise the WorkerError that it means."""
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
    if isinstance(block, mcp_types.ResourceLink):
        return f"[{block.uri}]"
    if not isinstance(block, mcp_types.EmbeddedResource):
        return f"[{block.mime_type}]"
    resource = block.resource
    if isinstance(resource, mcp_types.TextResourceContents):
        return resource.text
    return f"[{resource.uri}]"


def _checked_command(command: Sequence[object]) -> tuple[str, ...]:
    words = [word for word in command if isinstance(word, str) and word]
    if isinstance(command, str) or not words or len(words) < len(command):
        raise errors.ConfigError(
            f"command: got {command!r}, expected a list of a program and its arguments"
        )
    return tuple(words)
