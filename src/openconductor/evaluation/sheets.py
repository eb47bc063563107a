"""The questions of an evaluation, loaded, checked and described, with their graders.

``write_questions`` keeps them in the run's folder for people who look at its answers.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from openconductor.calls.policies import RUN_UNREACHABLE_S
from openconductor.config import one_of
from openconductor.errors import ConfigError, TaskError
from openconductor.evaluation.eval_config import EvalConfig, TaskTable, what_differs
from openconductor.evaluation.records import Plain
from openconductor.evaluation.statistics import Key
from openconductor.protocols import CallContext, Grader, OnEvent
from openconductor.store.serialisation import dumps
from openconductor.store.storage import write_whole
from openconductor.tasks import Benchmark, load_task
from openconductor.tasks.simulated import find_simulation
from openconductor.types import Problem, Undecided

if TYPE_CHECKING:
    from openconductor.calls.budget import RunBudget
    from openconductor.evaluation.undecided import PoolJudge
    from openconductor.graders.freeform import Judge
    from openconductor.pool import WorkerPool
    from openconductor.sandboxes import Sandbox
    from openconductor.store import Store


QUESTIONS = "questions.jsonl"
_OTHERS = (
    "systems such as best_fixed learn from questions that are not evaluated: name their task, and "
    "their file if they are local, with --learn TASK or --learn TASK=FILE (in a recipe task, path "
    "and split of [learn]), or leave these systems out"
)
LONGEST_REFERENCE = 4000
"""The most characters of a reference that are kept; those of programs are their tests."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """The questions of one task.

    Attributes:
        name: the task's name in records.
        grader: judges the answers.
        described: their number, a digest of questions and references, and their source.
    """

    name: str
    problems: Sequence[Problem]
    grader: Grader
    described: Plain


def load_sheets(config: EvalConfig) -> dict[str, Sheet]:
    """Load the questions of every task, by its name.

    Raises:
        ConfigError: a task or an option is unknown.
        TaskError: the data are missing or changed, or two problems have one id.
    """
    return {table.name: load_sheet(table, config) for table in config.task}


def learning_table(config: EvalConfig) -> TaskTable:
    """Return the questions that trained baselines learn from, as a task of a name of its own.

    Raises:
        ConfigError: the task is unknown or has no such split, or the recipe names only the file
            that is evaluated.
    """
    learn = config.learn
    name = learn.task or config.task[0].name
    evaluated = {table.name: table for table in config.task}
    table = evaluated.get(name, TaskTable(name))
    path = learn.path
    if path is None and table.path is not None:
        if not Path(table.path).is_dir():
            raise ConfigError(f"learn: the file of {name}, {table.path}, is evaluated; {_OTHERS}")
        path = table.path  # its splits are files of one folder
    learnt = TaskTable(
        name=f"learn:{name}",
        task=table.task or name,
        path=path,
        split=learn.split,
        revision=learn.revision,
        limit=learn.limit,
        seed=config.seed,
    )
    try:
        open_task(learnt, config)
    except ConfigError as error:
        raise ConfigError(f"learn: {error}; {_OTHERS}") from error
    return learnt


def load_learning(config: EvalConfig, evaluated: Iterable[Sheet]) -> Sheet:
    """Load the questions that trained baselines learn from; none of them is evaluated.

    Raises:
        ConfigError: raised as by ``learning_table``.
        TaskError: the data are missing, or one of the questions is evaluated, too.
    """
    table = learning_table(config)
    try:
        sheet = load_sheet(table, config)
    except TaskError as error:
        raise TaskError(f"learn: {error}; {_OTHERS}") from error
    tested = {problem.question for one in evaluated for problem in one.problems}
    shared = [problem.id for problem in sheet.problems if problem.question in tested]
    if shared:
        raise TaskError(
            f"learn: {len(shared)} of {len(sheet.problems)} questions are evaluated, too "
            f"({shared[0]!r} among them); {_OTHERS}"
        )
    return sheet


def open_for(sheets: Iterable[Sheet], config: EvalConfig) -> tuple[Sandbox | None, list[Sheet]]:
    """Open a sandbox for the graders that run programs, and put it into these graders.

    It is opened before anything is asked, because without it no answer can be judged.
    """
    sheets = list(sheets)
    if "openconductor.graders.code" not in sys.modules:  # then no sheet has such a grader
        return None, sheets
    from openconductor.graders.code import CodeGrader
    from openconductor.sandboxes import open_sandbox

    if not any(isinstance(sheet.grader, CodeGrader) for sheet in sheets):
        return None, sheets
    sandbox = open_sandbox(unsafe=config.unsafe_code_exec)
    opened: list[Sheet] = []
    for sheet in sheets:
        grader = sheet.grader
        if isinstance(grader, CodeGrader):
            grader = CodeGrader(grader.mode, sandbox)
        opened.append(replace(sheet, grader=grader))
    return sandbox, opened


class KeptQuestion(NamedTuple):
    """A question as a run's folder keeps it, with its reference as a text."""

    question: str
    reference: str


def keep_question(problem: Problem) -> KeptQuestion:
    """Return a question as a run's folder keeps it."""
    # A free-form reference has its kind and tolerance beside its text.
    reference = getattr(problem.reference, "text", problem.reference)
    text = reference if isinstance(reference, str) else dumps(reference)
    if len(text) > LONGEST_REFERENCE:
        text = f"{text[:LONGEST_REFERENCE]}…"
    return KeptQuestion(problem.question, text)


