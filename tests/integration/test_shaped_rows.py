"""Benchmarks from local files, end to end: rows, prompts, workers by a script, graders, journal, table.

Every expected number is worked out by hand from the scripts. A call of the solver reads and writes
1,500 tokens for 3 cents, of the helper 1,300 for 2 cents (2,000 for 1 cent where it fails), of the
planner 2,100 for 1 cent. So a question costs the Conductor, by its plan:

- ``s`` 2 calls, 3,600 tokens, 4 cents · ``h`` 2 calls, 3,400 tokens, 3 cents (4,100 and 2 where the helper fails)
- ``2`` 3 calls, 4,900 tokens, 6 cents (2 calls, 4,100, 2 where the helper fails) · ``x`` 1 call, 2,100 tokens, 1 cent
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from shaped_rows import SHAPES, write_run

from openconductor.errors import SandboxError
from openconductor.evaluation.eval_config import ConductorTable, EvalConfig, TaskTable
from openconductor.evaluation.grid import run_grid
from openconductor.evaluation.tables import TableRow, make_table
from openconductor.providers import PROVIDERS
from openconductor.sandboxes import open_sandbox

SYSTEMS = ("conductor", "worker:solver", "worker:helper")
PROGRAMS = ("livecodebench_v1", "bigcodebench_hard")


@dataclass(frozen=True)
class Expected:
    """A row worked out by hand; tokens, cents and calls are of all questions together."""

    right: int
    decided: int
    tokens: int
    cents: int
    calls: int
    unparsed: int = 0
    invalid: int = 0
    masked: int = 0
    valid: tuple[int, int] | None = None


@dataclass(frozen=True)
class Case:
    """Scripts, a mark a problem, and the three rows that they make."""

    solver: str
    helper: str
    planner: str
    rows: Mapping[str, Expected]


CASES = {
    "aime25": Case(
        *("+-?+", "++-f", "s2hx"),
        {
            # s: right; 2: the solver is wrong; h: the helper is wrong; x: no plan
            "conductor": Expected(1, 4, 14_000, 14, 8, invalid=1, valid=(3, 4)),
            "worker:solver": Expected(2, 4, 6_000, 12, 4, unparsed=1),
            "worker:helper": Expected(2, 3, 5_900, 7, 4, masked=1),
        },
    ),
    "gpqa_diamond": Case(
        *("++++", "----", "ssh2"),
        {
            "conductor": Expected(3, 4, 15_500, 17, 9, valid=(4, 4)),
            "worker:solver": Expected(4, 4, 6_000, 12, 4),
            "worker:helper": Expected(0, 4, 5_200, 8, 4),
        },
    ),
    "math500": Case(
        *("?---", "f+f+", "hhhh"),
        {
            "conductor": Expected(2, 2, 15_000, 10, 8, masked=2, valid=(4, 4)),
            "worker:solver": Expected(0, 4, 6_000, 12, 4, unparsed=1),
            "worker:helper": Expected(2, 2, 6_600, 6, 4, masked=2),
        },
    ),
    "mmlu": Case(
        *("+?+", "?-+", "h2s"),
        {
            "conductor": Expected(1, 3, 11_900, 13, 7, unparsed=2, valid=(3, 3)),
            "worker:solver": Expected(2, 3, 4_500, 9, 3, unparsed=1),
            "worker:helper": Expected(1, 3, 3_900, 6, 3, unparsed=1),
        },
    ),
    "rlpr": Case(
        *("-+-+", "ffff", "s22x"),
        {
            # a step that fails ends its episode: the solver is never asked
            "conductor": Expected(0, 2, 13_900, 9, 7, invalid=1, masked=2, valid=(3, 4)),
            "worker:solver": Expected(2, 4, 6_000, 12, 4),
            "worker:helper": Expected(0, 0, 8_000, 4, 4, masked=4),
        },
    ),
    "livecodebench_v1": Case(
        *("+-?", "++f", "sh2"),
        {
            "conductor": Expected(2, 2, 11_100, 9, 6, masked=1, valid=(3, 3)),
            "worker:solver": Expected(1, 3, 4_500, 9, 3, unparsed=1),
            "worker:helper": Expected(2, 2, 4_600, 5, 3, masked=1),
        },
    ),
    "bigcodebench_hard": Case(
        *("-+", "?+", "2s"),
        {
            "conductor": Expected(1, 2, 8_500, 10, 5, valid=(2, 2)),
            "worker:solver": Expected(1, 2, 3_000, 6, 2),
            "worker:helper": Expected(1, 2, 2_600, 4, 2, unparsed=1),
        },
    ),
}


@pytest.fixture(autouse=True)
def by_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider of the scripts, on the shelf."""
    monkeypatch.setitem(PROVIDERS, "by_script", "shaped_rows:Scripted")


