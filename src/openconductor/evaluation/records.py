"""What an evaluation keeps: a Record of each answer, and the folder of a run with its Results.

Records hold everything that tables, reports and plots need. They go into the run's journal as JSON.
Conversations are in the journal, too.

Results are in the order of systems and tasks in the recipe, then of the problems' ids and the
repeats. It never is the order in which answers came, so that a resumed run reads as an
uninterrupted one.
"""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import json
import platform
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from openconductor.baselines.observed import Observations
from openconductor.calls.cards import Calibration, Calibrations
from openconductor.config import needing, read_toml
from openconductor.errors import (
    ConfigError,
    JournalError,
    RateLimited,
    WorkflowError,
    caused_by_plan,
)
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
from openconductor.types import Episode, Price, Round, Usage, Workflow

if TYPE_CHECKING:
    from pandas import DataFrame

    from openconductor.pool import WorkerPool
    from openconductor.sandboxes import Sandbox

Plain = Mapping[str, object]
"""Values as JSON has them."""
Cell = tuple[str, str, str, int]
"""A system, a task, the id of a problem, and a repeat from 0."""
Status = Literal[
    "graded", "judged", "unparsed", "undecided", "invalid", "refused", "ungraded", "failed"
]
"""The fate of a question.

- ``graded``: the grader said right or wrong.
- ``judged``: the recipe's judge said right or wrong, because the rules could not decide.
- ``unparsed``: wrong, because the grader found no answer in the text (its note begins so).
- ``undecided``: wrong, because the rules could not decide, and the recipe counts that as wrong.
- ``invalid``: wrong, because the plan was not a workflow.
- ``refused``: wrong, because of the plan: a refusal, a context too long, its budget spent.
- ``ungraded``: masked, because the grader, its sandbox or its judge could not decide.
- ``failed``: masked, because transport, provider or time failed.
"""
MASKED: tuple[Status, ...] = ("ungraded", "failed")


# ── records ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round.

    Attributes:
        workflow: None: the plan was invalid. A workflow without steps accepts.
        planned: True if a Conductor wrote it; a baseline's round has no completion.
        reason: why a text is not a workflow; "": it is one.
        outcomes: of each step, in order, the outcome of its last call; "": it was not reached.
    """

    workflow: Workflow | None
    planned: bool = False
    reason: str = ""
    outcomes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One problem, asked once of one system.

    Attributes:
        problem: its id.
        sample: the repeat, from 0.
        correct: right, wrong, or None: undecided, and never counted as wrong. ``status`` says why.
        extracted, note: what the grader read off the answer, and its remark.
        calls: attempts at workers and planner, with those of nested orchestrators, without those
            that a server rejected for their rate.
        usage, seconds: everything it cost; wall time.
        episode: the episode's id in the journal.
        error: the class and message of the error that ended it; "": none.
        judged_by: of a program, the way that it was judged (``Grade.judged_by``); "": no program.
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
    judged_by: str = ""

    @property
    def key(self) -> Key:
        """The question: its task and id."""
        return self.task, self.problem

    @property
    def cell(self) -> Cell:
        """The place in the evaluation."""
        return self.system, self.task, self.problem, self.sample

    @property
    def valid(self) -> bool | None:
        """True if the first round's text was a workflow; None: no Conductor wrote a text.

        A planner that could not be reached wrote none. One that declined, or got too long a
        context, wrote an invalid one.
        """
        if not self.rounds or not self.rounds[0].planned:
            return None
        first = self.rounds[0]
        if first.workflow is not None:
            return True
        mended = len(self.rounds) > 1
        if (mended or self.status in MASKED) and not first.reason:
            return None
        return False

    @property
    def unplanned(self) -> bool:
        """True if a Conductor was asked, and its first round had no valid plan."""
        first = self.rounds[0] if self.rounds else RoundRecord(None)
        return first.planned and first.workflow is None

    @property
    def cut(self) -> bool:
        """True if a worker's answer was cut at its token limit; it is graded like any other."""
        return any("cut" in one.outcomes for one in self.rounds)

    @property
    def workflows(self) -> tuple[Workflow, ...]:
        """The workflows of all rounds, without those that only accept."""
        workflows = [one.workflow for one in self.rounds]
        return tuple(workflow for workflow in workflows if workflow)


