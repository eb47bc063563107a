"""Questions with recorded answers, and workers that answer from the record.

A table of an evaluation (``[origin]`` in its note) has the questions of the tasks that were asked,
which also grade the answers. The workers of a pool answer from such a table (``with_records``).

In a table of letters alone, each problem's text begins with the line by which a recorded worker
knows it, ``[ID] CATEGORY``. Choices always keep their published order, because the recorded letters
are places in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from openconductor.calls.worker import Worker
from openconductor.config import nearest
from openconductor.errors import ConfigError, TaskError
from openconductor.graders.choice import ChoiceGrader
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext, Grader
from openconductor.providers.replay_pool import (
    SPLITS,
    ReplayPoolProvider,
    ReplayTable,
    answer_text,
    escape,
    read_origin,
    read_table,
    recall,
    table_path,
)
from openconductor.tasks import load_task
from openconductor.tasks.choice import MMLU
from openconductor.tasks.data.dataset import DatasetTask
from openconductor.tasks.data.items import Benchmark, Item, Loaded, Source, draw_key
from openconductor.tasks.paper_mix import MixGrader
from openconductor.types import Completion, Message, Problem, Sampling

SHIPPED = table_path("mmlu_pro")
NAME = "replay"
SUFFIX = ".csv.gz"
_TABLE = (
    "a table, which `openconductor pool replay RUN --out TABLE.csv.gz` makes of an evaluation, or "
    "a folder with one"
)


class ReplayTask(Benchmark):
    """The questions of a replay table; ``limit`` of them are drawn by ``seed``, in their order.

    ``path`` is the table (``….csv.gz``), or a folder that holds the texts to a table of letters, in
    a file of choices named ``questions`` (docs/tasks.md), and maybe the table. Without one it is
    the table that ships, of MMLU-Pro.

    Raises:
        ConfigError: a limit below 1, or no such split.
    """

    def __init__(
        self,
        *,
        path: str | Path | None = None,
        split: str = "test",
        limit: int | None = None,
        seed: int | None = None,
    ) -> None:
        about = "questions with recorded answers, for workers that replay them"
        given = SHIPPED if path is None else Path(path)
        if not given.is_dir() and not given.name.endswith(SUFFIX):
            raise ConfigError(f"task {NAME}: got the path {given}, expected {_TABLE}")
        if not given.exists():
            raise ConfigError(f"task {NAME}: {given} does not exist; expected {_TABLE}")
        self._texts = given if given.is_dir() else None
        self.path = next(given.glob(f"*{SUFFIX}"), SHIPPED) if given.is_dir() else given
        self._origins = _open_origins(self.path)
        super().__init__(NAME, about, SPLITS, _grader_of(self._origins), split=split, limit=limit)
        self._limit = limit
        self._seed = seed or 0

    @property
    def recorded(self) -> Sequence[str]:
        """The names of the workers whose answers the table holds; a table of letters has none."""
        table = read_table(self.path)
        return table.models if table.origin else ()

    @property
    def answer_forms(self) -> Sequence[str]:
        """Those of the tasks whose answers were recorded."""
        return [form for origin in self._origins.values() for form in origin.answer_forms]

    def with_records(self, pool: WorkerPool) -> WorkerPool:
        """Return the pool with workers that answer from the table what it holds.

        It holds the answers to questions that were asked alone: a step that sees no other one is
        answered from it, whatever its subtask. All other steps are asked live, and so are workers
        that the table lacks. A table of letters alone has workers of its own.

        Raises:
            ConfigError: the table cannot be read, or has no answers of any worker of the pool.
        """
        table = read_table(self.path)
        return _with_table(pool, table, self.path) if table.origin else pool

    def _read(self, split: str) -> Loaded:
        table = read_table(self.path)
        rows = [row for row in table.rows.values() if row["split"] == split]
        if self._limit is not None:
            rows_by_draw = sorted(rows, key=lambda row: draw_key(self._seed, row["id"]))
            chosen = {row["id"] for row in rows_by_draw[: self._limit]}
            rows = [row for row in rows if row["id"] in chosen]
        if not self._origins:
            texts = None if self._texts is None else _read_texts(self._texts)
            items = [_letter_item(row, texts) for row in rows]
        else:
            items = _origin_items(rows, self._origins)
        source, licence, digest = (table.note[name] for name in ("source", "licence", "sha256"))
        return Loaded(
            tuple(items),
            Source(source, split, None, True, licence, digest, (), len(rows), len(items)),
        )


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
def _open_origins(path: Path) -> dict[str, Benchmark]:
    """Return the tasks that a table's questions are of; {}: it holds letters alone.

    The key is the name that stands before the questions' ids, "" where there is one task.

    Raises:
        ConfigError: a task is unknown.
    """
    origin = read_origin(path)
    tables = {"": origin} if isinstance(origin.get("task"), str) else origin
    origins: dict[str, Benchmark] = {}
    for name, table in tables.items():
        options = dict(cast("Mapping[str, object]", table))
        origins[name] = load_task(str(options.pop("task")), **options)
    return origins


def _grader_of(origins: Mapping[str, Benchmark]) -> Grader:
    if not origins:
        return ChoiceGrader()
    if "" in origins:
        return origins[""].grader
    return MixGrader({name: origin.grader for name, origin in origins.items()})


def _origin_items(
    rows: Iterable[Mapping[str, str]], origins: Mapping[str, Benchmark]
) -> list[Item]:
    """Return the items of recorded questions, as their own tasks have them."""
    by_id: dict[str, Item] = {}
    for name, origin in origins.items():
        for item in origin.read().items:
            problem = item.problem
            if name:
                problem = replace(problem, id=f"{name}/{problem.id}", task=name)
            elif not isinstance(origin.grader, MixGrader):  # a mix grades by the names of parts
                problem = replace(problem, task=NAME)
            by_id[problem.id] = replace(item, problem=problem)
    items: list[Item] = []
    for row in rows:
        item = by_id.get(row["id"])
        if item is None or escape(item.problem.question) != row["question"]:
            what = "no such question" if item is None else "another text"
            names = ", ".join(origin.name for origin in origins.values())
            raise TaskError(
                f"task {NAME}: {row['id']}: got {what} in task {names}, expected the "
                "questions that were recorded; record them again: `openconductor eval workers`, "
                "then `openconductor pool replay`"
            )
        problem = replace(item.problem, kind=row["category"])
        items.append(replace(item, problem=problem))
    return items


def _read_texts(folder: Path) -> dict[str, Problem]:
    """Return the questions of a folder by their id."""
    texts: dict[str, Problem] = {}
    for file in folder.glob("questions.*"):
        for problem in DatasetTask(MMLU, path=file).load():
            texts[problem.id.removeprefix("mmlu/")] = problem
    return texts


def _letter_item(row: Mapping[str, str], texts: Mapping[str, Problem] | None) -> Item:
    """Make an item of a question with recorded letters, with its text if there are texts."""
    name = row["id"]
    kind = row["category"]
    answer = row["answer"]
    question = f"[{name}] {kind}"
    if texts is not None:
        text = texts.get(name) or texts.get(name.rpartition("/")[2])
        if text is None or text.reference != answer:
            got = text and f"the right answer {text.reference}"
            raise TaskError(
                f"task {NAME}: {name}: got {got}, expected its text, with {answer} as right"
            )
        question += f"\n\n{text.question}"
    problem = Problem(name, question, answer, NAME, kind=kind)
    return Item(problem, f"Answer: {answer}", kind)


# ── workers ───────────────────────────────────────────────────────────────────────────────────────
def _with_table(pool: WorkerPool, table: ReplayTable, path: Path) -> WorkerPool:
    recorded: dict[int, Worker] = {}
    replays = False
    for ordinal, worker in pool:
        replays = replays or isinstance(worker.resolved, ReplayPoolProvider)
        if worker.name in table.models:
            recorded[ordinal] = worker.recalling(_Recorded(table, worker))
    if not recorded and not replays:
        name = next(iter(pool.names.values()))
        raise ConfigError(
            f"pool: no worker has answers in {path}, such as {name!r}; expected at least one of "
            f"{', '.join(table.models)}; nearest: {nearest(name, table.models)!r}"
        )
    if not recorded:
        return pool
    workers = dict(pool) | recorded
    return WorkerPool(workers, default_worker=pool.names[pool.default_worker])


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Recalls the recorded answers of a worker."""

    table: ReplayTable
    worker: Worker

    def __call__(
        self, messages: Sequence[Message], sampling: Sampling, call: CallContext
    ) -> Completion | None:
        """Return the recorded answer to the question; None: it was not asked, or not alone."""
        del sampling
        if len(messages) != 1:  # the step sees other answers
            return None
        row = self.table.find(messages[0].content)
        if row is None:
            return None
        answer = recall(row, self.worker.name, call.sample)
        usage = answer.usage
        price = self.worker.price
        if not usage.dollars and price is None:
            usage = replace(usage, unpriced_calls=1)
        elif not usage.dollars and price is not None:
            usage = replace(usage, dollars=price.dollars(usage))
        return Completion(answer_text(self.worker.name, answer), usage=usage)
