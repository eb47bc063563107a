"""The paper's training mix: 960 hard and diverse problems of MATH, MMLU, RLPR and LiveCodeBench V1.

In: the four tasks, from the hub or from a folder of ``math.jsonl``, ``mmlu.jsonl``, ``rlpr.jsonl`` and
``livecodebench_v1.jsonl``; by option, measured outcomes. Out: one task whose grader asks the right one of four.

The paper (section 4, arXiv 2512.04388) says which sets, how many problems, and that they are hard and diverse. It does
not say, and here is decided:

- the shares: equal, 240 of each;
- which split of MMLU: ``auxiliary_train``, its own training pool; ``test`` is evaluated on;
- what *hard* is: the pass rate, where ``outcomes`` gives one; else the level of MATH and the difficulty of
  LiveCodeBench; MMLU and RLPR state none, so without outcomes theirs are chosen for diversity alone;
- what *diverse* is: ``selection`` says how. LiveCodeBench's problems that are known to be faulty are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openconductor.errors import ConfigError, GradingError, TaskError
from openconductor.protocols import Grader
from openconductor.tasks.choice import MMLU
from openconductor.tasks.dataset import DatasetSpec, DatasetTask
from openconductor.tasks.items import Benchmark, Item, Loaded, Source, draw_key
from openconductor.tasks.livecodebench import LIVECODEBENCH_V1
from openconductor.tasks.math import MATH
from openconductor.tasks.rlpr import RLPR
from openconductor.tasks.rows import read_rows
from openconductor.tasks.selection import select
from openconductor.types import Grade, Problem

PROBLEMS = 960
PARTS: tuple[tuple[DatasetSpec, str], ...] = (
    (MATH, "train"),
    (MMLU, "auxiliary_train"),
    (RLPR, "train"),
    (LIVECODEBENCH_V1, "test"),
)
"""The tasks of the mix, and the split of each."""
SPLIT = "train"


@dataclass(frozen=True, slots=True)
class MixGrader:
    """Asks the grader of the task that a problem is of.

    Args:
        graders: by the name of the task.
    """

    graders: Mapping[str, Grader]

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade one answer.

        Raises:
            GradingError: the problem is of no task of the mix, or its grader failed.
        """
        if problem.task not in self.graders:
            names = ", ".join(self.graders)
            raise GradingError(f"problem {problem.id}: got a problem of {problem.task!r}, expected one of {names}")
        return await self.graders[problem.task].grade(problem, answer)


class PaperMix(Benchmark):
    """The mix as a task; see the module. Its problems keep the names of their own tasks.

    Args:
        parts: the tasks, each with the split that is taken of it.
        count: problems in all, shared out equally; what a small part lacks is not made up for by the others.
        seed: draws what difficulty and diversity leave open, and the order of the mix.
        pass_rates: measured, by the ids of the mix's problems.
    """

    def __init__(
        self,
        parts: Sequence[tuple[DatasetTask, str]],
        *,
        count: int = PROBLEMS,
        seed: int = 0,
        pass_rates: Mapping[str, float] | None = None,
    ) -> None:
        about = f"the paper's training mix: {PROBLEMS} hard and diverse problems of four tasks"
        super().__init__("paper_mix", about, (SPLIT,))
        self.parts = tuple(parts)
        self.count = count
        self.seed = seed
        self.pass_rates = dict(pass_rates or {})

    def _grader(self) -> Grader:
        return MixGrader({task.name: task.grader for task, _ in self.parts})

    def _read(self, split: str) -> Loaded:
        if split != SPLIT:
            raise TaskError(f"task {self.name}: got the split {split!r}, expected {SPLIT!r}")
        chosen: list[Item] = []
        sources: list[Source] = []
        notes: list[str] = []
        for place, (task, part) in enumerate(self.parts):
            loaded = task.read(part)
            share = self.count // len(self.parts) + (place < self.count % len(self.parts))
            items = [_named(item, task.name) for item in loaded.items if not item.tags]
            picked = select(items, share, seed=self.seed, pass_rates=self.pass_rates)
            chosen += picked
            sources.append(loaded.source)
            notes.append(f"{task.name}/{part}: {len(picked)} of {len(items)}, {self._signal(items)}")
        chosen.sort(key=lambda item: draw_key(self.seed, item.problem.id))
        source = Source(
            "mix",
            SPLIT,
            pinned=all(part.pinned for part in sources),
            licence="of its parts",
            rows=sum(part.rows for part in sources),
            problems=len(chosen),
            notes=(f"seed {self.seed}", *notes),
            parts=tuple(sources),
        )
        return Loaded(tuple(chosen), source)

    def _signal(self, items: Sequence[Item]) -> str:
        """What their difficulty was told by."""
        measured = sum(item.problem.id in self.pass_rates for item in items)
        if measured:
            return f"by the pass rates of {measured}"
        stated = any(item.difficulty is not None for item in items)
        return "by their stated difficulty" if stated else "by diversity alone: nothing says how hard they are"