def record_of(outcome: Outcome, *, system: str, task: str | None = None) -> Record:
    """Make the record of an outcome; ``task`` None: the problem's own."""
    episode, grade, problem = outcome.episode, outcome.grade, outcome.problem
    error = episode.error
    return Record(
        system=system,
        task=problem.task if task is None else task,
        problem=problem.id,
        sample=outcome.sample,
        kind=problem.kind,
        correct=outcome.correct,
        status=_status(outcome),
        answer=episode.answer,
        extracted=None if grade is None else grade.extracted,
        note="" if grade is None else grade.note,
        rounds=tuple(_round_record(one) for one in episode.rounds),
        calls=_count_calls(episode),
        usage=episode.usage,
        seconds=episode.seconds,
        episode=episode.id,
        error="" if error is None else f"{type(error).__name__}: {error}",
        judged_by="" if grade is None else grade.judged_by,
    )


def _count_calls(episode: Episode) -> int:
    """Return the number of attempts that no server rejected for their rate."""
    outcomes: list[str] = []
    for entry in draw_entries(episode):
        outcomes += [attempt.call.outcome for attempt in entry.attempts]
    return len(outcomes) - outcomes.count(RateLimited.outcome)


def _status(outcome: Outcome) -> Status:
    error, grade = outcome.episode.error, outcome.grade
    if isinstance(error, WorkflowError):
        return "invalid"
    if error is not None:
        return "refused" if caused_by_plan(error) else "failed"
    if grade is None or grade.correct is None:
        return "ungraded"
    if grade.note.startswith("judge:"):
        return "judged"
    if not grade.correct and grade.note.startswith("unparsed"):
        return "unparsed"
    if not grade.correct and grade.note.startswith("undecided"):
        return "undecided"
    return "graded"


def _round_record(one: Round) -> RoundRecord:
    reason = one.error.reason.value if isinstance(one.error, WorkflowError) else ""
    outcomes: list[str] = []
    results = () if one.transcript is None else one.transcript.results
    for result in results:
        outcomes.append(result.calls[-1].outcome if result.calls else "")
    planned = one.completion is not None or bool(one.calls)
    return RoundRecord(one.workflow, planned, reason, tuple(outcomes))


def sample_number(system: str, task: str, problem: str, repeat: int) -> int:
    """Return the sample number of a cell's calls, below 2**53: 41 bits of a digest, and the repeat.

    It tells the cell's calls from all others, to the journal and to simulated workers, and depends
    on no order and on no other cell. So two systems get two completions of the same call. If they
    share calls, ``system`` is "".

    >>> sample_number("", "gym", "gym-1", 3) - sample_number("", "gym", "gym-1", 0)
    3
    """
    name = json.dumps([system, task, problem]).encode()
    digest = int.from_bytes(blake2b(name, digest_size=8, person=b"oc-sample").digest(), "big")
    return (digest >> 23) * MOST_REPEATS + repeat


def kept_records(journal: StoreReader) -> list[Record]:
    """Return the records in a journal, the newest of each cell, in the order of writing.

    Raises:
        JournalError: a record is not an evaluation's.
    """
    kept_values = [kept.value for kept in journal.records() if kept.key != DESCRIPTION]
    try:
        return [load(Record, value) for value in kept_values]
    except ValueError as error:
        raise JournalError(
            f"{journal!r}: got a record that is not an evaluation's: {error}"
        ) from error


def keep_record(journal: Store, record: Record) -> None:
    """Write a record into the journal of its evaluation."""
    journal.put_record(cell_key(record.cell), cast("dict[str, Any]", plain(record)))


def cell_key(cell: Cell) -> str:
    """Return the key under which the record of a cell is kept."""
    return json.dumps(cell)


# ── the folder of a run ───────────────────────────────────────────────────────────────────────────
CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
JOURNAL = "journal.sqlite"
DESCRIPTION = "evaluation"
"""The key of the record that describes the evaluation in a database."""
_PACKAGES = (
    "openconductor",
    "httptools",
    "numpy",
    "safetensors",
    "scikit-learn",
    "scipy",
    "tokenizers",
    "sympy",
)


def check_folder(folder: Path, config: EvalConfig, inputs: Plain) -> None:
    """Check that a folder is new, or holds this evaluation.

    Raises:
        ConfigError: it holds something else, or another evaluation.
    """
    if not (folder / CONFIG).is_file():
        _check_new(folder)
        return
    before, environment = read_folder(folder)
    changed = differences(before, config)
    changed = changed or what_differs(environment.get("inputs"), inputs)
    if changed:
        raise ConfigError(
            f"{folder}: holds another evaluation: {'; '.join(changed)}; "
            "expected the same, or a new folder (--out)"
        )


