"""``openconductor grade``: grade answers from elsewhere.

Each JSON line on stdin has an answer and a reference (or tests). Verdicts come out as JSON lines in
the same order, each as soon as the order allows, so that the command can stand in a pipe.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import platform
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from io import BufferedIOBase
from typing import Annotated, cast, get_args

import typer

from openconductor import __version__, sandboxes
from openconductor.cli import console
from openconductor.cli.options import Unsafe
from openconductor.config import one_of
from openconductor.errors import ConfigError, SandboxError, TaskError
from openconductor.graders.code_compare import Mode
from openconductor.sandboxes import Sandbox
from openconductor.tasks.data.rows import Row
from openconductor.tasks.regrade import Kind, Submission, Verdict, regrade, submissions

LONGEST = 1 << 26
"""The most bytes of a line."""
REPORT_HEAD = """# A verdict that may be wrong

- grader: {grader}
- versions: {versions}
- what the verdict should be, and why: (please say)
"""


def grade(
    grader: Annotated[
        str, typer.Option("--grader", help="math, choice, freeform or code.", show_default=False)
    ],
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", help="For code: strict (the default) or lcb-compat.", show_default=False
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=256, help="Answers graded at once.")
    ] = 8,
    unsafe: Unsafe = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report", help="Print a page about these verdicts, to report a wrong one, instead."
        ),
    ] = False,
    as_json: Annotated[  # noqa: ARG001 - every verb has it
        bool,
        typer.Option("--json", help="No effect: verdicts are always JSON lines."),
    ] = False,
) -> None:
    """Grade answers from elsewhere: JSON lines in, verdicts out.

    Each line has an id, an answer and its reference: `reference` (math; freeform, optionally with
    kind and tolerance; choice, a letter or an index, with choices), or `tests` (code, with
    entry_point: assertions or a unittest class as a text, rows, or LiveCodeBench's). Verdicts are
    {id, correct, extracted, note}; correct is null if undecided.
    """
    kind: Kind = one_of("--grader", grader, get_args(Kind))
    if kind != "code" and (mode is not None or unsafe):
        option = "--mode" if mode is not None else "--unsafe-code-exec"
        raise ConfigError(f"{option} requires --grader code; got --grader {kind}")
    chosen: Mode = one_of("--mode", mode or "strict", get_args(Mode))
    if sys.stdin.isatty():
        console.say("reading JSON lines from the terminal; Ctrl-D ends them")
    sandbox = _open_sandbox(unsafe) if kind == "code" else None
    read = submissions(kind, mode=chosen, sandbox=sandbox)
    if report:
        asyncio.run(_write_report(read, sandbox, f"{kind} {mode or ''}".strip()))
        return
    total = 0 if sys.stdout.isatty() else _count_lines()
    verdicts = regrade(stdin_lines(), read, concurrency=concurrency)
    asyncio.run(_write(verdicts, sandbox, total))


async def _write_report(
    read: Callable[[Row], Submission], sandbox: Sandbox | None, grader: str
) -> None:
    """Print a page with each line's fields and its verdict, and the versions that decided."""
    rows: list[Row] = []

    def remember(row: Row) -> Submission:
        rows.append(row)
        return read(row)

    console.show_text(REPORT_HEAD.format(grader=grader, versions=_versions()))
    try:
        async with aclosing(regrade(stdin_lines(), remember, concurrency=1)) as verdicts:
            number = 0
            async for verdict in verdicts:
                fields = dict(rows[number].values)
                console.show_text(f"## {fields.pop('id')}\n")
                for name, value in [*fields.items(), ("verdict", verdict)]:
                    console.show_text(f"{name}:\n\n{_fenced(value)}\n")
                number += 1
    finally:
        if sandbox is not None:
            await sandbox.aclose()


def _versions() -> str:
    """Return the versions of what decides verdicts."""
    names = {"openconductor": __version__, "Python": platform.python_version()}
    with suppress(PackageNotFoundError):
        names["sympy"] = version("sympy")
    listed = ", ".join(f"{name} {number}" for name, number in names.items())
    return f"{listed}; {platform.system()} {platform.machine()}"


def _fenced(value: object) -> str:
    """Return a value in a fence that is longer than all in it: a text as it is, else JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    text = text.encode("utf-8", "backslashreplace").decode()
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


async def _write(verdicts: AsyncGenerator[Verdict], sandbox: Sandbox | None, total: int) -> None:
    """Print verdicts as they come, and progress if their number is known (0: it is not)."""
    progress = console.progress_bar("grading", quiet=True) if total else nullcontext(_ignore)
    done = itertools.count(1)
    try:
        with progress as advance:
            async with aclosing(verdicts):
                async for verdict in verdicts:
                    console.show_json(verdict, indent=None)
                    advance(next(done), total)
    finally:
        if sandbox is not None:
            await sandbox.aclose()


def stdin_lines() -> Iterator[bytes]:
    """Yield the lines of stdin as they come.

    Raises:
        TaskError: a line is longer than ``LONGEST``.
    """
    stdin = _open_stdin()
    number = 0
    while line := stdin.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise TaskError(
                f"stdin, line {number}: longer than {LONGEST} bytes; "
                "expected one JSON object a line"
            )
        yield line.removesuffix(b"\n")


def _count_lines() -> int:
    """Return how many lines stdin has left if it is a file; 0: unknown."""
    stdin = _open_stdin()
    if not stdin.seekable():
        return 0
    place = stdin.tell()
    count = sum(1 for _ in stdin)
    stdin.seek(place)
    return count


def _ignore(*_: int) -> None:
    """Show no progress, because the verdicts on the terminal are the progress."""


def _open_stdin() -> BufferedIOBase:
    """Open stdin anew: a thread that reads ``sys.stdin`` holds its lock until the program ends."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (OSError, ValueError):  # not a file, as in tests
        return cast("BufferedIOBase", sys.stdin.buffer)


def _open_sandbox(unsafe: bool) -> Sandbox:
    """Return the sandbox in which programs run.

    Raises:
        SandboxError: no sandbox works, and ``unsafe`` is False.
    """
    try:
        sandbox = sandboxes.open_sandbox(unsafe=unsafe)
    except SandboxError as error:
        raise SandboxError(
            f"{error}. `openconductor doctor` checks the sandboxes; --unsafe-code-exec runs "
            "programs without one"
        ) from error
    if sandbox.level.startswith("plain"):
        console.say(
            "warning: no sandbox works here: programs run unprotected, as --unsafe-code-exec allows"
        )
    return sandbox
