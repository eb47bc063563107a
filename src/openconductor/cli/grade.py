"""``openconductor grade``: grade answers from elsewhere.

In: JSON lines on stdin, each with a reference (or tests) and an answer. Out: a JSON line of each on
stdout, in the order in which they came and as soon as that order allows; so it can stand in a pipe.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Annotated, cast, get_args

import typer

from openconductor import sandboxes
from openconductor.cli import console
from openconductor.cli.options import Unsafe
from openconductor.config import one_of
from openconductor.errors import ConfigError, SandboxError, TaskError
from openconductor.graders.code_compare import Mode
from openconductor.sandboxes import Sandbox
from openconductor.tasks.regrade import Kind, Verdict, regrade, submissions

LONGEST = 1 << 26
"""Bytes of the longest line."""


def grade(
    grader: Annotated[
        str, typer.Option("--grader", help="math, choice, freeform or code.", show_default=False)
    ],
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", help="Of code: strict (the default) or lcb-compat.", show_default=False
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=256, help="Answers graded at once.")
    ] = 8,
    unsafe: Unsafe = False,
    as_json: Annotated[  # noqa: ARG001 - every verb takes it
        bool,
        typer.Option(
            "--json", help="Taken as every verb takes it; verdicts are JSON lines in any case."
        ),
    ] = False,
) -> None:
    """Grade answers from elsewhere: JSON lines in, verdicts out.

    Each line has an id, an answer and what it is graded against: `reference` (math; freeform, with
    kind and tolerance if you like; choice, a letter or an index, with choices), or `tests` (code,
    with entry_point). Verdicts are {id, correct, extracted, note}; correct is null where nobody
    could decide.
    """
    kind = cast("Kind", one_of("--grader", grader, get_args(Kind)))
    if kind != "code" and (mode is not None or unsafe):
        option = "--mode" if mode is not None else "--unsafe-code-exec"
        raise ConfigError(f"{option}: got it beside --grader {kind}; only code has it")
    chosen = cast("Mode", one_of("--mode", mode or "strict", get_args(Mode)))
    if sys.stdin.isatty():
        console.say("reading JSON lines from the terminal; Ctrl-D ends them")
    sandbox = _sandbox(unsafe) if kind == "code" else None
    read = submissions(kind, mode=chosen, sandbox=sandbox)
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
        # A reader of our own: a thread that waits inside of stdin's holds its lock, also at the end
        # of the program.
        stdin = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115 - stays open as long as stdin
    except (OSError, ValueError):  # no file behind it
        stdin = sys.stdin.buffer
    number = 0
    while line := stdin.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise TaskError(
                f"stdin, line {number}: longer than {LONGEST} bytes; expected one JSON object a line"
            )
        yield line.removesuffix(b"\n")


def _sandbox(unsafe: bool) -> Sandbox:
    """Where programs run.

    Raises:
        SandboxError: no sandbox works here, and none may be done without.
    """
    try:
        sandbox = sandboxes.open_sandbox(unsafe=unsafe)
    except SandboxError as error:
        raise SandboxError(
            f"{error}; `openconductor doctor` says what there is, and --unsafe-code-exec does without"
        ) from error
    if sandbox.level.startswith("plain"):
        console.say(
            "warning: no sandbox works here: programs run unprotected, as --unsafe-code-exec allows"
        )
    return sandbox
