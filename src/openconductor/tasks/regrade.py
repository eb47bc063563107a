"""Answers from elsewhere, graded as they stream in. In: JSON lines with reference and answer. Out: verdicts, in order.

``math``      ``{id, answer, reference}``
``choice``    ``{id, answer, reference, choices?}``; the reference is a letter, or an index from 0
``freeform``  ``{id, answer, reference, kind?, tolerance?}``
``code``      ``{id, answer, tests, entry_point?, starter_code?}``; ``tests`` as in local rows, or a test program

Lines are read by a thread, graded side by side and given back in their order; so many are in memory as are in flight,
however long the stream. A line that is none ends the stream, after the verdicts on all lines before it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from openconductor.errors import ConfigError, GradingError, TaskError
from openconductor.graders.choice import LETTERS, ChoiceGrader
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.freeform import FreeFormGrader
from openconductor.graders.math import MathGrader
from openconductor.protocols import Grader
from openconductor.sandboxes import Sandbox
from openconductor.tasks.choice import letter_at
from openconductor.tasks.code import row_tests
from openconductor.tasks.rlpr import free_form_answer
from openconductor.tasks.rows import Row, json_row
from openconductor.types import Grade, Problem

Kind = Literal["math", "choice", "freeform", "code"]


@dataclass(frozen=True, slots=True)
class Submission:
    """An answer to be graded: the id as it was given, the problem, the answer, and who judges."""

    id: str | int
    problem: Problem
    answer: str
    grader: Grader


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a submission."""

    id: str | int
    grade: Grade

    def record(self) -> dict[str, object]:
        """As the line that is written of it."""
        grade = self.grade
        return {"id": self.id, "correct": grade.correct, "extracted": grade.extracted, "note": grade.note}


def submissions(kind: Kind, *, mode: Mode = "strict", sandbox: Sandbox | None = None) -> Callable[[Row], Submission]:
    """What makes a submission of a row.

    Args:
        kind: which grader judges.
        mode: of the code grader.
        sandbox: where programs run; None: the best that this machine has.
    """
    graders: dict[str, Grader] = {}
    if kind == "math":
        graders[kind] = MathGrader()
    elif kind == "freeform":
        graders[kind] = FreeFormGrader()
    elif kind == "code":
        graders[kind] = CodeGrader(mode, sandbox)

    def read(row: Row) -> Submission:
        name = row.identity("id")
        reference, grader = _reference(kind, row)
        answer = row.text("answer", blank=True)
        return Submission(name, Problem(str(name), "", reference, "regrade"), answer, grader or graders[kind])

    return read


def _reference(kind: Kind, row: Row) -> tuple[object, Grader | None]:
    """The reference of a row, and its grader where each row has one of its own."""
    match kind:
        case "math":
            return row.text_or_number("reference"), None
        case "freeform":
            return free_form_answer(row, "reference"), None
        case "code":
            return row_tests(row), None
        case "choice":
            count = len(row.texts("choices")) if row.has("choices") else len(LETTERS)
            if not 2 <= count <= len(LETTERS):
                raise row.wrong("choices", row.values["choices"], f"2 to {len(LETTERS)} choices")
            return letter_at(row, "reference", count), ChoiceGrader(LETTERS[:count])


async def regrade(
    lines: Iterable[bytes], read: Callable[[Row], Submission], *, concurrency: int = 8, name: str = "stdin"
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
        ConfigError: a line is none (names it), or an extra that the grader needs is not installed.
    """
    stream = _Stream(lines, read, concurrency, name)
    stream.start()
    try:
        while (running := await stream.arrived.get()) is not None:
            yield await running
            stream.window.release()
    except TaskError as error:
        raise ConfigError(str(error)) from error
    finally:
        stream.stop()


class _Stream:
    """The lines in flight: read by a thread, parsed and graded in the event loop.

    ``window`` holds a place for each line in flight, so that reading waits for writing.
    """

    def __init__(self, lines: Iterable[bytes], read: Callable[[Row], Submission], concurrency: int, name: str) -> None:
        self.arrived: asyncio.Queue[asyncio.Future[Verdict] | None] = asyncio.Queue()
        self.window = threading.Semaphore(2 * concurrency)
        self._lines = lines
        self._read = read
        self._name = name
        self._gate = asyncio.Semaphore(concurrency)
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._running: set[asyncio.Task[Verdict]] = set()

    def start(self) -> None:
        # A daemon: a thread that waits for a line cannot be woken, and must not hold up the end of the program.
        threading.Thread(target=self._pump, name="regrade-lines", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self.window.release()
        for task in self._running:
            task.cancel()

    def _pump(self) -> None:
        """In the thread: hand each line to the loop, as soon as there is a place for it."""
        with suppress(RuntimeError):  # the loop has closed meanwhile
            try:
                for number, line in enumerate(self._lines, start=1):
                    self.window.acquire()
                    if self._stopped.is_set():
                        return
                    self._loop.call_soon_threadsafe(self._arrive, line, number)
            except (OSError, TaskError) as error:
                self._loop.call_soon_threadsafe(self._fail, error)
            else:
                self._loop.call_soon_threadsafe(self.arrived.put_nowait, None)

    def _arrive(self, line: bytes, number: int) -> None:
        if self._stopped.is_set():
            return
        try:
            row = json_row(line, where=f"{self._name}, line {number}", number=number, first=number == 1)
            if row is None:
                self.window.release()
                return
            submission = self._read(row)
        except TaskError as error:
            self._fail(error)
            return
        task = self._loop.create_task(self._judge(submission))
        self._running.add(task)
        task.add_done_callback(self._ended)
        self.arrived.put_nowait(task)

    def _fail(self, error: Exception) -> None:
        """Let the error come after the verdicts on all lines before it."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        failed: asyncio.Future[Verdict] = self._loop.create_future()
        failed.set_exception(error)
        failed.exception()  # seen: should nobody wait for it any more, that is no fault
        self.arrived.put_nowait(failed)

    def _ended(self, task: asyncio.Task[Verdict]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, as above

    async def _judge(self, submission: Submission) -> Verdict:
        async with self._gate:
            try:
                grade = await submission.grader.grade(submission.problem, submission.answer)
            except GradingError as error:
                grade = Grade(None, note=f"undecided: {error}")
        return Verdict(submission.id, grade)
