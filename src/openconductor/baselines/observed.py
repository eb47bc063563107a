"""What was observed of workers on questions: how often each was right, and what it said.

In: outcomes of an evaluation, or JSON. Out: Observations, from which routers are trained and best workers are chosen.
They must come from questions that nothing is reported on: ``split`` keeps a part apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self, cast

from openconductor.errors import ConfigError
from openconductor.storage import write_whole
from openconductor.types import Question

VERSION = 1


@dataclass(frozen=True, slots=True)
class Observations:
    """Questions x workers: the share of right answers, and an answer.

    Attributes:
        questions: the texts that were asked.
        workers: the workers' names; a column may as well be any other system that answered them.
        right: by question and worker, the share of right answers in [0, 1]; None where none was decided.
        answers: by question and worker, one answer; None where there is none. Empty where answers are not known.

    Raises:
        ConfigError: the tables do not have that shape, a share is outside [0, 1], or a worker stands there twice.
    """

    questions: tuple[str, ...]
    workers: tuple[str, ...]
    right: tuple[tuple[float | None, ...], ...]
    answers: tuple[tuple[str | None, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("questions", "workers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("right", "answers"):
            object.__setattr__(self, name, tuple(tuple(row) for row in getattr(self, name)))
        if not self.questions or not self.workers:
            raise ConfigError(
                f"Observations: got {len(self.questions)} questions and {len(self.workers)} workers, expected at "
                "least one of each"
            )
        if len(set(self.workers)) != len(self.workers):
            raise ConfigError(f"Observations.workers: got {list(self.workers)}, expected each name once")
        for name, table in (("right", self.right), ("answers", self.answers)):
            self._check_shape(name, table)
        for row in self.right:
            for share in row:
                if share is not None and not 0 <= share <= 1:
                    raise ConfigError(f"Observations.right: got {share!r}, expected a share from 0 to 1, or None")

    def _check_shape(self, name: str, table: Sequence[Sequence[object]]) -> None:
        if name == "answers" and not table:
            return
        if len(table) != len(self.questions) or any(len(row) != len(self.workers) for row in table):
            widths = sorted({len(row) for row in table})
            raise ConfigError(
                f"Observations.{name}: got {len(table)} rows of {widths} entries, expected {len(self.questions)} of "
                f"{len(self.workers)}"
            )

    def split(self, share: float, seed: int) -> tuple[Observations, Observations]:
        """Two disjoint parts: the first holds ``share`` of the different questions, equal texts stay together.

        The draw depends on the seed and each question's text alone, not on the order or number of the others' columns.

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
        inside = [index for index, text in enumerate(self.questions) if text in first]
        outside = [index for index, text in enumerate(self.questions) if text not in first]
        return self.rows(inside), self.rows(outside)

    def decided(self) -> Observations:
        """The observations without the workers of which nothing was decided: of these nothing is known.

        Raises:
            ConfigError: nothing was decided of any.
        """
        kept = [at for at in range(len(self.workers)) if any(row[at] is not None for row in self.right)]
        if not kept:
            raise ConfigError("Observations: nothing was decided, expected at least one graded answer")
        return Observations(
            self.questions,
            tuple(self.workers[at] for at in kept),
            tuple(tuple(row[at] for at in kept) for row in self.right),
            tuple(tuple(row[at] for at in kept) for row in self.answers),
        )

    def rows(self, indices: Iterable[int]) -> Observations:
        """The observations of some questions, in the order given."""
        kept = list(indices)
        return Observations(
            tuple(self.questions[index] for index in kept),
            self.workers,
            tuple(self.right[index] for index in kept),
            tuple(self.answers[index] for index in kept) if self.answers else (),
        )

    def shares(self) -> dict[str, float | None]:
        """Each worker's share of right answers, over the questions on which all workers were decided.

        Where there is no such question, over those on which it was decided itself; None where there is none of these.
        """
        common = [row for row in self.right if None not in row]
        shares: dict[str, float | None] = {}
        for column, worker in enumerate(self.workers):
            decided = [share for row in common or self.right if (share := row[column]) is not None]
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

    def to_json(self) -> dict[str, object]:
        """The observations as plain values."""
        return {
            "version": VERSION,
            "questions": list(self.questions),
            "workers": list(self.workers),
            "right": [list(row) for row in self.right],
            "answers": [list(row) for row in self.answers],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The observations of ``to_json``'s values.

        Raises:
            ConfigError: they are none.
        """
        expect(data, "observations", VERSION)
        return cls(*(cast("Any", field(data, name, "observations")) for name in _FIELDS))


_FIELDS = ("questions", "workers", "right", "answers")


def text_of(question: Question) -> str:
    """A question as the one text that routers look at: the last turn of a chat is what is asked."""
    return question if isinstance(question, str) else question[-1].content


# ── JSON files ───────────────────────────────────────────────────────────────────────────────────────────────────────
def expect(data: object, what: str, version: int) -> None:
    """Make sure that JSON values are a mapping of a version that is known.

    Raises:
        ConfigError: they are not.
    """
    found = cast("Mapping[str, object]", data).get("version") if isinstance(data, Mapping) else None
    if found != version:
        raise ConfigError(f"{what}: got version {found!r}, expected {version}")


def field(data: object, name: str, what: str) -> object:
    """One entry of a JSON mapping.

    Raises:
        ConfigError: it is not there, or the values are no mapping.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{what}: got {data!r}, expected a mapping")
    entries = cast("Mapping[str, object]", data)
    if name not in entries:
        raise ConfigError(f"{what}: missing {name!r}, expected it among {sorted(entries)}")
    return entries[name]


def save_json(data: Mapping[str, object], path: str | Path) -> None:
    """Write plain values as JSON, whole; an existing file is replaced.

    Raises:
        JournalError: it could not be written.
    """
    write_whole(Path(path), json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def load_json(path: str | Path) -> Mapping[str, Any]:
    """Read plain values.

    Raises:
        ConfigError: the file is not there, or holds no JSON object.
    """
    try:
        data: object = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; expected a JSON file") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: got {type(data).__name__}, expected a JSON object")
    return cast("Mapping[str, Any]", data)
