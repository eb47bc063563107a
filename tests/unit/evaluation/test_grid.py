"""A whole evaluation, without a network: what it asks at once, writes and pays, what stops it.

What it resumes.
"""

from __future__ import annotations

import asyncio
import csv
import tomllib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from scripted import Adder, pool_of, write_sums

from openconductor import errors
from openconductor.baselines.observed import Observations
from openconductor.baselines.routers import RouterDC
from openconductor.evaluation import grid, systems
from openconductor.evaluation.eval_config import EvalConfig, SpendingTable, make_eval_config
from openconductor.evaluation.grid import OnProgress, Progress
from openconductor.evaluation.records import Results, holds, read_folder, sample_number
from openconductor.evaluation.regrade import Move, Regraded, regrade
from openconductor.graders.math import MathGrader
from openconductor.gym.workers import gym_pool
from openconductor.pool import WorkerPool
from openconductor.store import JournalReader
from openconductor.store.storage import make_folder, write_whole
from openconductor.types import Grade, Problem

FILES = {"config.toml", "questions.jsonl", "environment.json", "journal.sqlite", "latency.json"}
TABLES = {"table.json", "table.md", "table.csv"}
BEST_WORKER = "worker:maven"
RUN = Path("run")


def made(**values: object) -> EvalConfig:
    defaults = {"systems": [BEST_WORKER], "task": [{"name": "gym", "limit": 6}], "concurrency": 4}
    return make_eval_config(defaults | values, where="test")


def run(
    config: EvalConfig,
    folder: Path = RUN,
    *,
    retry_failed: bool = False,
    tell: OnProgress | None = None,
) -> Results:
    return asyncio.run(grid.run_grid(config, folder, retry_failed=retry_failed, on_progress=tell))


def paid(folder: Path = RUN) -> tuple[int, Decimal]:
    with JournalReader(folder / "journal.sqlite") as journal:
        spent = journal.totals().spent
    return spent.calls, spent.usage.dollars


def rows_in(folder: Path) -> list[dict[str, str]]:
    """Return the rows of the folder's table."""
    return list(csv.DictReader((folder / "table.csv").read_text("utf-8").splitlines()))


@pytest.fixture
def bob() -> Adder:
    """A worker that is never right."""
    return Adder(1)


def use(monkeypatch: pytest.MonkeyPatch, make: Callable[[], WorkerPool]) -> None:
    """Take this pool in place of the one in a file."""
    monkeypatch.setattr(systems, "load_pool", lambda config, calibrations: make())
    monkeypatch.setattr(grid, "read_calibrations", lambda name: {})


@pytest.fixture
def ada(bob: Adder, monkeypatch: pytest.MonkeyPatch) -> Adder:
    """A worker that is right, in a pool of our own with bob."""
    ada = Adder()
    use(monkeypatch, lambda: pool_of(max_tokens=10, ada=ada, bob=bob))
    return ada


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory holds a test's data and its runs."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Problem, str], Any]], None]:
    """Another grader than the math one."""

    def use(verdict: Callable[[Problem, str], Any]) -> None:
        async def grade(self: MathGrader, problem: Problem, answer: str) -> Grade:
            decided = verdict(problem, answer)
            if isinstance(decided, BaseException):
                raise decided
            return await decided if asyncio.iscoroutine(decided) else decided

        monkeypatch.setattr(MathGrader, "grade", grade)

    return use


Judge = Callable[[Callable[[Problem, str], Any]], None]

DEFAULTS = {"systems": ["worker:ada"], "pool": "pool.toml", "concurrency": 1}


def sums(*, learn: bool = False, **values: object) -> EvalConfig:
    write_sums(Path("test.jsonl"), range(1, 5))
    write_sums(Path("train.jsonl"), range(11, 15))
    task = [{"name": "gsm8k", "path": "." if learn else "test.jsonl"}]
    return made(**(DEFAULTS | {"task": task} | values))


