"""Benchmarks from local files, end to end: rows, prompts, workers by a script, graders, tables.

Every expected number of ``shaped_rows.json`` is worked out by hand from the scripts; tokens, cents
and calls are of all questions together. A call of the solver takes 1,500 tokens for 3 cents, of the
helper 1,300 for 2 cents (2,000 for 1 cent if it fails), of the planner 2,100 for 1 cent. So a
question costs the Conductor, by its plan:

- ``s`` 2 calls, 3,600 tokens, 4 cents;
- ``h`` 2 calls, 3,400 tokens, 3 cents (4,100 and 2 if the helper fails);
- ``2`` 3 calls, 4,900 tokens, 6 cents (2 calls, 4,100, 2 if the helper fails);
- ``x`` 1 call, 2,100 tokens, 1 cent.

A step that fails ends its episode: no later worker is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from shaped_rows import CASES, write_run

from openconductor.errors import SandboxError
from openconductor.evaluation.eval_config import ConductorTable, EvalConfig, TaskTable
from openconductor.evaluation.grid import run_grid
from openconductor.evaluation.tables import TableRow, make_table
from openconductor.providers import PROVIDERS
from openconductor.sandboxes import open_sandbox

SYSTEMS = ("conductor", "worker:solver", "worker:helper")
PROGRAMS = ("livecodebench_v1", "bigcodebench_hard")


@pytest.fixture(autouse=True)
def by_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the provider of the scripts on the shelf."""
    monkeypatch.setitem(PROVIDERS, "by_script", "shaped_rows:Scripted")


def assert_row(row: Mapping[str, object], expected: Mapping, questions: int) -> None:
    masked = expected.get("masked", 0)
    counts = {
        "n": questions,
        "unparsed": expected.get("unparsed", 0),
        "invalid": expected.get("invalid", 0),
        "masked": masked,
        "failed": masked,
        "refused": 0,
        "ungraded": 0,
    }
    assert {name: row[name] for name in counts} == counts
    dollars = expected["cents"] / 100
    assert row["dollars_per_question"] == pytest.approx(dollars / questions, abs=1e-12)
    assert row["tokens_per_question"] == pytest.approx(expected["tokens"] / questions)
    assert row["calls_per_question"] == pytest.approx(expected["calls"] / questions)
    assert row["accuracy"] == share(expected["right"], expected["decided"])
    assert row["validity"] == share(*expected.get("valid", (0, 0)))


def share(part: int, whole: int) -> object:
    return pytest.approx(part / whole) if whole else None


@pytest.mark.parametrize("name", CASES)
async def test_rows_of_each_shape_make_the_table_worked_out_by_hand(
    name: str, tmp_path: Path
) -> None:
    if name in PROGRAMS:
        try:
            open_sandbox()
        except SandboxError as error:
            pytest.skip(f"its programs need a sandbox, and none works here: {error}")
    case = CASES[name]
    rows, pool = write_run(tmp_path, name, case["scripts"])
    config = EvalConfig(
        systems=SYSTEMS,
        task=(TaskTable(name, path=str(rows)),),
        pool=str(pool),
        conductor=ConductorTable("worker:planner"),
    )
    table = make_table(await run_grid(config, tmp_path / "run"))
    for system, expected in case["expected"].items():
        row = table.row(system, name)
        values = {field: getattr(row, field) for field in TableRow.__slots__}
        assert_row(values, expected, len(case["scripts"]["solver"]))
    assert table.missing == 0
    assert table.against == "conductor"


def test_the_command_makes_the_same_tables_of_two_shapes_at_once_and_their_average(
    tmp_path: Path, run
) -> None:
    # The same marks for both; right and wrong replies as in GPQA.
    case = CASES["mmlu"]
    words: list[object] = ["eval", *SYSTEMS, "--conductor", "worker:planner"]
    for task in ("mmlu", "gpqa_diamond"):
        path, pool = write_run(tmp_path, task, case["scripts"])
        words += ["--task", task, "--task-path", f"{task}={path}"]
    printed = run(*words, "--pool", pool, "--out", tmp_path / "run", "--json").json()
    rows = {(row["system"], row["task"]): row for row in printed["rows"]}
    for system, expected in case["expected"].items():
        assert_row(rows[system, "mmlu"], expected, 3)
        assert_row(rows[system, "gpqa_diamond"], expected, 3)
        average = rows[system, "average"]
        assert average["accuracy"] == share(expected["right"], expected["decided"])
        assert (average["n"], average["unparsed"]) == (6, 2 * expected.get("unparsed", 0))
    # Twice 7 + 3 + 3 calls, twice 13 + 9 + 6 cents.
    assert (printed["spent"]["calls"], printed["spent"]["dollars"]) == (26, pytest.approx(0.56))
    line = "| conductor | 33.3 ± 33.3 | 33.3 ± 33.3 | 33.3 ± 23.6 |"
    assert line in (tmp_path / "run" / "table.md").read_text("utf-8")
