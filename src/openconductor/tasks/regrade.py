"""Grades answers from elsewhere as they stream in: JSON lines with a reference and an answer.

``math``      ``{id, answer, reference}``
``choice``    ``{id, answer, reference, choices?}``; the reference is a letter, or an index from 0
``freeform``  ``{id, answer, reference, kind?, tolerance?}``
``code``      ``{id, answer, tests, entry_point?, starter_code?}``; ``tests`` is a text of
              assertions or of a unittest class, rows, or LiveCodeBench's (``data.tests``)

Lines are read by a thread, graded side by side and given back in their order. Twice as many are in
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
from openconductor.graders import grade_answer
from openconductor.graders.choice import LETTERS, ChoiceGrader
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.freeform import FreeFormGrader
from openconductor.graders.math import MathGrader
from openconductor.protocols import Grader
from openconductor.sandboxes import Sandbox
from openconductor.tasks.choice import choices_of, letter_at
from openconductor.tasks.code import row_tests
from openconductor.tasks.data.rows import Row, json_row
from openconductor.tasks.rlpr import free_form_answer
from openconductor.types import Problem

Kind = Literal["math", "choice", "freeform", "code"]
Verdict = dict[str, object]
"""The line of an answer: its id as given, and what its ``Grade`` says."""


@dataclass(frozen=True, slots=True)
class Submission:
    """An answer to be graded: the id as given, the problem, the answer, and the grader."""

    id: str | int
    problem: Problem
    answer: str
    grader: Grader


def submissions(
    kind: Kind, *, mode: Mode = "strict", sandbox: Sandbox | None = None
) -> Callable[[Row], Submission]:
    """Return a function that makes a submission of a row.

    Args:
        kind: the grader.
        mode: of the code grader.
        sandbox: where programs run; None: the best that this machine has.
    """
    code = CodeGrader(mode, sandbox)

    def read(row: Row) -> Submission:
        name = row.identity("id")
        reference: object
        grader: Grader
        match kind:
            case "math":
                reference, grader = row.text_or_number("reference"), MathGrader()
            case "freeform":
                reference, grader = free_form_answer(row, "reference"), FreeFormGrader()
            case "code":
                reference, grader = row_tests(row), code
            case "choice":
                count = len(choices_of(row)) if row.has("choices") else len(LETTERS)
                reference = letter_at(row, "reference", count)
                grader = ChoiceGrader(LETTERS[:count])
        problem = Problem(str(name), "", reference, "regrade")
        return Submission(name, problem, row.text("answer", blank=True), grader)

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
        name: the stream's name in errors.

    Yields:
        A verdict for each line that is not blank, in the order of the lines.

    Raises:
        ConfigError: a line is not a row (names it), or an extra that the grader needs is not
            installed.
    """
    stream = _Stream(lines, read, concurrency, name)
    # A daemon, because a thread that waits for a line cannot be woken, and must not hold up the end
    # of the program.
    threading.Thread(target=stream.pump, name="regrade-lines", daemon=True).start()
    try:
        async for task in stream:
            verdict = await task
            if verdict is not None:
                yield verdict
            stream.window.release()
    except TaskError as error:
        raise ConfigError(str(error)) from error
    finally:
        await stream.stop()


class _Stream:
    """The lines on their way: read by ``pump`` in a thread, graded by tasks in the event loop.

    Iteration gives the tasks in the order of the lines. It raises the error that ended the lines.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        read: Callable[[Row], Submission],
        concurrency: int,
        name: str,
    ) -> None:
        self.window = threading.Semaphore(2 * concurrency)
        self._lines = lines
        self._read = read
        self._name = name
        self._gate = asyncio.Semaphore(concurrency)
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._arrived: asyncio.Queue[asyncio.Task[Verdict | None] | Exception | None]
        self._arrived = asyncio.Queue()

    def pump(self) -> None:
        """Hand each line to the loop, as soon as the window has a place for it."""
        end: Exception | None = None
        with suppress(RuntimeError):  # the loop has closed meanwhile
            try:
                for number, line in enumerate(self._lines, start=1):
                    self.window.acquire()
                    if self._stopped.is_set():
                        return
                    self._loop.call_soon_threadsafe(self._start, line, number)
            except (OSError, TaskError) as error:
                end = error
            except ValueError:  # the file was closed
                if not self._stopped.is_set():
                    raise
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, end)

    def _start(self, line: bytes, number: int) -> None:
        if not self._stopped.is_set():
            self._arrived.put_nowait(self._loop.create_task(self._grade(line, number)))

    async def _grade(self, line: bytes, number: int) -> Verdict | None:
        row = json_row(line, self._name, number)
        if row is None:
            return None
        submission = self._read(row)
        async with self._gate:
            grade = await grade_answer(submission.grader, submission.problem, submission.answer)
        verdict: Verdict = {
            "id": submission.id,
            "correct": grade.correct,
            "extracted": grade.extracted,
            "note": grade.note,
        }
        if grade.judged_by:
            verdict["judged_by"] = grade.judged_by
        return verdict

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> asyncio.Task[Verdict | None]:
        arrived = await self._arrived.get()
        if isinstance(arrived, asyncio.Task):
            return arrived
        raise arrived or StopAsyncIteration

    async def stop(self) -> None:
        """End the thread at its next line, and cancel the tasks whose verdict nobody wants."""
        self._stopped.set()
        self.window.release()
        unwanted: list[asyncio.Task[Verdict | None]] = []
        while not self._arrived.empty():
            task = self._arrived.get_nowait()
            if isinstance(task, asyncio.Task):
                task.cancel()
                unwanted.append(task)
        await asyncio.gather(*unwanted, return_exceptions=True)
