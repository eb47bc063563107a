"""Questions to which the answers of real models are recorded, for workers that replay them.

In: a replay table (``providers.replay_pool``), and the questions' texts where they have been
fetched. Out: problems whose text begins with the line by which a recorded worker knows them, ``[ID]
CATEGORY``. Choices keep their published order always: the recorded letters are places in it.
"""

from __future__ import annotations

from pathlib import Path

from openconductor.errors import TaskError
from openconductor.graders.choice import ChoiceGrader
from openconductor.providers.replay_pool import SPLITS, read_table, table_path
from openconductor.tasks.choice import MMLU
from openconductor.tasks.dataset import DatasetTask
from openconductor.tasks.items import Benchmark, Item, Loaded, Source, draw_key
from openconductor.types import Problem

SHIPPED = table_path("mmlu_pro")


class ReplayTask(Benchmark):
    """The questions of a replay table; ``limit`` of them are drawn by ``seed`` and keep their order.

    ``path`` is the table (``….csv.gz``), or a folder that holds their texts, in a file of choices
    named ``questions`` (docs/tasks.md), and maybe a table. Without one it is the table that ships,
    of MMLU-Pro.

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
        about = "questions with the recorded answers of real models, for workers that replay them"
        super().__init__("replay", about, SPLITS, ChoiceGrader(), split=split, limit=limit)
        self._path, self._limit, self._seed = (
            SHIPPED if path is None else Path(path),
            limit,
            seed or 0,
        )

    def _read(self, split: str) -> Loaded:
        path, texts = self._path, dict[str, Problem]()
        if path.is_dir():
            for file in path.glob("questions.*"):
                texts |= {
                    one.id.removeprefix("mmlu/"): one for one in DatasetTask(MMLU, path=file).load()
                }
            path = next(path.glob("*.csv.gz"), SHIPPED)
        table = read_table(path)
        rows = [row for row in table.rows.values() if row["split"] == split]
        if self._limit is not None:
            places = sorted(
                range(len(rows)), key=lambda place: draw_key(self._seed, rows[place]["id"])
            )[: self._limit]
            rows = [rows[place] for place in sorted(places)]
        items: list[Item] = []
        for row in rows:
            name, kind, answer = row["id"], row["category"], row["answer"]
            question = f"[{name}] {kind}"
            if self._path.is_dir():
                found = texts.get(name) or texts.get(name.rpartition("/")[2])
                if found is None or found.reference != answer:
                    got = found and f"the right answer {found.reference}"
                    raise TaskError(
                        f"task replay: {name}: got {got}, expected its text, with {answer} as right"
                    )
                question += f"\n\n{found.question}"
            items.append(
                Item(
                    Problem(name, question, answer, "replay", kind=kind), f"Answer: {answer}", kind
                )
            )
        source, licence, digest = (table.note[name] for name in ("source", "licence", "sha256"))
        return Loaded(
            tuple(items),
            Source(source, split, None, True, licence, digest, (), len(rows), len(items)),
        )
