"""Observations of workers on questions, from which routers are trained and best workers chosen.

They must come from questions that nothing is reported on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openconductor.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Observations:
    """Questions x workers: the share of right answers, and an answer.

    Attributes:
        questions: the texts that were asked.
        workers: the workers' names; a column may as well be any other system that answered them.
        right: by question and worker, the share of right answers in [0, 1]; None: undecided.
        answers: by question and worker, one answer; None: none. Empty: answers are unknown.

    Raises:
        ConfigError: the tables do not have that shape, a share is outside [0, 1], or a worker is
            named twice.
    """

    questions: tuple[str, ...]
    workers: tuple[str, ...]
    right: tuple[tuple[float | None, ...], ...]
    answers: tuple[tuple[str | None, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.questions or not self.workers or len(set(self.workers)) < len(self.workers):
            raise ConfigError(
                f"Observations: got {len(self.questions)} questions and the workers "
                f"{list(self.workers)}, expected at least one of each, and each name once"
            )
        self._check_shape("right", self.right)
        if self.answers:
            self._check_shape("answers", self.answers)
        for row in self.right:
            for share in row:
                if share is not None and not 0 <= share <= 1:
                    raise ConfigError(
                        f"Observations.right: got {share!r}, expected a share from 0 to 1, or None"
                    )

    def _check_shape(self, name: str, table: Sequence[Sequence[object]]) -> None:
        widths = {len(row) for row in table}
        if len(table) != len(self.questions) or widths != {len(self.workers)}:
            got = f"{len(table)} rows of {sorted(widths)} entries"
            expected = f"{len(self.questions)} of {len(self.workers)}"
            raise ConfigError(f"Observations.{name}: got {got}, expected {expected}")

    def shares(self) -> dict[str, float]:
        """Return the share of right answers of each worker with a decided answer.

        It is taken over the questions on which all workers were decided; if there are none, over
        those on which the worker was decided itself.
        """
        rows = [row for row in self.right if None not in row] or self.right
        shares: dict[str, float] = {}
        for place, worker in enumerate(self.workers):
            column = [row[place] for row in rows]
            decided = [share for share in column if share is not None]
            if decided:
                shares[worker] = sum(decided) / len(decided)
        return shares

    def best(self) -> str:
        """Return the worker with the largest share; a tie goes to the first.

        Raises:
            ConfigError: nothing was decided.
        """
        shares = self.shares()
        if not shares:
            raise ConfigError(
                "Observations: nothing was decided, expected at least one graded answer"
            )
        return max(shares, key=lambda worker: shares[worker])