# ── what a run asks and writes ────────────────────────────────────────────────────────────────────
# ── what a run asks and writes ────────────────────────────────────────────────────────────────────
def test_a_run_leaves_a_folder_that_says_what_it_was_and_what_came_of_it() -> None:
    folder = Path("runs/one")
    progress: list[Progress] = []
    config = made(systems=[BEST_WORKER, "random"], repeats=2, seed=4)
    results = run(config, folder, tell=progress.append)
    names = {path.name for path in folder.iterdir()}
    assert {name for name in names if "sqlite-" not in name} == FILES | TABLES
    assert tomllib.loads((folder / "config.toml").read_text("utf-8"))["seed"] == 4
    environment = read_folder(folder)[1]
    assert environment["packages"]["openconductor"]
    assert environment["inputs"]["tasks"]["gym"]["problems"] == 6
    assert len(environment["inputs"]["workers"]) == 8
    assert [(now.done, now.total) for now in progress] == [(done, 24) for done in range(1, 25)]
    assert len(results.records) == 24
    assert results.missing == 0
    assert [(row["system"], row["n"], row["k"]) for row in rows_in(folder)] == [
        (BEST_WORKER, "6", "2"),
        ("random", "6", "2"),
    ]
    assert Results.load(folder) == results


def test_every_cell_is_asked_once_under_a_sample_number_of_its_own(ada: Adder) -> None:
    records = run(sums(repeats=2)).records
    cells = [(record.problem[-1], record.sample) for record in records]
    assert cells == list(product("0123", (0, 1)))
    assert all(record.correct and record.calls == 1 for record in records)
    numbers: set[int] = set()
    for record in records:
        numbers.add(sample_number("worker:ada", "gsm8k", record.problem, record.sample))
    assert set(ada.samples) == numbers
    assert len(numbers) == 8
    assert max(numbers) < 2**53
    assert paid() == (8, 8 * Decimal("0.00012"))


def test_a_sample_number_stays_what_it_is_because_resuming_depends_on_it() -> None:
    assert sample_number("conductor", "gym", "gym-1", 2) == 7105550647508994


def test_an_answered_episode_gives_its_place_away_while_it_is_graded_and_only_so_many_may_wait(
    ada: Adder, judge: Judge
) -> None:
    waiting: list[str] = []
    opened = asyncio.Event()

    async def slow(problem: Problem) -> Grade:
        waiting.append(problem.id)
        await opened.wait()
        return Grade(True)

    async def play() -> None:
        config = sums(repeats=2)
        playing = asyncio.create_task(grid.run_grid(config, RUN))
        async with asyncio.timeout(60):
            while len(waiting) < 4:  # noqa: ASYNC110 - the journal's thread has a part in it
                await asyncio.sleep(0.001)
        assert len(waiting) == len(ada.asked) == 4, "one place, three that settle"
        assert ada.most == 1
        opened.set()
        await playing

    judge(lambda problem, answer: slow(problem))
    asyncio.run(play())
    assert len(ada.asked) == 8


# ── a second run of the same folder ───────────────────────────────────────────────────────────────
SAME_CALL = ["worker:ada", "best_fixed", "worker:bob"]  # the best fixed workflow is ada alone


# ── a second run of the same folder ───────────────────────────────────────────────────────────────
def test_systems_that_make_the_same_call_pay_once_where_calls_are_shared(ada: Adder) -> None:
    shared = run(sums(systems=SAME_CALL, learn=True, share_calls=True))
    assert len(ada.asked) == 4 + 4
    assert [row["accuracy"] for row in rows_in(RUN)] == ["1.0", "1.0", "0.0"]
    bills = [record.usage.dollars for record in shared.records]
    assert min(bills) > 0, "each is billed what it would cost alone"
    run(sums(systems=SAME_CALL, learn=True), Path("own"))
    assert len(ada.asked) == 8 + 4 + 8


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────
# ── budgets ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("max_tokens", "dollars", "most"), [(10, "0.00037", 3), (None, "0.00024", 2)]
)
def test_dollars_are_never_overspent_and_the_last_cent_pays_for_no_call_of_unknown_cost(
    ada: Adder, monkeypatch, max_tokens: int | None, dollars: str, most: int
) -> None:
    pool = pool_of(max_tokens=max_tokens, ada=ada)
    use(monkeypatch, lambda: pool)
    for _ in range(2):
        with pytest.raises(errors.BudgetExceeded) as caught:
            run(sums(budget={"dollars": dollars}))
    assert caught.value.limit in ("dollars", "calls")
    assert paid()[1] <= Decimal(dollars)
    assert len(ada.asked) <= most


