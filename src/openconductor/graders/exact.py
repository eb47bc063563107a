"""Compares texts word by word, for answers that have one form only."""

from __future__ import annotations

from openconductor.errors import GradingError
from openconductor.types import Grade, Problem


class ExactGrader:
    """Accepts answers whose words are those of the reference; blanks do not count."""

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade one answer.

        Raises:
            GradingError: the problem's reference is no text.
        """
        if not isinstance(problem.reference, str):
            kind = type(problem.reference).__name__
            raise GradingError(
                f"problem {problem.id}: got a reference of type {kind}, expected a text"
            )
        words = answer.split()
        return Grade(words == problem.reference.split(), extracted=" ".join(words))
