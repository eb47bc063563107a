"""What an evaluation keeps: records, and the folder of a run with its results.

In: Outcomes; a run's folder. Out: Records, which hold everything that tables, reports and plots
need and go into the run's journal as JSON; Results, which those are made of.

The order of Results is that of systems and tasks in the recipe, then of the problems' ids and the
repeats: never the order in which answers came, so that a resumed run reads as an uninterrupted one.
Conversations are in the journal.
"""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import json
import platform
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from openconductor.baselines.observed import Observations, oracle_observed
from openconductor.config import needing
from openconductor.errors import ConfigError, JournalError, WorkflowError, caused_by_plan
from openconductor.evaluation import Outcome
from openconductor.evaluation.eval_config import (
    ALONE,
    HINDSIGHT,
    MOST_REPEATS,
    EvalConfig,
    differences,
    dump_eval_config,
    expand,
    make_eval_config,
    what_differs,
)
from openconductor.evaluation.statistics import Key
from openconductor.ledger import draw_entries
from openconductor.measures import group_by
from openconductor.store import Store, StoreReader, read_store
from openconductor.store.serialisation import load, plain
from openconductor.store.storage import write_whole
from openconductor.types import Price, Round, Usage, Workflow

if TYPE_CHECKING:
    from pandas import DataFrame

    from openconductor.sandboxes import Sandbox

Plain = Mapping[str, object]
"""Values as JSON has them."""
Status = Literal["graded", "unparsed", "invalid", "refused", "ungraded", "failed"]
"""What became of a question.

- ``graded``: the grader said right or wrong.
- ``unparsed``: wrong, for the grader found no answer in the text (its note begins so).
- ``invalid``: wrong, for the plan was not a workflow.
- ``refused``: wrong, by the plan's own doing: a refusal, a context too long, the question's budget spent.
- ``ungraded``: masked, for the grader or its sandbox could not decide.
- ``failed``: masked, for transport, provider or time failed.
"""
MASKED: tuple[Status, ...] = ("ungraded", "failed")