def test_what_the_journal_answers_is_not_taken_from_the_budget(ada: Adder, judge: Judge) -> None:
    """The fourth answer is paid for, and there is no record of it."""
    stop = errors.TaskError("stop")
    judge(lambda problem, answer: stop if problem.id.endswith("3") else Grade(True))
    with pytest.raises(errors.TaskError):
        run(sums(budget={"calls": 5}))
    judge(lambda problem, answer: Grade(True))
    results = run(sums(budget={"calls": 5}))
    assert len(ada.asked) == 4
    assert paid()[0] == 4
    assert results.missing == 0
    bills = {record.usage.dollars for record in results.records}
    assert bills == {Decimal("0.00012")}, "what it would cost, whoever paid"


# ── failures ──────────────────────────────────────────────────────────────────────────────────────
# ── failures ──────────────────────────────────────────────────────────────────────────────────────
def test_what_failed_is_masked_and_asked_again_only_on_request(ada: Adder) -> None:
    config = sums(systems=["worker:ada", "worker:bob"])
    ada.failing[2] = errors.RateLimited("too many")
    first = run(config)
    (failed,) = [record for record in first.records if record.status == "failed"]
    assert (failed.system, failed.problem[-1], failed.correct) == ("worker:ada", "1", None)
    ada.failing.clear()
    ada.asked.clear()
    assert run(config).records == first.records
    assert ada.asked == []
    again = run(config, retry_failed=True)
    assert ada.asked == [2]
    assert all(record.correct for record in again.of("worker:ada"))
    assert again.of("worker:bob") == first.of("worker:bob")


def test_an_attempt_that_was_rejected_for_its_rate_is_no_call(ada: Adder) -> None:
    ada.failing[2] = errors.RateLimited("too many")
    config = sums(budget={"calls": 4})
    assert sorted(record.calls for record in run(config).records) == [0, 1, 1, 1]
    ada.failing.clear()
    assert run(config, retry_failed=True).missing == 0
    assert paid()[0] == 5  # attempts, of which the budget counts four


def test_what_a_system_has_learnt_from_stays_once_it_has_answered(ada: Adder) -> None:
    config = sums(systems=["best_fixed"], learn=True)
    ada.failing |= {12: errors.RateLimited("too many"), 2: errors.RateLimited("too many")}
    with pytest.raises(errors.BudgetExceeded):
        run(replace(config, budget=SpendingTable(calls=8)))
    ada.asked.clear()
    run(config, retry_failed=True)  # nothing has been answered by what was learnt: it may be mended
    assert ada.asked == [12, 1, 2, 3, 4]
    ada.asked.clear()
    ada.failing.clear()
    run(config, retry_failed=True)
    assert ada.asked == [2]


def test_what_stops_a_run_cancels_what_runs_and_comes_out_as_it_is(ada: Adder) -> None:
    ada.hanging = True
    ada.failing[3] = errors.AuthFailed("the key is wrong")
    with pytest.raises(errors.AuthFailed, match="the key is wrong"):
        run(sums(concurrency=3))
    assert ada._now == 0
    with JournalReader(RUN / "journal.sqlite") as journal:
        assert list(journal.records()) == []


