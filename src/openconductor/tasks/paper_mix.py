"""The paper's training mix: 960 hard and diverse problems of MATH, MMLU, RLPR and LiveCodeBench V1.

The problems come from the hub, or from a folder of ``math.jsonl``, ``mmlu.jsonl``, ``rlpr.jsonl``
and ``livecodebench_v1.jsonl``. The mix is one task whose grader asks the right one of four.

The paper (section 4, arXiv 2512.04388) says which sets, how many problems, and that they are hard
and diverse. It leaves open, and here is decided:

- the shares: equal, 240 of each;
- the split of MMLU: ``auxiliary_train``, its own training pool; ``test`` is evaluated on;
- the meaning of *hard*: the pass rate, if ``outcomes`` gives one; else the level of MATH and the
  difficulty of LiveCodeBench. MMLU and RLPR state none, so without outcomes theirs are chosen for
  diversity alone;
- the meaning of *diverse*: see ``selection``. LiveCodeBench's problems that are known to be faulty
  are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from openconductor.errors import ConfigError, GradingError
from openconductor.protocols import Grader
from openconductor.tasks.choice import MMLU
from openconductor.tasks.data.dataset import DatasetTask
from openconductor.tasks.data.items import Benchmark, Item, Loaded, Source, draw_key
from openconductor.tasks.data.rows import read_rows
from openconductor.tasks.data.selection import select
from openconductor.tasks.livecodebench import LIVECODEBENCH_V1
from openconductor.tasks.math import MATH
from openconductor.tasks.rlpr import RLPR
from openconductor.types import Grade, Problem

PROBLEMS = 960
PARTS = ((MATH, "train"), (MMLU, "auxiliary_train"), (RLPR, "train"), (LIVECODEBENCH_V1, "test"))
"""The data sets of the mix, and the split of each."""
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
            raise GradingError(
                f"problem {problem.id}: got a problem of {problem.task!r}, expected one of {names}"
            )
        return await self.graders[problem.task].grade(problem, answer)


class PaperMix(Benchmark):
    """The mix as a task. Its problems keep the names of their own tasks.

    Args:
        path: a folder of local files, one a part; None: the parts are fetched.
        limit: the number of problems in all, shared out equally. If a part has too few, the others
            do not make up for it.
        seed: draws what difficulty and diversity leave open, and the order of the mix.
        split: ``train``, the only one.
        outcomes: JSON Lines of ``{id, correct}``, as ``openconductor grade`` writes them, or ``{id,
            pass_rate}``; ids are those of the mix's problems (``task show paper_mix``), and null
            counts as not measured.

    Raises:
        ConfigError: an option is wrong.
        TaskError: a row of the outcomes is invalid.
    """

    def __init__(
        self,
        *,
        path: str | Path | None = None,
        limit: int = PROBLEMS,
        seed: int = 0,
        split: str = SPLIT,
        outcomes: str | Path | None = None,
    ) -> None:
        if path is not None and not Path(path).is_dir():
            names = ", ".join(f"{part.name}.jsonl" for part, _ in PARTS)
            raise ConfigError(f"task paper_mix: got the path {path}, expected a folder of {names}")
        self.parts: list[DatasetTask] = []
        for part, part_split in PARTS:
            file = None if path is None else Path(path) / f"{part.name}.jsonl"
            self.parts.append(DatasetTask(part, path=file, split=part_split))
        about = f"the paper's training mix: {PROBLEMS} hard and diverse problems of four tasks"
        grader = MixGrader({task.name: task.grader for task in self.parts})
        if limit < len(PARTS):
            raise ConfigError(f"task option limit: got {limit}, expected {len(PARTS)} or more")
        super().__init__("paper_mix", about, (SPLIT,), grader, split=split)
        self._count, self._seed = limit, seed
        self._pass_rates = read_pass_rates(Path(outcomes)) if outcomes is not None else {}

    @property
    def hub_names(self) -> tuple[str, ...]:
        """The data sets of its parts that are fetched from the hub."""
        return tuple(name for part in self.parts for name in part.hub_names)

    def _read(self, split: str) -> Loaded:
        chosen: list[Item] = []
        sources: list[Source] = []
        notes = [f"seed {self._seed}"]
        share, rest = divmod(self._count, len(PARTS))
        for place, task in enumerate(self.parts):
            loaded = task.read()
            count = share + 1 if place < rest else share
            items = [_with_own_id(item) for item in loaded.items if not item.tags]
            picked = select(items, count, seed=self._seed, pass_rates=self._pass_rates)
            chosen += picked
            sources.append(loaded.source)
            part = f"{task.name}/{loaded.source.split}"
            notes.append(f"{part}: {len(picked)} of {len(items)}, {self._describe_signal(items)}")
        chosen.sort(key=lambda item: draw_key(self._seed, item.problem.id))
        source = Source(
            "mix",
            SPLIT,
            pinned=all(part.pinned for part in sources),
            licence="of its parts",
            rows=sum(part.rows for part in sources),
            problems=len(chosen),
            notes=tuple(notes),
            parts=tuple(sources),
        )
        return Loaded(tuple(chosen), source)

    def _describe_signal(self, items: Sequence[Item]) -> str:
        """Describe the signal that told their difficulty."""
        measured = sum(item.problem.id in self._pass_rates for item in items)
        if measured:
            return f"by the pass rates of {measured}"
        if any(item.difficulty is not None for item in items):
            return "by their stated difficulty"
        return "by diversity alone: nothing says how hard they are"


def read_pass_rates(path: Path) -> dict[str, float]:
    """Return pass rates by id, of a file of outcomes; several outcomes of one id are averaged.

    Raises:
        TaskError: a row has neither ``correct`` nor ``pass_rate``, or one of a wrong type.
    """
    rates: dict[str, list[float]] = {}
    for row in read_rows(path, name=str(path)):
        name = str(row.identity("id"))
        rate = row.amount("pass_rate")
        if rate is None:
            rate = row.values.get("correct", "nothing")
            if not isinstance(rate, bool | None):
                raise row.wrong("correct", rate, "true, false or null, or a pass_rate")
        elif not 0 <= rate <= 1:
            raise row.wrong("pass_rate", rate, "a number from 0 to 1")
        if rate is not None:
            rates.setdefault(name, []).append(rate)
    return {name: fmean(measured) for name, measured in rates.items()}


def _with_own_id(item: Item) -> Item:
    """Return the item with an id that no other part has."""
    problem = item.problem
    prefix = f"{problem.task}/"
    if problem.id.startswith(prefix):
        return item
    return replace(item, problem=replace(problem, id=prefix + problem.id))