# ── records ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round.

    Attributes:
        workflow: what was planned; None where nothing valid was. A workflow without steps accepts.
        planned: whether a Conductor wrote it (a baseline's round has no completion).
        reason: of a text that is not a workflow; "" otherwise.
        outcomes: of each step, in order: that of its last call; "" where it was not reached.
    """

    workflow: Workflow | None
    planned: bool = False
    reason: str = ""
    outcomes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One problem (its id), asked for the ``sample``-th time, from 0, of one system.

    Attributes:
        correct: right, wrong, or undecided (None: masked, never counted as wrong); ``status`` says
            why.
        extracted, note: what the grader read off the answer, and what it said.
        calls: attempts at workers and planner, those of nested orchestrators included once.
        usage, seconds: everything it cost; wall time.
        episode: the episode's id in the journal.
        error: the class and message of the error that ended it; "" where there was none.
    """

    system: str
    task: str
    problem: str
    sample: int
    kind: str
    correct: bool | None
    status: Status
    answer: str | None
    extracted: str | None
    note: str
    rounds: tuple[RoundRecord, ...]
    calls: int
    usage: Usage
    seconds: float
    episode: str = ""
    error: str = ""

    @property
    def key(self) -> Key:
        """The question: its task and id."""
        return self.task, self.problem

    @property
    def cell(self) -> tuple[str, str, str, int]:
        """The place in the evaluation: system, task, problem, sample."""
        return self.system, self.task, self.problem, self.sample

    @property
    def valid(self) -> bool | None:
        """Whether the first round's text was a workflow; None where no Conductor wrote any.

        A planner that could not be reached wrote none; one that declined, or was asked too much,
        wrote an invalid one.
        """
        first = self.rounds[0] if self.rounds else None
        if first is None or not first.planned:
            return None
        if first.workflow is None and not first.reason and self.status in MASKED:
            return None
        return first.workflow is not None

    @property
    def cut(self) -> bool:
        """Whether a worker's answer was cut at its token limit; it is graded like any other."""
        return any("cut" in one.outcomes for one in self.rounds)

    @property
    def workflows(self) -> tuple[Workflow, ...]:
        """The workflows of all rounds, those that only accept left out."""
        return tuple(
            one.workflow for one in self.rounds if one.workflow is not None and one.workflow.steps
        )


def record_of(outcome: Outcome, *, system: str, task: str | None = None) -> Record:
    """What is kept of an outcome of the system of this name; ``task`` is the problem's own by default."""
    episode, grade, problem, error = (
        outcome.episode,
        outcome.grade,
        outcome.problem,
        outcome.episode.error,
    )
    status: Status = "graded"
    if error is not None:
        status = (
            "invalid"
            if isinstance(error, WorkflowError)
            else "refused"
            if caused_by_plan(error)
            else "failed"
        )
    elif grade is None or grade.correct is None:
        status = "ungraded"
    elif not grade.correct and grade.note.startswith("unparsed"):
        status = "unparsed"
    return Record(
        system=system,
        task=problem.task if task is None else task,
        problem=problem.id,
        sample=outcome.sample,
        kind=problem.kind,
        correct=outcome.correct,
        status=status,
        answer=episode.answer,
        extracted=grade.extracted if grade is not None else None,
        note=grade.note if grade is not None else "",
        rounds=tuple(map(_round, episode.rounds)),
        calls=sum(len(entry.attempts) for entry in draw_entries(episode)),
        usage=episode.usage,
        seconds=episode.seconds,
        episode=episode.id,
        error="" if error is None else f"{type(error).__name__}: {error}",
    )


def sample_number(system: str, task: str, problem: str, repeat: int) -> int:
    """The sample number of a cell's calls, below 2**53: 41 bits of a digest, then the repeat.

    It tells its calls from all others, to the journal and to simulated workers, and depends on no
    order and on no other cell. Two systems get two completions of the same call; where they share
    calls, ``system`` is "".

    >>> sample_number("", "gym", "gym-1", 3) - sample_number("", "gym", "gym-1", 0)
    3
    """
    named = json.dumps([system, task, problem]).encode()
    digest = int.from_bytes(blake2b(named, digest_size=8, person=b"oc-sample").digest(), "big")
    return (digest >> 23) * MOST_REPEATS + repeat


def kept_records(journal: StoreReader) -> list[Record]:
    """Return the records in a journal, the newest of each cell, in the order of writing.

    Raises:
        JournalError: what is kept is not a record.
    """
    try:
        found = [load(Record, one.value) for one in journal.records()]
    except ValueError as error:
        raise JournalError(
            f"{journal!r}: got a record that is not an evaluation's: {error}"
        ) from error
    return list({one.cell: one for one in found}.values())


def keep_record(journal: Store, record: Record) -> None:
    """Write a record into the journal of its evaluation."""
    journal.put_record(json.dumps(record.cell), cast("dict[str, Any]", plain(record)))


def _round(one: Round) -> RoundRecord:
    results = one.transcript.results if one.transcript is not None else ()
    reason = one.error.reason.value if isinstance(one.error, WorkflowError) else ""
    ended = tuple(result.calls[-1].outcome if result.calls else "" for result in results)
    return RoundRecord(one.workflow, one.completion is not None or bool(one.calls), reason, ended)


# ── the folder of a run ───────────────────────────────────────────────────────────────────────────
CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
JOURNAL = "journal.sqlite"
_PACKAGES = (
    "openconductor",
    "httptools",
    "numpy",
    "safetensors",
    "scikit-learn",
    "scipy",
    "tokenizers",
    "math-verify",
)


def check_folder(folder: Path, config: EvalConfig, inputs: Plain) -> None:
    """Raise a ConfigError where a folder holds something else than this evaluation, or another one."""
    if not (folder / CONFIG).is_file():
        if folder.exists() and not folder.is_dir():
            raise ConfigError(
                f"{folder}: is no folder, expected a new folder or one of an evaluation"
            )
        for name in sorted(
            path.name for path in folder.glob("*")
        ):  # else a kill before the recipe left it
            if name.removesuffix(".part") not in (
                CONFIG,
                ENVIRONMENT,
                JOURNAL,
            ) and not name.startswith(f"{JOURNAL}-"):
                raise ConfigError(
                    f"{folder}: holds {name!r}, expected a new folder or one of an evaluation"
                )
        return
    before, environment = read_folder(folder)
    if found := differences(before, config) or what_differs(environment.get("inputs"), inputs):
        raise ConfigError(
            f"{folder}: its evaluation is another one: {'; '.join(found)}; expected the same, or a new folder (--out)"
        )


def write_folder(folder: Path, config: EvalConfig, inputs: Plain, sandbox: Sandbox | None) -> None:
    """Say in a new folder what the run is; in one that has said so, what has changed since (``resumed``)."""
    packages: dict[str, str | None] = dict.fromkeys(_PACKAGES)
    for name in packages:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    now = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "sandbox": None if sandbox is None else sandbox.level,
    }
    told: dict[str, Any] = {**now, "inputs": inputs}
    if (folder / CONFIG).is_file():
        told = dict(read_folder(folder)[1])
        changed = what_differs({name: told.get(name) for name in now}, now)
        if changed and changed not in told.get("resumed", []):
            told["resumed"] = [*told.get("resumed", []), changed]
    write_whole(folder / ENVIRONMENT, json.dumps(told, indent=2) + "\n")
    write_whole(folder / CONFIG, dump_eval_config(config))  # last: without it there is no run yet


