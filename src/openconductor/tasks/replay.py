"""Questions with the recorded answers of real models, for workers that replay them.

Each problem's text begins with the line by which a recorded worker knows it, ``[ID] CATEGORY``.
Choices always keep their published order, because the recorded letters are places in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from openconductor.errors import TaskError
from openconductor.graders.choice import ChoiceGrader
from openconductor.providers.replay_pool import SPLITS, read_table, table_path
from openconductor.tasks.choice import MMLU
from openconductor.tasks.data.dataset import DatasetTask
from openconductor.tasks.data.items import Benchmark, Item, Loaded, Source, draw_key
from openconductor.types import Problem

SHIPPED = table_path("mmlu_pro")


class ReplayTask(Benchmark):
    """The questions of a replay table; ``limit`` of them are drawn by ``seed``, in their order.

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
        self._path = SHIPPED if path is None else Path(path)
        self._limit = limit
        self._seed = seed or 0

    def _read(self, split: str) -> Loaded:
        path, texts = self._path, None
        if path.is_dir():
            texts = _read_texts(path)
            path = next(path.glob("*.csv.gz"), SHIPPED)
        table = read_table(path)
        rows = [row for row in table.rows.values() if row["split"] == split]
        if self._limit is not None:
            rows_by_draw = sorted(rows, key=lambda row: draw_key(self._seed, row["id"]))
            chosen = {row["id"] for row in rows_by_draw[: self._limit]}
            rows = [row for row in rows if row["id"] in chosen]
        items = tuple(_item(row, texts) for row in rows)
        source, licence, digest = (table.note[name] for name in ("source", "licence", "sha256"))
        return Loaded(
            items,
            Source(source, split, None, True, licence, digest, (), len(rows), len(items)),
        )


def _read_texts(folder: Path) -> dict[str, Problem]:
    """Return the questions of a folder by their id."""
    texts: dict[str, Problem] = {}
    for file in folder.glob("questions.*"):
        for problem in DatasetTask(MMLU, path=file).load():
            texts[problem.id.removeprefix("mmlu/")] = problem
    return texts


def _item(row: Mapping[str, str], texts: Mapping[str, Problem] | None) -> Item:
    """Make an item of a recorded question, with its text if there are texts."""
    name = row["id"]
    kind = row["category"]
    answer = row["answer"]
    question = f"[{name}] {kind}"
    if texts is not None:
        text = texts.get(name) or texts.get(name.rpartition("/")[2])
        if text is None or text.reference != answer:
            got = text and f"the right answer {text.reference}"
            raise TaskError(
                f"task replay: {name}: got {got}, expected its text, with {answer} as right"
            )
        question += f"\n\n{text.question}"
    problem = Problem(name, question, answer, "replay", kind=kind)
    return Item(problem, f"Answer: {answer}", kind)
