"""A recipe over sums, and what comes of it in peace: the tables, and the requests by their id.

A loopback server answers, and counts what it was asked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from chat_server import write_pool
from counting_server import CountingServer, Turns

from openconductor import cli

AT_ONCE = 4
QUESTIONS, LEARNT = 14, 12
SIDE_BY_SIDE = 5  # the most calls that one question has in flight
TABLES = ("table.json", "table.md", "table.csv")
SYSTEMS = (
    "worker:ada",
    "consensus:ada?n=5",
    "reflection:bob?n=2",
    "conductor",
    "routerdc-lite",
    "smoothie-lite",
)
PLAN = "model_id = [1, 2, 1]\nsubtasks = ['Add.', 'Add.', 'Decide.']\naccess_list = [[], [], 'all']"
_SUM = re.compile(r"What is (\d+) plus (\d+)\?")


class Server(CountingServer):
    """Adds two numbers, by chance wrongly.

    What it says depends on the worker and the turns alone.
    """

    PAUSE_S = (0.001, 0.012)

    def text(self, model: str, turns: Turns, asked: str) -> str:
        if "model_id" in turns[0][1]:
            return PLAN
        if "Verdict" in turns[0][1]:
            return verdict(turns[0][1])
        said = " ".join(content for _, content in turns)
        found = _SUM.search(said)
        assert found is not None, said
        return f"It is \\boxed{{{int(found[1]) + int(found[2]) + (int(asked, 16) % 3 == 0)}}}."


def verdict(asked: str) -> str:
    """Judge whether an answer is the number that its reference has in words."""
    reference, answer = re.findall(r"-----\n(?:the number )?(\d+)\n-----", asked)
    return f"Verdict: {'right' if reference == answer else 'wrong'}"


# ── the recipe ────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Peace:
    """A run that nobody disturbed."""

    recipe: Path
    tables: dict[str, bytes]
    requests: Counter[str]

    def command(self, folder: Path, *more: str) -> list[str]:
        return ["eval", "--config", str(self.recipe), "--out", str(folder), *more]


def write_sums(path: Path, numbers: range) -> None:
    """Write sums. The references of every other one are words, so that a judge is asked."""
    rows = ""
    for n in numbers:
        answer = f"the number {n + n * n}" if n % 2 else str(n + n * n)
        row = {"id": f"sum-{n}", "question": f"What is {n} plus {n * n}?", "answer": answer}
        rows += json.dumps(row) + "\n"
    path.write_text(rows, "utf-8")


def in_peace(server: Server, folder: Path, *, shared: bool) -> Peace:
    price = "price = { input = 1, output = 2 }"
    pool = write_pool(folder, server.url, "boss", "ada", "bob", more=price)
    write_sums(folder / "test.jsonl", range(QUESTIONS))
    write_sums(folder / "train.jsonl", range(QUESTIONS, QUESTIONS + LEARNT))
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'name = "resumed"\nsystems = {json.dumps(SYSTEMS)}\npool = "{pool}"\n'
        f"concurrency = {AT_ONCE}\nseed = 3\nshare_calls = {json.dumps(shared)}\n"
        f'judge = "boss"\n[[task]]\nname = "rlpr"\npath = "{folder}"\nsplit = "test"\n'
        f'[conductor]\nplanner = "worker:boss"\n'
        f"[learn]\nlimit = {LEARNT}\n",
        "utf-8",
    )
    before = len(server.asked)
    assert cli.main(Peace(recipe, {}, Counter()).command(folder / "run")) == 0
    tables = {name: (folder / "run" / name).read_bytes() for name in TABLES}
    accuracies = {row["accuracy"] for row in json.loads(tables["table.json"])["rows"]}
    assert all(row["judged"] for row in json.loads(tables["table.json"])["rows"])
    assert len(accuracies) > 2, "every system does the same: the test has no power"
    assert None not in accuracies
    return Peace(recipe, tables, Counter(server.asked[before:]))


def import_all() -> None:
    """Import what the recipe needs, so that a child's life is not spent on it."""
    import sklearn.feature_extraction.text  # noqa: F401

    import openconductor.baselines.routers
    import openconductor.baselines.smoothie
    import openconductor.cli.eval
    import openconductor.evaluation.grid
    import openconductor.tasks.math  # noqa: F401
