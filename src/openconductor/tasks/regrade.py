"""Answers from elsewhere, graded as they stream in. In: JSON lines with reference and answer. Out: verdicts, in order.

``math``      ``{id, answer, reference}``
``choice``    ``{id, answer, reference, choices?}``; the reference is a letter, or an index from 0
``freeform``  ``{id, answer, reference, kind?, tolerance?}``
``code``      ``{id, answer, tests, entry_point?, starter_code?}``; ``tests`` as in local rows, or a test program

Lines are read by a thread, graded side by side and given back in their order; twice as many are in
memory as are graded at once, however long the stream. A line that is not a row ends the stream,
after the verdicts on all lines before it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from openconductor.errors import ConfigError, TaskError
from openconductor.graders.choice import LETTERS, ChoiceGrader
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.freeform import FreeFormGrader
from openconductor.graders.math import MathGrader
from openconductor.protocols import Grader
from openconductor.sandboxes import Sandbox
from openconductor.tasks.check import judged
from openconductor.tasks.choice import choices_of, letter_at
from openconductor.tasks.code import row_tests
from openconductor.tasks.rlpr import free_form_answer
from openconductor.tasks.rows import Row, json_row
from openconductor.types import Problem

Kind = Literal["math", "choice", "freeform", "code"]
Verdict = dict[str, object]
"""The line that is written of an answer: its id as it was given, ``correct``, ``extracted`` and ``note``."""


@dataclass(frozen=True, slots=True)
class Submission:
    """An answer to be graded: the id as it was given, the problem, the answer, and who judges."""

    id: str | int
    problem: Problem
    answer: str
    grader: Grader


def submissions(
    kind: Kind, *, mode: Mode = "strict", sandbox: Sandbox | None = None
) -> Callable[[Row], Submission]:
    """What makes a submission of a row.

    Args:
        kind: which grader judges.
        mode: of the code grader.
        sandbox: where programs run; None: the best that this machine has.
    """
    code = CodeGrader(mode, sandbox)

    def judged_by(row: Row) -> tuple[object, Grader]:
        match kind:
            case "math":
                return row.text_or_number("reference"), MathGrader()
            case "freeform":
                return free_form_answer(row, "reference"), FreeFormGrader()
            case "code":
                return row_tests(row), code
            case "choice":
                count = len(choices_of(row)) if row.has("choices") else len(LETTERS)
                return letter_at(row, "reference", count), ChoiceGrader(LETTERS[:count])

    def read(row: Row) -> Submission:
        name = row.identity("id")
        reference, grader = judged_by(row)
        return Submission(
            name,
            Problem(str(name), "", reference, "regrade"),
            row.text("answer", blank=True),
            grader,
        )

    return read


async def regrade(
    lines: Iterable[bytes],
    read: Callable[[Row], Submission],
    *,
    concurrency: int = 8,
    name: str = "stdin",
) -> AsyncGenerator[Verdict]:
    """Grade lines as they come.

    Args:
        lines: may block; they are read in a thread of their own.
        read: makes a submission of a row; see ``submissions``.
        concurrency: answers graded at the same time. Twice as many lines are in memory.
        name: what errors call the stream.

    Yields:
        A verdict for each line that is not blank, in the order of the lines.

    Raises:
        ConfigError: a line is not a row (names it), or an extra that the grader needs is not
            installed.
    """
    loop, stopped = asyncio.get_running_loop(), threading.Event()
    window, gate = threading.Semaphore(2 * concurrency), asyncio.Semaphore(concurrency)
    arrived: asyncio.Queue[asyncio.Task[Verdict | None] | Exception | None] = asyncio.Queue()

    async def graded(line: bytes, number: int) -> Verdict | None:
        row = json_row(line, name, number)
        if row is None:
            return None
        one = read(row)
        async with gate:
            grade = await judged(one.grader, one.problem, one.answer)
        return {
            "id": one.id,
            "correct": grade.correct,
            "extracted": grade.extracted,
            "note": grade.note,
        }

    def arrive(line: bytes, number: int) -> None:
        if not stopped.is_set():
            arrived.put_nowait(loop.create_task(graded(line, number)))

    def pump() -> None:
        """In the thread: hand each line to the loop, as soon as there is a place for it."""
        end: Exception | None = None
        with suppress(RuntimeError):  # the loop has closed meanwhile
            try:
                for number, line in enumerate(lines, start=1):
                    window.acquire()
                    if stopped.is_set():
                        return
                    loop.call_soon_threadsafe(arrive, line, number)
            except (OSError, TaskError) as error:
                end = error
            loop.call_soon_threadsafe(arrived.put_nowait, end)

    # A daemon: a thread that waits for a line cannot be woken, and must not hold up the end of the
    # program.
    threading.Thread(target=pump, name="regrade-lines", daemon=True).start()
    try:
        while isinstance(task := await arrived.get(), asyncio.Task):
            if (verdict := await task) is not None:
                yield verdict
            window.release()
        if task is not None:
            raise task
    except TaskError as error:
        raise ConfigError(str(error)) from error
    finally:
        stopped.set()
        window.release()
        left = [arrived.get_nowait() for _ in range(arrived.qsize())]
        unwanted = [task for task in left if isinstance(task, asyncio.Task)]
        for task in unwanted:
            task.cancel()
        await asyncio.gather(*unwanted, return_exceptions=True)
