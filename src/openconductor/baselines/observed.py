"""What was observed of workers on questions: how often each was right, and what it said.

In: outcomes of an evaluation. Out: Observations, from which routers are trained and best workers
are chosen. They must come from questions that nothing is reported on.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from openconductor.errors import ConfigError
from openconductor.types import Question


@dataclass(frozen=True, slots=True)
class Observations:
    """Questions x workers: the share of right answers, and an answer.

    Attributes:
        questions: the texts that were asked.
        workers: the workers' names; a column may as well be any other system that answered them.
        right: by question and worker, the share of right answers in [0, 1]; None where none was
            decided.
        answers: by question and worker, one answer; None where there is none. Empty where answers
            are not known.

    Raises:
        ConfigError: the tables do not have that shape, a share is outside [0, 1], or a worker is
            there twice.
    """

    questions: tuple[str, ...]
    workers: tuple[str, ...]
    right: tuple[tuple[float | None, ...], ...]
    answers: tuple[tuple[str | None, ...], ...] = ()

    def __post_init__(self) -> None:
        size, width = len(self.questions), len(self.workers)
        if not size or not width or len(set(self.workers)) != width:
            raise ConfigError(
                f"Observations: got {size} questions and the workers {list(self.workers)}, expected at least one of "
                "each, and each name once"
            )
        for name, table in (("right", self.right), ("answers", self.answers or self.right)):
            widths = [len(row) for row in table]
            if widths != [width] * size:
                got = f"{len(table)} rows of {sorted(set(widths))} entries"
                raise ConfigError(f"Observations.{name}: got {got}, expected {size} of {width}")
        for share in (share for row in self.right for share in row if share is not None):
            if not 0 <= share <= 1:
                raise ConfigError(
                    f"Observations.right: got {share!r}, expected a share from 0 to 1, or None"
                )

    def shares(self) -> dict[str, float | None]:
        """Each worker's share of right answers, over the questions on which all workers were decided.

        Where there is no such question, over those on which it was decided itself; None where there
        is none of these.
        """
        common = [row for row in self.right if None not in row] or self.right
        decided = [
            [share for share in column if share is not None] for column in zip(*common, strict=True)
        ]
        means = [sum(shares) / len(shares) if shares else None for shares in decided]
        return dict(zip(self.workers, means, strict=True))

    def best(self) -> str:
        """The worker with the largest share; of several, the first.

        Raises:
            ConfigError: nothing was decided.
        """
        shares = {worker: share for worker, share in self.shares().items() if share is not None}
        if not shares:
            raise ConfigError(
                "Observations: nothing was decided, expected at least one graded answer"
            )
        return max(shares, key=lambda worker: shares[worker])


def text_of(question: Question) -> str:
    """A question as the one text that routers look at: the last turn of a chat is what is asked."""
    return question if isinstance(question, str) else question[-1].content


def oracle_observed(observations: Observations) -> tuple[tuple[float | None, str | None], ...]:
    """The best of each question in hindsight, (share, worker): a row of tables, for nothing can be served by it.

    The best of several noisy shares is above the best true share (two fair coins have an observed
    oracle of .75), so with few samples a question it flatters the pool: read it as an upper end,
    not as what a router could reach. Of several workers it is the first; both are None where
    nothing was decided.

    >>> oracle_observed(Observations(("a", "b", "c"), ("x", "y"), ((0, 1), (0.5, 0.25), (None, None))))
    ((1, 'y'), (0.5, 'x'), (None, None))
    """

    def best(row: tuple[float | None, ...]) -> tuple[float | None, str | None]:
        named = zip(row, observations.workers, strict=True)
        return max(
            ((share, worker) for share, worker in named if share is not None),
            key=itemgetter(0),
            default=(None, None),
        )

    return tuple(map(best, observations.right))