def paper_mix(
    *,
    path: str | Path | None = None,
    limit: int = PROBLEMS,
    seed: int = 0,
    split: str = SPLIT,
    outcomes: str | Path | None = None,
) -> PaperMix:
    """The mix with its options.

    Args:
        path: a folder of local files, one a part; None fetches the parts.
        limit: how many problems in all.
        seed: draws what difficulty and diversity leave open.
        split: ``train``, the only one.
        outcomes: JSON Lines of ``{id, correct}``, as ``openconductor grade`` writes them, or ``{id, pass_rate}``;
            ids are those of the mix's problems (``task show paper_mix``), and null counts as not measured.

    Raises:
        ConfigError: an option is wrong.
        TaskError: a row of the outcomes is none.
    """
    if limit < len(PARTS):
        raise ConfigError(f"task option limit: got {limit}, expected {len(PARTS)} or more: one of each part")
    if split != SPLIT:
        raise ConfigError(f"task paper_mix: got the split {split!r}, expected {SPLIT!r}")
    folder = Path(path) if path is not None else None
    if folder is not None and not folder.is_dir():
        names = ", ".join(f"{spec.name}.jsonl" for spec, _ in PARTS)
        raise ConfigError(f"task paper_mix: got the path {path}, expected a folder of {names}")

    parts = [(spec(path=folder / f"{spec.name}.jsonl" if folder else None), split) for spec, split in PARTS]
    rates = read_pass_rates(Path(outcomes)) if outcomes is not None else None
    return PaperMix(parts, count=limit, seed=seed, pass_rates=rates)


def read_pass_rates(path: Path) -> dict[str, float]:
    """Pass rates by id, of a file of outcomes; several outcomes of one id are averaged.

    Raises:
        TaskError: a row has neither ``correct`` nor ``pass_rate``, or one of a wrong type.
    """
    rates: dict[str, list[float]] = {}
    for row in read_rows(path, name=str(path)):
        name = str(row.identity("id"))
        if row.has("pass_rate"):
            rate = row.number_or("pass_rate", None)
            if rate is None or not 0 <= rate <= 1:
                raise row.wrong("pass_rate", rate, "a number from 0 to 1")
            rates.setdefault(name, []).append(rate)
        elif "correct" not in row.values:
            raise row.wrong("correct", None, "true, false or null, or a pass_rate")
        elif (correct := row.values["correct"]) is not None:
            if not isinstance(correct, bool):
                raise row.wrong("correct", correct, "true, false or null")
            rates.setdefault(name, []).append(float(correct))
    return {name: sum(each) / len(each) for name, each in rates.items()}


def _named(item: Item, task: str) -> Item:
    """The item with an id that no other part has."""
    name = item.problem.id
    return item if name.startswith(f"{task}/") else replace(item, problem=replace(item.problem, id=f"{task}/{name}"))
