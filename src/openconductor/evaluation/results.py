"""What an evaluation found: its records, in one order, with what is needed to read them.

In: the folder of a run. Out: Results, which tables, reports and plots are made of; Observations of workers, which
trained baselines learn from. Nothing is computed here but what looks back: the rows of ``oracle_observed``.

The order is that of systems and tasks in the recipe, then of the problems' ids and the repeats: never the order in
which answers came, so that a resumed run reads as an uninterrupted one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any, Self, cast

from openconductor.baselines.observed import Observations, oracle_observed
from openconductor.errors import ConfigError
from openconductor.evaluation.config import EvalConfig
from openconductor.evaluation.folder import JOURNAL, read_folder
from openconductor.evaluation.records import Record, from_json
from openconductor.evaluation.specs import HINDSIGHT, WORKER, expand
from openconductor.journal import JournalReader
from openconductor.types import Price


@dataclass(frozen=True, slots=True)
class Results:
    """The records of one evaluation.

    Attributes:
        config: the recipe.
        systems: the rows' names, in the recipe's order.
        workers: names by ordinal.
        prices: US dollars a million tokens by the worker's name; None is not known.
        expected: how many records a whole evaluation has for each task.
        records: what was asked of the systems, in order.
        learning: what the workers were asked for the trained baselines and for hindsight alone; in no table.
    """

    config: EvalConfig
    systems: tuple[str, ...]
    workers: Mapping[int, str]
    prices: Mapping[str, Price | None]
    expected: Mapping[str, int]
    records: tuple[Record, ...]
    learning: tuple[Record, ...] = ()

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a run, whole or not.

        Raises:
            ConfigError: the folder holds no evaluation.
            JournalError: its journal cannot be read, or a record in it is none.
        """
        folder = Path(folder)
        config, environment = read_folder(folder)
        with JournalReader(folder / JOURNAL) as journal:
            records = [from_json(one.record) for one in journal.outcomes()]
        try:
            inputs = cast("Mapping[str, Any]", environment["inputs"])
            workers = {one["ordinal"]: str(one["name"]) for one in inputs["workers"]}
            prices = {str(one["name"]): _price(one["price"]) for one in inputs["workers"]}
            asked = {name: one["problems"] * config.repeats for name, one in inputs["tasks"].items()}
        except (KeyError, TypeError, ArithmeticError) as error:
            raise ConfigError(
                f"{folder}: {error!r} in its description; expected the folder of an evaluation"
            ) from error
        return cls.of_records(config, records, workers=workers, prices=prices, expected=asked)

    @classmethod
    def of_records(
        cls,
        config: EvalConfig,
        records: Iterable[Record],
        *,
        workers: Mapping[int, str],
        prices: Mapping[str, Price | None] | None = None,
        expected: Mapping[str, int] | None = None,
    ) -> Self:
        """Put records in order, and look back over them where the recipe asks for that.

        Raises:
            ConfigError: the recipe names a system that there is not, or two records are of the same repeat.
        """
        tasks = [table.name for table in config.task]
        systems = tuple(spec.name for spec in expand(config.systems, workers.values()))
        everything = sorted(records, key=lambda record: (record.problem, record.sample))
        cells = Counter((one.system, one.task, one.problem, one.sample) for one in everything)
        if len(cells) < len(everything):
            raise ConfigError(f"records: got {cells.most_common(1)[0][0]} more than once, expected each repeat once")
        inside = [record for record in everything if record.task in tasks]
        if HINDSIGHT in systems:
            inside += hindsight(inside, list(workers.values()))
        ours = [record for record in inside if record.system in systems]
        ours.sort(key=lambda record: (systems.index(record.system), tasks.index(record.task)))  # stable
        others = [record for record in everything if record.task not in tasks or record.system not in systems]
        others.sort(key=lambda record: (record.task, record.system))
        return cls(config, systems, dict(workers), dict(prices or {}), dict(expected or {}), tuple(ours), tuple(others))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks' names, in the recipe's order."""
        return tuple(table.name for table in self.config.task)

    def of(self, system: str, task: str | None = None) -> tuple[Record, ...]:
        """The records of one system, of one task or of all."""
        return tuple(one for one in self.records if one.system == system and task in (None, one.task))

    def by_row(self) -> dict[tuple[str, str], list[Record]]:
        """The records of every system on every task, in one pass; a row that was never asked is empty."""
        rows: dict[tuple[str, str], list[Record]] = {
            (system, task): [] for system in self.systems for task in self.tasks
        }
        for record in self.records:
            rows[record.system, record.task].append(record)
        return rows

    @property
    def missing(self) -> int:
        """How many records a whole evaluation would have beyond those that are there."""
        whole = sum(self.expected.get(task, 0) for task in self.tasks) * len(self.systems)
        return max(0, whole - len(self.records))


def observations(records: Iterable[Record], questions: Mapping[str, str], workers: Sequence[str]) -> Observations:
    """What was seen of workers that answered alone.

    Args:
        records: of the systems ``worker:NAME``; others are passed over.
        questions: texts by problem id; the records of other problems are passed over.
        workers: the columns.

    Returns:
        A row a question, in the order given: the share of right answers among the repeats that were decided, and the
        first repeat's answer.

    Raises:
        ConfigError: there are no questions, or no workers.
    """
    seen: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        seen.setdefault((record.problem, record.system), []).append(record)
    cells = [[seen.get((problem, f"{WORKER}:{worker}"), []) for worker in workers] for problem in questions]
    return Observations(
        tuple(questions.values()),
        tuple(workers),
        tuple(tuple(_share(of_one) for of_one in row) for row in cells),
        tuple(tuple(_first_answer(of_one) for of_one in row) for row in cells),
    )


def hindsight(records: Sequence[Record], workers: Sequence[str]) -> list[Record]:
    """For each problem the records of the worker that did best on it, as those of a system of its own.

    What was not decided for any worker is the first one's record: masked. Of ties the first worker counts.
    """
    found: list[Record] = []
    for task in sorted({record.task for record in records}):
        alone = [record for record in records if record.task == task and record.system.startswith(f"{WORKER}:")]
        if not alone:
            continue
        problems = {record.problem: record.problem for record in alone}
        ids = list(problems)
        cells: dict[tuple[str, str], list[Record]] = {}
        for record in alone:
            cells.setdefault((record.problem, record.system), []).append(record)
        for best in oracle_observed(observations(alone, problems, workers)):
            name = f"{WORKER}:{best.worker or workers[0]}"
            found += [replace(record, system=HINDSIGHT) for record in cells.get((ids[best.question], name), ())]
    return found


def _share(records: Sequence[Record]) -> float | None:
    decided = [float(record.correct) for record in records if record.correct is not None]
    return fmean(decided) if decided else None


def _first_answer(records: Sequence[Record]) -> str | None:
    return min(records, key=lambda record: record.sample).answer if records else None


def _price(value: Mapping[str, str] | None) -> Price | None:
    return None if value is None else Price(**{name: Decimal(amount) for name, amount in value.items()})