def write_questions(folder: Path, sheets: Iterable[Sheet]) -> None:
    """Write the questions of a run, with their references, into its folder."""
    lines: list[str] = []
    for sheet in sheets:
        for problem in sheet.problems:
            named = {"task": sheet.name, "id": problem.id, "kind": problem.kind}
            values = named | keep_question(problem)._asdict()
            lines.append(dumps(values) + "\n")
    write_whole(folder / QUESTIONS, "".join(lines))


def read_questions(folder: Path) -> dict[Key, KeptQuestion]:
    """Return the questions that a run's folder keeps; empty: an earlier version wrote the run.

    Raises:
        ConfigError: the file is not one of a run.
    """
    file = folder / QUESTIONS
    if not file.is_file():
        return {}
    questions: dict[Key, KeptQuestion] = {}
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                values = json.loads(line)
                key = (values["task"], values["id"])
                questions[key] = KeptQuestion(values["question"], values["reference"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{file}: {error!r}; expected the questions of a run") from error
    return questions


def check_questions(folder: Path, environment: Plain, sheets: Mapping[str, Sheet]) -> None:
    """Check that the questions are those that a run asked, by its environment.

    Raises:
        ConfigError: they have changed.
    """
    inputs = cast("Mapping[str, Plain]", environment.get("inputs", {}))
    described = {name: sheet.described for name, sheet in sheets.items()}
    changed = what_differs(inputs.get("tasks", {}), described)
    if changed:
        raise ConfigError(f"{folder}: its questions have changed: {'; '.join(changed)}")


def unreadable(task: str, pool: str) -> ConfigError:
    """Return the error for simulated workers that would get questions they cannot read."""
    return ConfigError(
        f"task {task}: got the {pool}'s simulated workers, which can read only the {pool}'s "
        "questions; expected a pool file: --pool FILE"
    )


def task_options(table: TaskTable, config: EvalConfig) -> dict[str, object]:
    """Return the options with which a task is loaded, and its name as ``task``."""
    options = asdict(table) | {"task": table.task or table.name}
    del options["name"]
    if table.seed is None:
        options["seed"] = config.seed
    return {name: value for name, value in options.items() if value is not None}


def open_task(table: TaskTable, config: EvalConfig) -> Benchmark:
    """Return a task of the recipe; nothing of it is read.

    Raises:
        ConfigError: the task or an option is unknown.
    """
    options = task_options(table, config)
    return load_task(str(options.pop("task")), **options)


def load_sheet(table: TaskTable, config: EvalConfig) -> Sheet:
    """Load the questions of one task; raise as ``load_sheets``."""
    name = table.name
    task = open_task(table, config)
    problems = task.load()
    simulation = find_simulation(config.pool)
    if simulation is not None:
        for problem in problems:
            if not simulation.is_readable(problem.question):
                raise unreadable(name, config.pool)
    _check_ids(name, problems)
    described = {
        "problems": len(problems),
        "digest": _digest(problems),
        "source": task.source.record(),
    }
    return Sheet(name, problems, task.grader, described)


def _check_ids(name: str, problems: Sequence[Problem]) -> None:
    """Check that there are problems, each with an id of its own."""
    if not problems:
        raise TaskError(f"task {name}: got no problem, expected problems with an id each")
    ids = Counter(problem.id for problem in problems)
    problem_id, count = ids.most_common(1)[0]
    if count > 1:
        raise TaskError(
            f"task {name}: got {count} problems of the id {problem_id!r}, "
            "expected problems with an id each"
        )


def _digest(problems: Iterable[Problem]) -> str:
    """Return a digest of everything about the problems on which a score depends."""
    digest = blake2b(digest_size=16, person=b"oc-problems")
    for problem in problems:
        content = [problem.id, problem.question, problem.reference, problem.kind]
        digest.update(dumps(content).encode())
    return digest.hexdigest()


# ── answers that the rules cannot decide ──────────────────────────────────────────────────────────
def check_judge(name: str, pool: WorkerPool, sheets: Sequence[Sheet]) -> int:
    """Check that a judge is a worker of the pool, and has something to judge.

    Returns:
        The number of problems about whose answers it may be asked.

    Raises:
        ConfigError: it is no worker, or no task has free-form answers.
    """
    from openconductor.evaluation.undecided import may_be_judged

    one_of("judge", name, pool.names.values())
    count = 0
    for sheet in sheets:
        count += sum(may_be_judged(problem, sheet.grader) for problem in sheet.problems)
    if not count:
        tasks = ", ".join(sheet.name for sheet in sheets)
        raise ConfigError(
            f"judge: got {name!r}, but the rules decide every answer to {tasks}; expected a task "
            "with free-form answers, such as rlpr, or no judge"
        )
    return count


def open_judge(
    config: EvalConfig,
    pool: WorkerPool,
    journal: Store,
    budget: RunBudget | None,
    on_event: OnEvent | None = None,
    *,
    asks_again: bool = False,
) -> PoolJudge | None:
    """Return the judge of a recipe, over a pool that answers from the journal; None: it has none.

    ``on_event`` and ``asks_again`` are as for ``PoolJudge``.
    """
    if not config.judge:
        return None
    from openconductor.evaluation.undecided import PoolJudge

    context = CallContext(budget=budget, unreachable_s=RUN_UNREACHABLE_S)
    return PoolJudge(pool, config.judge, journal, context, on_event, asks_again=asks_again)


def settle_sheets(
    sheets: Iterable[Sheet], undecided: Undecided, judge: Judge | None
) -> list[Sheet]:
    """Return sheets whose graders settle what they cannot decide (``settled``)."""
    if undecided == "masked" and judge is None:
        return list(sheets)
    from openconductor.evaluation.undecided import settled

    return [
        replace(sheet, grader=settled(sheet.grader, undecided=undecided, judge=judge))
        for sheet in sheets
    ]
