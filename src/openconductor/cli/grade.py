"""``openconductor grade``: grade answers from elsewhere.

In: JSON lines on stdin, each with a reference (or tests) and an answer. Out: a JSON line of each on stdout, in the
order in which they came and as soon as that order allows; so it can are in a pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from openconductor.cli import console
from openconductor.cli.runs import Unsafe, one_of
from openconductor.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from openconductor.graders.code_compare import Mode
    from openconductor.sandboxes import Sandbox
    from openconductor.tasks.regrade import Kind, Verdict

LONGEST = 1 << 26
"""Bytes of the longest line."""
CHUNK = 1 << 16


def grade(
    grader: Annotated[str, typer.Option("--grader", help="math, choice, freeform or code.", show_default=False)],
    mode: Annotated[
        str | None, typer.Option("--mode", help="Of code: strict (the default) or lcb-compat.", show_default=False)
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=256, help="Answers graded at once.")] = 8,
    unsafe: Unsafe = False,
    as_json: Annotated[  # noqa: ARG001 - every verb takes it
        bool, typer.Option("--json", help="Taken as every verb takes it; verdicts are JSON lines in any case.")
    ] = False,
) -> None:
    """Grade answers from elsewhere: JSON lines in, verdicts out.

    Each line has an id, an answer and what it is graded against: `reference` (math; freeform, with kind and tolerance
    if you like; choice, a letter or an index, with choices), or `tests` (code, with entry_point). Verdicts are {id,
    correct, extracted, note}; correct is null where nobody could decide.
    """
    from openconductor.graders.code_compare import Mode
    from openconductor.tasks.regrade import Kind, regrade, submissions

    kind = cast("Kind", one_of("--grader", grader, get_args(Kind)))
    if kind != "code" and (mode is not None or unsafe):
        option = "--mode" if mode is not None else "--unsafe-code-exec"
        raise ConfigError(f"{option}: got it beside --grader {kind}; only code has it")
    chosen = cast("Mode", one_of("--mode", mode or "strict", get_args(Mode)))
    if sys.stdin.isatty():
        console.say("reading JSON lines from the terminal; Ctrl-D ends them")
    sandbox = _sandbox(unsafe) if kind == "code" else None
    read = submissions(kind, mode=chosen, sandbox=sandbox)
    import asyncio

    asyncio.run(_write(regrade(stdin_lines(), read, concurrency=concurrency), sandbox))


async def _write(verdicts: AsyncGenerator[Verdict], sandbox: Sandbox | None) -> None:
    try:
        async with aclosing(verdicts):
            async for verdict in verdicts:
                console.show_json(verdict, indent=None)
    finally:
        if sandbox is not None:
            await sandbox.aclose()


def stdin_lines() -> Iterator[bytes]:
    """The lines of stdin as they come; a line may be long, but not without limit.

    Raises:
        TaskError: a line is longer than ``LONGEST``.
    """
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):  # no file behind it
        yield from sys.stdin.buffer
        return
    # Not by the buffered reader: a thread that waits inside of it holds its lock, also at the end of the program.
    parts: list[bytes] = []
    held, number = 0, 1
    while chunk := os.read(descriptor, CHUNK):
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            yield b"".join([*parts, line])
            parts, held, number = [], 0, number + 1
        if rest:
            parts.append(rest)
            held += len(rest)
        if held > LONGEST:
            raise TaskError(f"stdin, line {number}: longer than {LONGEST} bytes; expected one JSON object a line")
    if parts:
        yield b"".join(parts)


def _sandbox(unsafe: bool) -> Sandbox:
    """Where programs run.

    Raises:
        SandboxError: no sandbox works here, and none may be done without.
    """
    from openconductor.errors import SandboxError
    from openconductor.sandboxes import open_sandbox

    try:
        sandbox = open_sandbox(unsafe=unsafe)
    except SandboxError as error:
        raise SandboxError(
            f"{error}; `openconductor doctor` says what there is, and --unsafe-code-exec does without"
        ) from error
    if sandbox.level.startswith("plain"):
        console.say("warning: no sandbox works here: programs run unprotected, as --unsafe-code-exec allows")
    return sandbox