def _check_new(folder: Path) -> None:
    """Check that a folder is empty, or of a run that was killed before it wrote its recipe."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is no folder, expected a new folder or one of an evaluation")
    for path in sorted(folder.glob("*")):
        is_ours = path.name.startswith((f"{CONFIG}.", f"{ENVIRONMENT}.", f"{JOURNAL}-"))
        is_ours = is_ours or path.name in (CONFIG, ENVIRONMENT, JOURNAL)
        # Another process may begin the same evaluation in this folder just now.
        if not is_ours and not (folder / CONFIG).is_file():
            raise ConfigError(
                f"{folder}: holds {path.name!r}, expected a new folder or one of an evaluation"
            )


def write_folder(
    folder: Path,
    config: EvalConfig,
    inputs: Plain,
    sandbox: Sandbox | None,
    pool: WorkerPool,
) -> None:
    """Write recipe and environment of a run; a resumed run adds what changed (``resumed``)."""
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
    environment: dict[str, Any] = {**now, "inputs": inputs}
    if (folder / CONFIG).is_file():
        environment = {**read_folder(folder)[1], "inputs": inputs}
        changed = what_differs({name: environment.get(name) for name in now}, now)
        notes = environment.get("resumed", [])
        if changed and changed not in notes:
            environment["resumed"] = [*notes, changed]
    environment["models"] = {worker.name: worker.resolved.model for _, worker in pool}
    environment["calibrations"] = plain(pool.calibrations)
    environment["date"] = datetime.now(UTC).date().isoformat()
    write_whole(folder / ENVIRONMENT, json.dumps(environment, indent=2) + "\n")
    write_whole(folder / CONFIG, dump_eval_config(config))  # last: without it there is no run yet


def journal_place(folder: Path, config: EvalConfig | None = None) -> str | Path:
    """Return the place of a run's calls and records: a file in its folder, or a database.

    ``config`` is its recipe; None: it is read, if there is one.

    Raises:
        ConfigError: the recipe cannot be read.
    """
    if config is not None:
        return config.journal or folder / JOURNAL
    if not (folder / CONFIG).is_file():
        return folder / JOURNAL
    return str(read_toml(folder / CONFIG).get("journal", "")) or folder / JOURNAL


def kept_calibrations(folder: Path) -> Calibrations | None:
    """Return what was measured of the workers when the run in a folder began.

    Its cards are made of that, also if the pool file has been calibrated since. None: there is no
    run, or an earlier version made it.

    Raises:
        ConfigError: the folder holds something else.
    """
    if not (folder / CONFIG).is_file():
        return None
    _, environment = read_folder(folder)
    try:
        kept = environment["calibrations"]
        return load(dict[str, dict[str, Calibration]], kept)
    except KeyError:
        return None
    except ValueError as error:
        raise ConfigError(f"{folder / ENVIRONMENT}: calibrations: {error}") from error


def holds(folder: Path, config: EvalConfig) -> bool:
    """Return True if the run in a folder has the same recipe, with files at the same places."""
    try:
        return not differences(read_folder(folder)[0], config, places=True)
    except ConfigError:
        return False


def read_folder(folder: Path) -> tuple[EvalConfig, Plain]:
    """Return the recipe and the environment of the run in a folder.

    Raises:
        ConfigError: the folder holds no evaluation.
    """
    if not (folder / CONFIG).is_file():
        reason = f"has no {CONFIG}" if folder.exists() else "does not exist"
        inside = [file.parent for file in sorted(folder.glob(f"*/{ENVIRONMENT}"))]
        expected = "the folder of an evaluation"
        if inside:
            expected += f", such as {', '.join(map(str, inside))}"
        raise ConfigError(f"{folder}: {reason}; expected {expected}")
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
        workers: the workers' names by ordinal.
        prices: by the worker's name; None: unknown.
        expected: how many records a whole evaluation has for each task.
        records: the answers of the systems, in order.
        learning: the answers that trained baselines learnt from, and those for hindsight alone.
            They are in no table.
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
            JournalError: its journal, or a record in it, cannot be read.
        """
        folder = Path(folder)
        config, environment = read_folder(folder)
        with read_store(journal_place(folder, config)) as journal:
            records = kept_records(journal)
        workers: dict[int, str] = {}
        prices: dict[str, Price | None] = {}
        expected: dict[str, int] = {}
        try:
            inputs = cast("Mapping[str, Any]", environment["inputs"])
            for worker in inputs["workers"]:
                name, price = str(worker["name"]), worker["price"]
                workers[worker["ordinal"]] = name
                prices[name] = load(Price, price) if price else None
            for task, described in inputs["tasks"].items():
                expected[task] = described["problems"] * config.repeats
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{folder}: {error!r} in its description; expected the folder of an evaluation"
            ) from error
        return cls.of_records(config, records, workers=workers, prices=prices, expected=expected)

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
        """Put records in order, and add those of hindsight if the recipe names it.

        Raises:
            ConfigError: the recipe names an unknown system, or two records are of the same cell.
        """
        tasks = [table.name for table in config.task]
        specs = expand(config.specs, workers.values())
        systems = tuple(spec.name for spec in specs)
        ordered = sorted(records, key=lambda record: (record.problem, record.sample))
        _check_distinct(ordered)
        evaluated = [record for record in ordered if record.task in tasks]
        if HINDSIGHT in systems:
            evaluated += hindsight(evaluated, list(workers.values()))
        shown = [record for record in evaluated if record.system in systems]
        shown.sort(key=lambda record: (systems.index(record.system), tasks.index(record.task)))
        others = [
            record for record in ordered if record.task not in tasks or record.system not in systems
        ]
        others.sort(key=lambda record: (record.task, record.system))
        return cls(
            config=config,
            systems=systems,
            workers=dict(workers),
            prices=dict(prices or {}),
            expected=dict(expected or {}),
            records=tuple(shown),
            learning=tuple(others),
        )

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks' names, in the recipe's order."""
        return tuple(table.name for table in self.config.task)

    def of(self, system: str) -> tuple[Record, ...]:
        """Return the records of one system."""
        return tuple(record for record in self.records if record.system == system)

    def by_row(self) -> dict[tuple[str, str], list[Record]]:
        """Return the records of every system on every task; a row that was never asked is empty."""
        rows = {(system, task): list[Record]() for system in self.systems for task in self.tasks}
        for record in self.records:
            rows[record.system, record.task].append(record)
        return rows

    @property
    def missing(self) -> int:
        """The number of records that a whole evaluation has beyond these."""
        whole = sum(self.expected.values()) * len(self.systems)
        return max(0, whole - len(self.records))

    def frame(self) -> DataFrame:
        """Return a pandas frame of ``records``, with a row an answer; it needs the extra ``eval``.

        Texts are ``string``, counts ``int64``; unknown texts and switches are ``<NA>``.

        - ``system task problem kind`` (string), ``sample`` (int64, from 0): who was asked what.
        - ``correct`` (boolean), ``score`` (float64: 1 right, 0 wrong, NaN masked), ``status``
          (string, one of ``Status``).
        - ``answer extracted note`` (string): the answer, what the grader read off it, its remark.
        - ``valid`` (boolean): the first plan was a workflow; <NA>: no Conductor planned.
        - ``cut`` (bool): a worker's answer was cut at its token limit.
        - ``rounds steps calls`` (int64): rounds, steps of all rounds, and attempts at calls.
        - ``input_tokens cached_tokens output_tokens reasoning_tokens`` (int64): of all calls.
        - ``dollars`` (float64): US dollars of the priced calls; ``unpriced_calls`` (int64).
        - ``seconds work_seconds`` (float64): wall time, and work summed over calls.
        - ``episode error`` (string): the episode's id in the journal; the error or "".

        Raises:
            ConfigError: pandas is not installed.
        """
        with needing("Results.frame", "eval"):
            return frame_of(self.records)


def _check_distinct(records: Iterable[Record]) -> None:
    cells = Counter(record.cell for record in records)
    for cell, count in cells.items():
        if count > 1:
            raise ConfigError(f"records: got {cell} more than once, expected each repeat once")


def observations(
    records: Iterable[Record], questions: Mapping[str, str], workers: Sequence[str]
) -> Observations:
    """Make observations of workers that answered alone (systems ``worker:NAME``).

    A cell is the share of right answers among the decided repeats, and the first repeat's answer.
    ``questions`` are texts by problem id.

    Raises:
        ConfigError: there are no questions, or no workers.
    """
    in_order = sorted(records, key=lambda record: record.sample)
    by_cell = group_by(in_order, lambda record: (record.problem, record.system))
    right: list[tuple[float | None, ...]] = []
    answers: list[tuple[str | None, ...]] = []
    for problem in questions:
        row = [by_cell.get((problem, ALONE + worker), []) for worker in workers]
        right.append(tuple(_right_share(repeats) for repeats in row))
        firsts = [repeats[0].answer if repeats else None for repeats in row]
        answers.append(tuple(firsts))
    return Observations(tuple(questions.values()), tuple(workers), tuple(right), tuple(answers))


def _right_share(records: Iterable[Record]) -> float | None:
    """Return the share of right answers among the decided ones; None: none was decided."""
    decided = [record.correct for record in records if record.correct is not None]
    return fmean(decided) if decided else None


def hindsight(records: Iterable[Record], workers: Sequence[str]) -> list[Record]:
    """Return for each problem the records of its best worker, as those of a system of their own.

    A tie goes to the first worker. So does a problem on which nothing was decided; it is masked.
    """
    alone = [record for record in records if record.system.startswith(ALONE)]
    best: list[Record] = []
    for of_problem in group_by(alone, lambda record: record.key).values():
        by_system = group_by(of_problem, lambda record: record.system)
        shares: dict[str, float] = {}
        for worker in workers:
            share = _right_share(by_system.get(ALONE + worker, ()))
            if share is not None:
                shares[worker] = share
        chosen = max(shares, key=lambda worker: shares[worker], default=workers[0])
        best += [replace(one, system=HINDSIGHT) for one in by_system.get(ALONE + chosen, ())]
    return best


def natural_order(name: str) -> list[tuple[bool, str]]:
    """Return a key that sorts names with numbers by their size: ``q2`` before ``q10``."""
    parts = re.split("([0-9]+)", name)
    return [(part.isdecimal(), part.zfill(20)) for part in parts]


# ── latency ───────────────────────────────────────────────────────────────────────────────────────
def latency(results: Results) -> list[dict[str, object]]:
    """Return an object for each system and task: quantiles of wall time, and seconds of work.

    An episode's seconds run from asking to answer, with waits for limits. Calls that a journal
    answers take almost no time, so a resumed run says less about latency than an uninterrupted one.
    """
    rows: list[dict[str, object]] = []
    for (system, task), records in results.by_row().items():
        seconds = [record.seconds for record in records]
        work = [record.usage.seconds for record in records]
        median, high = _median_and_p95(seconds)
        row: dict[str, object] = {
            "system": system,
            "task": task,
            "episodes": len(records),
            "p50_seconds": median,
            "p95_seconds": high,
            "mean_seconds": fmean(seconds) if seconds else None,
            "work_seconds": fmean(work) if work else None,
        }
        rows.append(row)
    return rows


def _median_and_p95(seconds: Sequence[float]) -> tuple[float | None, float | None]:
    if not seconds:
        return None, None
    if len(seconds) == 1:
        return seconds[0], seconds[0]
    cuts = quantiles(seconds, n=20, method="inclusive")
    return cuts[9], cuts[18]


# ── answers as a frame ────────────────────────────────────────────────────────────────────────────
Frame = Any
"""A pandas frame or series inside this package. pandas has no type stubs, so uses are unchecked."""

COLUMNS = {
    "system": "string",
    "task": "string",
    "problem": "string",
    "sample": "int64",
    "kind": "string",
    "correct": "boolean",
    "score": "float64",
    "status": "string",
    "answer": "string",
    "extracted": "string",
    "note": "string",
    "valid": "boolean",
    "cut": "bool",
    "rounds": "int64",
    "steps": "int64",
    "calls": "int64",
    "input_tokens": "int64",
    "cached_tokens": "int64",
    "output_tokens": "int64",
    "reasoning_tokens": "int64",
    "dollars": "float64",
    "unpriced_calls": "int64",
    "work_seconds": "float64",
    "seconds": "float64",
    "episode": "string",
    "error": "string",
}
"""The columns of a frame of answers, with their dtypes."""


_SURROGATES = re.compile("[\ud800-\udfff]")


def plain_text(text: str) -> str:
    """Replace lone surrogates, which answers may hold and pandas cannot store."""
    return _SURROGATES.sub("\ufffd", text)


def frame_of(records: Iterable[Record]) -> DataFrame:
    """Return a frame with a row for each record, in the order given (``Results.frame``)."""
    import pandas as pd  # here, because `ask` and `demo` do without it

    rows = [_row(record) for record in records]
    frame: Frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(COLUMNS)


def _row(record: Record) -> dict[str, object]:
    """Return the values of a record by column."""
    computed: dict[str, object] = {
        "score": None if record.correct is None else float(record.correct),
        "rounds": len(record.rounds),
        "steps": sum(len(workflow) for workflow in record.workflows),
        "dollars": float(record.usage.dollars),
        "work_seconds": record.usage.seconds,
    }
    row: dict[str, object] = {}
    for column in COLUMNS:
        if column in computed:
            row[column] = computed[column]
        else:
            source = record if hasattr(record, column) else record.usage
            value = getattr(source, column)
            row[column] = plain_text(value) if isinstance(value, str) else value
    return row