@pytest.fixture(scope="module")
def sandbox() -> str:
    """Why programs cannot be run here; "" where they can."""
    try:
        open_sandbox()
    except SandboxError as error:
        return str(error)
    return ""


def assert_row(row: Mapping[str, object] | TableRow, expected: Expected, questions: int) -> None:
    values = (
        row
        if isinstance(row, Mapping)
        else {name: getattr(row, name) for name in TableRow.__slots__}
    )
    accuracy = expected.right / expected.decided if expected.decided else None
    assert values["accuracy"] == (None if accuracy is None else pytest.approx(accuracy))
    counts = (
        values["n"],
        values["unparsed"],
        values["invalid"],
        values["masked"],
        values["failed"],
    )
    assert counts == (
        questions,
        expected.unparsed,
        expected.invalid,
        expected.masked,
        expected.masked,
    )
    assert (values["refused"], values["ungraded"]) == (0, 0)
    assert values["dollars_per_question"] == pytest.approx(
        expected.cents / 100 / questions, abs=1e-12
    )
    assert values["tokens_per_question"] == pytest.approx(expected.tokens / questions)
    assert values["calls_per_question"] == pytest.approx(expected.calls / questions)
    validity = (
        None if expected.valid is None else pytest.approx(expected.valid[0] / expected.valid[1])
    )
    assert values["validity"] == validity


@pytest.mark.parametrize("name", CASES)
async def test_rows_of_each_shape_make_the_table_worked_out_by_hand(
    name: str, tmp_path: Path, sandbox: str
) -> None:
    if name in PROGRAMS and sandbox:
        pytest.skip(f"its programs need a sandbox, and none works here: {sandbox}")
    case = CASES[name]
    rows, pool = write_run(
        tmp_path, SHAPES[name], solver=case.solver, helper=case.helper, planner=case.planner
    )
    config = EvalConfig(
        systems=SYSTEMS,
        task=(TaskTable(name, path=str(rows)),),
        pool=str(pool),
        conductor=ConductorTable("worker:planner"),
    )
    table = make_table(await run_grid(config, tmp_path / "run"))
    for system, expected in case.rows.items():
        assert_row(table.row(system, name), expected, len(case.solver))
    assert table.missing == 0
    assert table.against == "conductor"


def test_the_command_makes_the_same_tables_of_two_shapes_at_once_and_their_average(
    tmp_path: Path, run
) -> None:
    case = CASES["mmlu"]
    scripts = {"solver": case.solver, "helper": case.helper, "planner": case.planner}
    mmlu, pool = write_run(tmp_path, SHAPES["mmlu"], **scripts)
    gpqa, _ = write_run(
        tmp_path, SHAPES["gpqa_diamond"], **scripts
    )  # the same marks; right and wrong as in GPQA
    out = tmp_path / "run"
    where = [*("--pool", str(pool), "--conductor", "worker:planner", "--out", str(out), "--json")]
    tasks = [*("--task", "mmlu", "--task-path", f"mmlu={mmlu}")]
    tasks += [*("--task", "gpqa_diamond", "--task-path", f"gpqa_diamond={gpqa}")]
    ran = run("eval", *SYSTEMS, *tasks, *where)
    assert ran.code == 0, ran.err
    printed = ran.json()
    found = {(row["system"], row["task"]): row for row in printed["rows"]}
    assert len(found) == 9
    for system, expected in case.rows.items():
        for task in ("mmlu", "gpqa_diamond"):
            assert_row(found[system, task], expected, 3)
        average = found[system, "average"]
        assert average["accuracy"] == pytest.approx(expected.right / expected.decided)
        assert (average["n"], average["unparsed"]) == (6, 2 * expected.unparsed)
    # Twice 7 + 3 + 3 calls, twice 13 + 9 + 6 cents.
    assert (printed["spent"]["calls"], printed["spent"]["dollars"]) == (26, pytest.approx(0.56))
    with (out / "table.csv").open(encoding="utf-8") as stream:
        written = {(row["system"], row["task"]): row for row in csv.DictReader(stream)}
    assert float(written["conductor", "mmlu"]["accuracy"]) == pytest.approx(1 / 3)
    assert "| conductor | 33.3 ± 33.3 | 33.3 ± 33.3 | 33.3 ± 23.6 |" in (
        out / "table.md"
    ).read_text("utf-8")