@pytest.mark.parametrize(
    ("verdict", "note"),
    [
        (Grade(None, note="two readings"), "two readings"),
        (errors.GradingError("no sandbox"), "undecided: no sandbox"),
        (
            ZeroDivisionError("oops\n  twice"),
            "undecided: the grader raised ZeroDivisionError: oops twice",
        ),
        (asyncio.CancelledError(), "undecided: the grader was cancelled from inside"),
    ],
)
def test_what_a_grader_cannot_decide_is_masked_with_the_reason(
    ada: Adder, judge: Judge, verdict: object, note: str
) -> None:
    judge(lambda problem, answer: verdict)
    records = run(sums()).records
    assert {(record.status, record.note) for record in records} == {("ungraded", note)}


# ── what is refused before anything is paid for ───────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"systems": ["worker:mavn"]}, "nearest is 'maven'"),
        (
            {"systems": ["random", BEST_WORKER], "against": "worker:referee"},
            "against: got 'worker:referee'",
        ),
        ({"task": [{"name": "gymn"}]}, "'gym'"),
        ({"constrained": {"mavn": {}}}, "nearest is 'maven'"),
    ],
)
def test_a_mistake_in_the_recipe_makes_no_folder(values: dict[str, object], said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        run(made(**values))
    assert not RUN.exists()


def test_an_evaluation_of_something_else_does_not_go_into_the_folder(ada: Adder) -> None:
    run(sums())
    before = {path.name: path.read_bytes() for path in RUN.iterdir()}
    message = r'systems: got \["worker:bob"\], expected \["worker:ada"\]'
    with pytest.raises(errors.ConfigError, match=message) as caught:
        run(sums(systems=["worker:bob"]))
    assert str(RUN) in str(caught.value)
    with pytest.raises(errors.ConfigError, match="seed: got 2, expected null"):
        run(sums(seed=2))
    config = sums()
    write_sums(Path("test.jsonl"), range(2, 6))
    with pytest.raises(errors.ConfigError, match=r"tasks: gsm8k: digest: got .*, expected"):
        run(config)
    assert {path.name: path.read_bytes() for path in RUN.iterdir()} == before


# ── the folder ────────────────────────────────────────────────────────────────────────────────────
def test_the_folder_of_a_killed_run_is_used(ada: Adder) -> None:
    RUN.mkdir()
    for name in ("environment.json", "config.toml.part"):
        (RUN / name).touch()
    assert run(sums()).missing == 0


def test_a_strangers_folder_is_not_written_to(ada: Adder) -> None:
    thesis = Path("thesis/thesis.tex")
    thesis.parent.mkdir()
    thesis.touch()
    with pytest.raises(errors.ConfigError, match=r"holds 'thesis.tex', expected a new folder"):
        run(sums(), thesis.parent)
    with pytest.raises(errors.ConfigError, match="is no folder"):
        run(sums(), thesis)


@pytest.mark.slow
def test_a_router_that_was_trained_anew_makes_it_another_evaluation() -> None:
    seen = Observations(("Sum 1 2.", "Sort 3 1."), ("maven", "jack"), ((1.0, 0.0), (0.0, 1.0)))
    RouterDC(gym_pool(), observations=seen, seed=0).save(Path("router.json"))
    config = made(systems=["routerdc-lite?router=router.json"])
    run(config)
    once = paid()
    run(config)
    assert paid() == once
    RouterDC(gym_pool(), observations=seen, seed=1).save(Path("router.json"))
    with pytest.raises(
        errors.ConfigError, match=r"holds another evaluation: trained: .*router\.json: got"
    ):
        run(config)


# ── the folder ────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_holds_what_it_was_told_and_no_other_evaluation(ada: Adder) -> None:
    config = sums()
    run(config)
    assert holds(RUN, config)
    assert holds(RUN, sums(budget={"calls": 3}, concurrency=2))
    assert not holds(RUN, sums(seed=1))
    assert not holds(RUN, sums(pool="other.toml"))
    assert not holds(Path(), config)
    assert not holds(Path("new"), config)


def test_a_run_that_is_resumed_elsewhere_says_what_is_different_there(ada, monkeypatch) -> None:
    folder = RUN
    run(sums(), folder)
    before = read_folder(folder)[1]
    for version in ("0.0", before["python"], "0.0"):
        monkeypatch.setattr("platform.python_version", lambda version=version: version)
        run(sums(), folder)
    now = read_folder(folder)[1]
    assert now["resumed"] == [[f'python: got "0.0", expected "{before["python"]}"']]
    assert {**now, "resumed": None} == {**before, "resumed": None}


@pytest.mark.parametrize(
    ("name", "text"),
    [("config.toml", "systems = ["), ("config.toml", "sytems = ['a']"), ("environment.json", "[]")],
)
def test_a_broken_folder_says_so(ada: Adder, name: str, text: str) -> None:
    run(sums())
    (RUN / name).write_text(text, "utf-8")
    with pytest.raises(errors.ConfigError, match="run"):
        run(sums())


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_no_part() -> None:
    table = Path("table.md")
    write_whole(table, "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_whole(table, "\ud800")
    assert list(Path().iterdir()) == [table]
    assert table.read_bytes() == b"old\n"
    with pytest.raises(errors.JournalError, match="could not be written"):
        write_whole(table / "below", "x")
    with pytest.raises(errors.JournalError, match="could not be made"):
        make_folder(table / "below")


# ── grading again ─────────────────────────────────────────────────────────────────────────────────
# ── grading again ─────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def folder(ada: Adder, bob: Adder) -> Path:
    """A finished run: ada is right (one of hers failed), bob is wrong."""
    ada.failing[3] = errors.RateLimited("too many")
    run(sums(systems=["worker:ada", "worker:bob"]))
    ada.asked.clear()
    bob.asked.clear()
    return RUN


async def test_the_same_grader_moves_nothing(folder: Path) -> None:
    done = await regrade(folder)
    assert (done.graded, done.moves) == (7, ()), "one of eight has no answer"


@pytest.fixture
def regraded(folder: Path, judge: Judge) -> Regraded:
    """The run graded again by a grader that calls all right, and cannot decide the last."""
    unknown = Grade(None, note="no sandbox")
    judge(lambda problem, _: unknown if problem.id.endswith("3") else Grade(True, "7"))
    return asyncio.run(regrade(folder))


def test_verdicts_that_moved_are_listed_and_nobody_is_called(regraded, ada, bob) -> None:
    assert regraded.graded == 7
    lost, *moves = regraded.moves
    assert lost == Move("worker:ada", "gsm8k", lost.problem, 0, True, None, "no sandbox")
    assert {move.system for move in moves} == {"worker:bob"}
    verdicts = [(move.problem[-1], move.before, move.now) for move in moves]
    assert verdicts == [*((number, False, True) for number in "012"), ("3", False, None)]
    assert ada.asked == bob.asked == []


def test_the_tables_follow_the_verdicts_and_the_old_ones_stay_in_the_journal(regraded) -> None:
    assert [row["accuracy"] for row in rows_in(RUN)] == ["1.0", "1.0"]
    records = regraded.results.records
    masked = [(record.system, record.note) for record in records if record.status == "ungraded"]
    assert masked == [("worker:ada", "no sandbox"), ("worker:bob", "no sandbox")]
    failed = [record.error for record in records if record.status == "failed"]
    assert failed == ["RateLimited: worker 'ada': too many"]  # what has no answer stays what it is
    with JournalReader(RUN / "journal.sqlite") as journal:
        history = [record.value for record in journal.records(history=True)]
    assert len(history) == 8 + 7
    assert [value["correct"] for value in history[:8]].count(True) == 3


def test_other_questions_than_those_that_were_asked_are_refused(folder: Path) -> None:
    write_sums(Path("test.jsonl"), range(2, 6))
    with pytest.raises(errors.ConfigError, match="its questions have changed: gsm8k: digest: got"):
        asyncio.run(regrade(folder))
    with pytest.raises(errors.ConfigError, match="expected the folder of an evaluation"):
        asyncio.run(regrade(Path("elsewhere")))
