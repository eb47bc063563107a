"""What was observed of workers on questions: how often each was right, and what it said.

In: outcomes of an evaluation. Out: Observations, from which routers are trained and best workers are chosen. They must
come from questions that nothing is reported on: ``split`` keeps a part apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from openconductor.errors import ConfigError
from openconductor.types import Question


@dataclass(frozen=True, slots=True)
class Observations:
    """Questions x workers: the share of right answers, and an answer.

    Attributes:
        questions: the texts that were asked.
        workers: the workers' names; a column may as well be any other system that answered them.
        right: by question and worker, the share of right answers in [0, 1]; None where none was decided.
        answers: by question and worker, one answer; None where there is none. Empty where answers are not known.

    Raises:
        ConfigError: the tables do not have that shape, a share is outside [0, 1], or a worker is there twice.
    """

    questions: tuple[str, ...]
    workers: tuple[str, ...]
    right: tuple[tuple[float | None, ...], ...]
    answers: tuple[tuple[str | None, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.questions or not self.workers:
            raise ConfigError(
                f"Observations: got {len(self.questions)} questions and {len(self.workers)} workers, expected at "
                "least one of each"
            )
        if len(set(self.workers)) != len(self.workers):
            raise ConfigError(f"Observations.workers: got {list(self.workers)}, expected each name once")
        for name, table in (("right", self.right), ("answers", self.answers or self.right)):
            widths = sorted({len(row) for row in table})
            if len(table) != len(self.questions) or widths != [len(self.workers)]:
                raise ConfigError(
                    f"Observations.{name}: got {len(table)} rows of {widths} entries, expected {len(self.questions)} "
                    f"of {len(self.workers)}"
                )
        for share in (share for row in self.right for share in row if share is not None):
            if not 0 <= share <= 1:
                raise ConfigError(f"Observations.right: got {share!r}, expected a share from 0 to 1, or None")

    def split(self, share: float, seed: int) -> tuple[Observations, Observations]:
        """Two disjoint parts: the first holds ``share`` of the different questions, equal texts stay together.

        The draw depends on the seed and each question's text alone, not on the order.

        Raises:
            ConfigError: a part would be empty.
        """
        texts = sorted(
            set(self.questions), key=lambda text: blake2b(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
        )
        size = round(share * len(texts))
        if not 0 < size < len(texts):
            raise ConfigError(
                f"Observations.split: got {share} of {len(texts)} questions, expected two parts with some"
            )
        first = set(texts[:size])
        parts = (
            [at for at, text in enumerate(self.questions) if (text in first) is wanted] for wanted in (True, False)
        )
        inside, outside = map(self.rows, parts)
        return inside, outside

    def rows(self, indices: Iterable[int]) -> Observations:
        """The observations of some questions, in the order given."""
        kept = list(indices)
        answers = tuple(self.answers[at] for at in kept) if self.answers else ()
        return Observations(
            tuple(self.questions[at] for at in kept), self.workers, tuple(self.right[at] for at in kept), answers
        )

    def shares(self) -> dict[str, float | None]:
        """Each worker's share of right answers, over the questions on which all workers were decided.

        Where there is no such question, over those on which it was decided itself; None where there is none of these.
        """
        common = [row for row in self.right if None not in row] or self.right
        shares: dict[str, float | None] = {}
        for column, worker in enumerate(self.workers):
            decided = [share for row in common if (share := row[column]) is not None]
            shares[worker] = sum(decided) / len(decided) if decided else None
        return shares

    def best(self) -> str:
        """The worker with the largest share; of several, the first.

        Raises:
            ConfigError: nothing was decided.
        """
        shares = {worker: share for worker, share in self.shares().items() if share is not None}
        if not shares:
            raise ConfigError("Observations: nothing was decided, expected at least one graded answer")
        return max(shares, key=lambda worker: shares[worker])


def text_of(question: Question) -> str:
    """A question as the one text that routers look at: the last turn of a chat is what is asked."""
    return question if isinstance(question, str) else question[-1].content


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The best of one question.

    Attributes:
        question: its index in the observations.
        right: the largest share of right answers; None where nothing was decided.
        worker: who reached it, of several the first; None where nothing was decided.
    """

    question: int
    right: float | None
    worker: str | None


def oracle_observed(observations: Observations) -> tuple[Hindsight, ...]:
    """The best worker of each question, in hindsight: a row of tables, for nothing can be served by it.

    The best of several noisy shares is above the best true share (two fair coins have an observed oracle of .75), so
    with few samples a question it flatters the pool: read it as an upper end, not as what a router could reach.

    >>> seen = Observations(("a", "b", "c"), ("x", "y"), ((0, 1), (0.5, 0.25), (None, None)))
    >>> [(best.right, best.worker) for best in oracle_observed(seen)]
    [(1, 'y'), (0.5, 'x'), (None, None)]
    """
    rows: list[Hindsight] = []
    for index, row in enumerate(observations.right):
        decided = [(share, -column) for column, share in enumerate(row) if share is not None]
        share, place = max(decided, default=(None, None))
        rows.append(Hindsight(index, share, None if place is None else observations.workers[-place]))
    return tuple(rows)
