"""Graders: each takes a problem and an answer and returns a Grade.

``GRADERS`` names them lazily as ``module:attribute``. ``grade_answer`` asks any of them, and makes
an undecided grade of what it raises.
"""

from __future__ import annotations

import asyncio

from openconductor.errors import GradingError, OpenConductorError, one_line, stops
from openconductor.protocols import Grader, check_grade
from openconductor.types import Grade, Problem

GRADERS: dict[str, str] = {
    "choice": "openconductor.graders.choice:ChoiceGrader",
    "code": "openconductor.graders.code:CodeGrader",
    "exact": "openconductor.graders.exact:ExactGrader",
    "freeform": "openconductor.graders.freeform:FreeFormGrader",
    "math": "openconductor.graders.math:MathGrader",
}
GRADE_SECONDS = 600.0
"""The default timeout of a verdict. Graders have limits of their own, far below."""


async def grade_answer(
    grader: Grader, problem: Problem, answer: str, *, timeout_s: float | None = GRADE_SECONDS
) -> Grade:
    """Return the grader's verdict. A failure of the grader is an undecided verdict that says why.

    Args:
        grader: the grader.
        problem: the question.
        answer: the answer.
        timeout_s: after this many seconds the verdict is undecided; None: no limit.

    Raises:
        ConfigError, TaskError, AuthFailed, BudgetExceeded, JournalError: nothing that follows can
            be graded.
    """
    scope = asyncio.timeout(timeout_s)
    try:
        async with scope:
            return check_grade(await grader.grade(problem, answer))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        note = "the grader was cancelled from inside"
    except GradingError as error:
        note = str(error)
    except Exception as error:  # a grader may raise anything
        if isinstance(error, OpenConductorError) and stops(error):
            raise
        note = f"the grader raised {one_line(error)}"
        if isinstance(error, TimeoutError) and scope.expired():
            note = f"no verdict within {timeout_s} s"
    return Grade(None, note=f"undecided: {note}")