def holds(folder: Path, config: EvalConfig) -> bool:
    """Whether the run in a folder was told the same, with files at the same places (``check_folder`` reads these)."""
    try:
        return not differences(read_folder(folder)[0], config, places=True)
    except ConfigError:
        return False


def read_folder(folder: Path) -> tuple[EvalConfig, Plain]:
    """The recipe and the environment of the run in a folder.

    Raises:
        ConfigError: no evaluation is there.
    """
    try:
        values = tomllib.loads((folder / CONFIG).read_text("utf-8"))
        config = make_eval_config(values, where=str(folder / CONFIG))
        environment: object = json.loads((folder / ENVIRONMENT).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: {error}; expected the folder of an evaluation") from error
    if not isinstance(environment, dict):
        raise ConfigError(
            f"{folder / ENVIRONMENT}: got {type(environment).__name__}, expected an object"
        )
    return config, cast("Plain", environment)


# ── results ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Results:
    """The records of one evaluation.

    Attributes:
        systems: the rows' names, in the recipe's order.
        workers, prices: names by ordinal; prices by name, None where not known.
        expected: how many records a whole evaluation has for each task.
        records: what was asked of the systems, in order.
        learning: what the workers were asked for the trained baselines and for hindsight alone; in
            no table.
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
            JournalError: its journal cannot be read, or a record in it.
        """
        folder = Path(folder)
        config, environment = read_folder(folder)
        with read_store(folder / JOURNAL) as journal:
            records = kept_records(journal)
        try:
            inputs = cast("Mapping[str, Any]", environment["inputs"])
            workers = {one["ordinal"]: str(one["name"]) for one in inputs["workers"]}
            prices = {
                str(one["name"]): one["price"] and load(Price, one["price"])
                for one in inputs["workers"]
            }
            asked = {
                name: one["problems"] * config.repeats for name, one in inputs["tasks"].items()
            }
        except (KeyError, TypeError, ValueError) as error:
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
            ConfigError: the recipe names a system that there is not, or two records are of the same
                repeat.
        """
        tasks = [table.name for table in config.task]
        systems = tuple(spec.name for spec in expand(config.specs, workers.values()))
        everything = sorted(records, key=lambda record: (record.problem, record.sample))
        cells = Counter(one.cell for one in everything)
        if len(cells) < len(everything):
            raise ConfigError(
                f"records: got {cells.most_common(1)[0][0]} more than once, expected each repeat once"
            )
        inside = [record for record in everything if record.task in tasks]
        if HINDSIGHT in systems:
            inside += hindsight(inside, list(workers.values()))
        ours = [record for record in inside if record.system in systems]
        ours.sort(
            key=lambda record: (systems.index(record.system), tasks.index(record.task))
        )  # stable
        others = [
            record
            for record in everything
            if record.task not in tasks or record.system not in systems
        ]
        others.sort(key=lambda record: (record.task, record.system))
        return cls(
            config,
            systems,
            dict(workers),
            dict(prices or {}),
            dict(expected or {}),
            tuple(ours),
            tuple(others),
        )

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks' names, in the recipe's order."""
        return tuple(table.name for table in self.config.task)

    def of(self, system: str, task: str | None = None) -> tuple[Record, ...]:
        """The records of one system, of one task or of all."""
        return tuple(
            one for one in self.records if one.system == system and task in (None, one.task)
        )

    def frame(self) -> DataFrame:
        """Return a pandas frame of ``records``, with a row an answer; it needs the extra ``eval``.

        Texts are ``string`` and missing ones ``<NA>``; counts are ``int64``; yes and no are
        ``boolean`` with ``<NA>`` for unknown.

        - ``system task problem kind`` (string), ``sample`` (int64, from 0): who was asked what.
        - ``correct`` (boolean), ``score`` (float64: 1 right, 0 wrong, NaN masked), ``status``
          (string, one of ``Status``).
        - ``answer extracted note`` (string): the answer, what the grader read off it, and its note.
        - ``valid`` (boolean): whether the first plan was a workflow; <NA>: no Conductor planned.
        - ``cut`` (bool): whether a worker's answer was cut at its token limit.
        - ``rounds steps calls`` (int64): rounds, steps of all rounds, and attempts at calls.
        - ``input_tokens cached_tokens output_tokens reasoning_tokens`` (int64): tokens of all calls.
        - ``dollars`` (float64): US dollars of the priced calls; ``unpriced_calls`` (int64).
        - ``seconds work_seconds`` (float64): wall time, and work summed over calls.
        - ``episode error`` (string): the episode's id in the journal; the error or "".

        Raises:
            ConfigError: pandas is not installed.
        """
        with needing("Results.frame", "eval"):
            from openconductor.evaluation.frames import frame_of

            return frame_of(self.records)

    def by_row(self) -> dict[tuple[str, str], list[Record]]:
        """The records of every system on every task; a row that was never asked is empty."""
        rows = {(system, task): list[Record]() for system in self.systems for task in self.tasks}
        for record in self.records:
            rows[record.system, record.task].append(record)
        return rows

    @property
    def missing(self) -> int:
        """How many records a whole evaluation would have beyond those that are there."""
        whole = sum(self.expected.get(task, 0) for task in self.tasks) * len(self.systems)
        return max(0, whole - len(self.records))


def observations(
    records: Iterable[Record], questions: Mapping[str, str], workers: Sequence[str]
) -> Observations:
    """What was seen of workers that answered alone (systems ``worker:NAME``), a row a question, a column a worker.

    ``questions`` are texts by problem id. A cell is the share of right answers among the decided
    repeats, and the first repeat's answer.

    Raises:
        ConfigError: there are no questions, or no workers.
    """
    seen = group_by(
        sorted(records, key=lambda one: one.sample), lambda one: (one.problem, one.system)
    )
    cells = [
        [seen.get((problem, ALONE + worker), []) for worker in workers] for problem in questions
    ]
    decided = [
        [[float(one.correct) for one in cell if one.correct is not None] for cell in row]
        for row in cells
    ]
    return Observations(
        tuple(questions.values()),
        tuple(workers),
        tuple(tuple(fmean(cell) if cell else None for cell in row) for row in decided),
        tuple(tuple(cell[0].answer if cell else None for cell in row) for row in cells),
    )


def hindsight(records: Sequence[Record], workers: Sequence[str]) -> list[Record]:
    """For each problem the records of the worker that did best on it, as those of a system of its own.

    What was not decided for any worker is the first one's record: masked. Of ties the first worker
    counts.
    """
    found: list[Record] = []
    for task in sorted({record.task for record in records}):
        alone = [
            record for record in records if record.task == task and record.system.startswith(ALONE)
        ]
        problems = {record.problem: record.problem for record in alone}
        best = oracle_observed(observations(alone, problems, workers)) if alone else ()
        chosen = {
            (problem, ALONE + (one or workers[0]))
            for problem, (_, one) in zip(problems, best, strict=True)
        }
        found += [
            replace(one, system=HINDSIGHT) for one in alone if (one.problem, one.system) in chosen
        ]
    return found


# ── latency ───────────────────────────────────────────────────────────────────────────────────────
def latency(results: Results) -> list[dict[str, object]]:
    """One object a system and task: quantiles of its episodes' wall time, and seconds of its workers' work.

    An episode's seconds run from asking to answer, waits for limits among them. What was answered
    from a journal took next to nothing: a run that was cut off and resumed says less about latency
    than one that was not.
    """
    rows: list[dict[str, object]] = []
    for (system, task), records in results.by_row().items():
        seconds = [record.seconds for record in records]
        cuts = (
            quantiles(seconds, n=20, method="inclusive")
            if len(seconds) > 1
            else seconds * 19 or [None] * 19
        )
        rows.append(
            {
                "system": system,
                "task": task,
                "episodes": len(records),
                "p50_seconds": cuts[9],
                "p95_seconds": cuts[18],
                "mean_seconds": fmean(seconds) if seconds else None,
                "work_seconds": fmean(record.usage.seconds for record in records)
                if records
                else None,
            }
        )
    return rows
