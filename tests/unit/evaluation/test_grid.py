"""A whole evaluation, without a network: what it asks at once, writes and pays, what stops it.

What it resumes.
"""

from __future__ import annotations

import asyncio
import csv
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from scripted import Adder, pool_of, write_sums

from openconductor import errors
from openconductor.baselines.observed import Observations
from openconductor.baselines.routers import RouterDC
from openconductor.evaluation import grid, systems
from openconductor.evaluation.eval_config import EvalConfig, make_eval_config
from openconductor.evaluation.grid import OnProgress, Progress
from openconductor.evaluation.records import Results, holds, read_folder, sample_number
from openconductor.evaluation.regrade import Move, Regraded, regrade
from openconductor.graders.math import MathGrader
from openconductor.gym.workers import gym_pool
from openconductor.store import JournalReader
from openconductor.store.storage import make_folder, write_whole
from openconductor.types import Grade, Problem

FILES = {"config.toml", "environment.json", "journal.sqlite", "latency.json"}
TABLES = {"table.json", "table.md", "table.csv"}
BEST_WORKER = "worker:maven"
RUN = Path("run")


def made(**values: object) -> EvalConfig:
    told = {
        "systems": [BEST_WORKER],
        "task": [{"name": "gym", "limit": 6}],
        "concurrency": 4,
        **values,
    }
    return make_eval_config(told, where="test")


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


@pytest.fixture
def bob() -> Adder:
    """A worker that is never right."""
    return Adder(1)


@pytest.fixture
def ada(bob: Adder, monkeypatch: pytest.MonkeyPatch) -> Adder:
    """A worker that is right, in a pool of our own with bob."""
    ada = Adder()
    monkeypatch.setattr(systems, "load_pool", lambda _: pool_of(max_tokens=10, ada=ada, bob=bob))
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
            found = verdict(problem, answer)
            if isinstance(found, BaseException):
                raise found
            return await found if asyncio.iscoroutine(found) else found

        monkeypatch.setattr(MathGrader, "grade", grade)

    return use


Judge = Callable[[Callable[[Problem, str], Any]], None]


def sums(*, learn: bool = False, **values: object) -> EvalConfig:
    write_sums(Path("test.jsonl"), range(1, 5))
    write_sums(Path("train.jsonl"), range(11, 15))
    task = [{"name": "gsm8k", "path": "." if learn else "test.jsonl"}]
    return made(
        **{"systems": ["worker:ada"], "task": task, "pool": "pool.toml", "concurrency": 1, **values}
    )


# ── what a run asks and writes ────────────────────────────────────────────────────────────────────
def test_a_run_leaves_a_folder_that_says_what_it_was_and_what_came_of_it() -> None:
    folder = Path("runs/one")
    heard: list[Progress] = []
    results = run(
        made(systems=[BEST_WORKER, "random"], repeats=2, seed=4), folder, tell=heard.append
    )
    assert {
        path.name for path in folder.iterdir() if not path.name.startswith("journal.sqlite-")
    } == FILES | TABLES
    assert tomllib.loads((folder / "config.toml").read_text("utf-8"))["seed"] == 4
    environment = read_folder(folder)[1]
    assert environment["packages"]["openconductor"]
    assert environment["inputs"]["tasks"]["gym"]["problems"] == 6
    assert len(environment["inputs"]["workers"]) == 8
    assert [(one.done, one.total) for one in heard] == [(number, 24) for number in range(1, 25)]
    assert len(results.records) == 24
    assert results.missing == 0
    rows = list(csv.DictReader((folder / "table.csv").read_text("utf-8").splitlines()))
    assert [(row["system"], row["n"], row["k"]) for row in rows] == [
        (BEST_WORKER, "6", "2"),
        ("random", "6", "2"),
    ]
    assert Results.load(folder) == results


def test_every_cell_is_asked_once_under_a_sample_number_of_its_own(ada: Adder) -> None:
    results = run(sums(repeats=2))
    assert [(one.problem[-1], one.sample) for one in results.records] == [
        (str(n), k) for n in range(4) for k in (0, 1)
    ]
    assert all(one.correct and one.task == "gsm8k" and one.calls == 1 for one in results.records)
    expected = {
        sample_number("worker:ada", "gsm8k", one.problem, one.sample) for one in results.records
    }
    assert set(ada.samples) == expected
    assert len(expected) == 8
    assert max(expected) < 2**53
    assert (
        sample_number("conductor", "gym", "gym-1", 2) == 7105550647508994
    )  # resuming depends on it
    assert paid() == (8, 8 * Decimal("0.00012"))
    with JournalReader(RUN / "journal.sqlite") as journal:
        assert {one.id for one in journal.episodes(limit=None)} == {
            one.episode for one in results.records
        }
        assert json.loads(next(journal.records()).key) == [
            "worker:ada",
            "gsm8k",
            results.records[0].problem,
            0,
        ]


def test_hindsight_asks_every_worker_and_shows_only_what_was_named() -> None:
    results = run(made(systems=["oracle_observed", "random"]))
    assert {record.system for record in results.records} == {"oracle_observed", "random"}
    assert len({record.system for record in results.learning}) == 8
    assert results.missing == 0
    right = {record.problem for record in results.learning if record.correct}
    assert {record.problem for record in results.of("oracle_observed") if record.correct} == right


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
        assert (len(waiting), ada.most, len(ada.asked)) == (
            4,
            1,
            4,
        )  # one place, three that settle
        opened.set()
        await playing

    judge(lambda problem, answer: slow(problem))
    asyncio.run(play())
    assert len(ada.asked) == 8


# ── a second run of the same folder ───────────────────────────────────────────────────────────────
def test_systems_that_make_the_same_call_pay_once_where_calls_are_shared(ada) -> None:
    config = sums(systems=["worker:ada", "best_fixed", "worker:bob"], learn=True, share_calls=True)
    shared = run(config, Path("shared"))  # the best fixed workflow is ada alone
    assert len(ada.asked) == 4 + 4
    assert [
        row["accuracy"] for row in json.loads((Path("shared/table.json")).read_text())["rows"]
    ] == [1, 1, 0]
    assert all(
        record.usage.dollars > 0 for record in shared.records
    )  # each is billed what it would cost alone
    run(
        sums(systems=["worker:ada", "best_fixed", "worker:bob"], learn=True),
        Path("own"),
    )
    assert len(ada.asked) == 8 + 4 + 8


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────
def test_dollars_are_never_overspent_and_the_last_cent_pays_for_no_call_of_unknown_cost(
    ada: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, limit, dollars, most in (
        ("known", 10, "0.00037", 3),
        ("unknown", None, "0.00024", 2),
    ):
        monkeypatch.setattr(
            systems, "load_pool", lambda config, limit=limit: pool_of(max_tokens=limit, ada=ada)
        )
        ada.asked.clear()
        for _ in range(2):
            with pytest.raises(errors.BudgetExceeded) as caught:
                run(sums(budget={"dollars": dollars}), Path(folder))
        assert caught.value.limit in ("dollars", "calls")
        assert paid(Path(folder))[1] <= Decimal(dollars)
        assert len(ada.asked) <= most


def test_what_the_journal_answers_is_not_taken_from_the_budget(ada, judge) -> None:
    judge(
        lambda problem, answer: (
            errors.TaskError("stop") if problem.id.endswith("3") else Grade(True)
        )
    )
    with pytest.raises(
        errors.TaskError
    ):  # the fourth answer is paid for, and there is no record of it
        run(sums(budget={"calls": 5}))
    judge(lambda problem, answer: Grade(True))
    results = run(sums(budget={"calls": 5}))
    assert len(ada.asked) == 4
    assert paid()[0] == 4
    assert results.missing == 0
    assert {one.usage.dollars for one in results.records} == {
        Decimal("0.00012")
    }  # what it would cost, whoever paid


# ── failures ──────────────────────────────────────────────────────────────────────────────────────
def test_what_failed_is_masked_and_asked_again_only_on_request(ada: Adder) -> None:
    config = sums(systems=["worker:ada", "worker:bob"])
    ada.failing[2] = errors.RateLimited("too many")
    first = run(config)
    assert [
        (one.problem[-1], one.correct) for one in first.of("worker:ada") if one.status == "failed"
    ] == [("1", None)]
    ada.failing.clear()
    ada.asked.clear()
    assert run(config).records == first.records
    assert ada.asked == []
    again = run(config, retry_failed=True)
    assert ada.asked == [2]
    assert all(one.correct for one in again.of("worker:ada"))
    assert again.of("worker:bob") == first.of("worker:bob")


def test_what_a_system_has_learnt_from_stays_once_it_has_answered(ada: Adder) -> None:
    config = sums(systems=["best_fixed"], learn=True)
    ada.failing |= {12: errors.RateLimited("too many"), 2: errors.RateLimited("too many")}
    with pytest.raises(errors.BudgetExceeded):
        run(
            sums(systems=["best_fixed"], learn=True, budget={"calls": 8}),
        )
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
    ("said", "status", "note"),
    [
        (Grade(None, note="two readings"), "ungraded", "two readings"),
        (errors.GradingError("no sandbox"), "ungraded", "no sandbox"),
        (ZeroDivisionError("oops"), "ungraded", "ZeroDivisionError: oops"),
        (asyncio.CancelledError(), "ungraded", "the grader was cancelled from inside"),
    ],
)
def test_what_a_grader_cannot_decide_is_masked_with_the_reason(
    ada, judge, said, status, note
) -> None:
    judge(lambda problem, answer: said)
    results = run(sums())
    assert {(one.status, one.note) for one in results.records} == {(status, note)}


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
    folder = RUN
    run(sums(), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for config, said in (
        (
            sums(systems=["worker:bob"]),
            r'systems: got \["worker:bob"\], expected \["worker:ada"\]',
        ),
        (sums(seed=2), "seed: got 2, expected null"),
    ):
        with pytest.raises(errors.ConfigError, match=said) as caught:
            run(config, folder)
        assert str(folder) in str(caught.value)
    write_sums(Path("test.jsonl"), range(2, 6))
    config = made(
        **{name: getattr(config, name) for name in ("systems", "pool")},
        task=[{"name": "gsm8k", "path": "test.jsonl"}],
    )
    with pytest.raises(errors.ConfigError, match=r"tasks: gsm8k: digest: got .*, expected"):
        run(config, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


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
def test_a_folder_of_a_killed_run_is_used_and_a_strangers_is_not_written_to(ada: Adder) -> None:
    folder = RUN
    folder.mkdir()
    for name in ("environment.json", "config.toml.part"):
        (folder / name).touch()
    assert run(sums(), folder).missing == 0
    (Path("thesis")).mkdir()
    (Path("thesis") / "thesis.tex").touch()
    with pytest.raises(errors.ConfigError, match=r"holds 'thesis.tex', expected a new folder"):
        run(sums(), Path("thesis"))
    with pytest.raises(errors.ConfigError, match="is no folder"):
        run(sums(), Path("thesis") / "thesis.tex")


def test_a_folder_holds_what_it_was_told_and_no_other_evaluation(ada: Adder) -> None:
    folder, config = RUN, sums()
    run(config, folder)
    assert holds(folder, config)
    assert holds(folder, sums(budget={"calls": 3}, concurrency=2))
    for other in (sums(seed=1), sums(pool="other.toml")):
        assert not holds(folder, other)
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
    write_whole(Path("table.md"), "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_whole(Path("table.md"), "\ud800")
    assert [path.name for path in Path().iterdir()] == ["table.md"]
    assert (Path("table.md")).read_bytes() == b"old\n"
    with pytest.raises(errors.JournalError, match="could not be written"):
        write_whole(Path("table.md") / "below", "x")
    with pytest.raises(errors.JournalError, match="could not be made"):
        make_folder(Path("table.md") / "below")


# ── grading again ─────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def folder(ada: Adder, bob: Adder) -> Path:
    """A finished run: ada is right (one of hers failed), bob is wrong."""
    ada.failing[3] = errors.RateLimited("too many")
    run(sums(systems=["worker:ada", "worker:bob"]))
    for adder in (ada, bob):
        adder.asked.clear()
    return RUN


def again(folder: Path) -> Regraded:
    return asyncio.run(regrade(folder))


def test_verdicts_that_moved_are_listed_the_tables_follow_and_the_old_ones_stay_in_the_journal(
    folder: Path, ada: Adder, bob: Adder, judge: Judge
) -> None:
    before = again(folder)
    assert (before.graded, before.moves) == (7, ()), (
        "the same grader moves nothing; one of eight has no answer"
    )
    judge(
        lambda problem, _: (
            Grade(None, note="no sandbox") if problem.id.endswith("3") else Grade(True, "7")
        )
    )
    done = again(folder)
    assert done.graded == 7
    assert done.moves[0] == Move(
        "worker:ada", "gsm8k", done.moves[0].problem, 0, True, None, "no sandbox"
    )
    assert [(move.system, move.problem[-1], move.before, move.now) for move in done.moves[1:]] == [
        *(("worker:bob", number, False, True) for number in "012"),
        ("worker:bob", "3", False, None),
    ]
    rows = csv.DictReader((folder / "table.csv").read_text("utf-8").splitlines())
    assert {row["system"]: row["accuracy"] for row in rows} == {
        "worker:ada": "1.0",
        "worker:bob": "1.0",
    }
    masked = [(one.system, one.note) for one in done.results.records if one.status == "ungraded"]
    assert masked == [("worker:ada", "no sandbox"), ("worker:bob", "no sandbox")]
    failed = [one.error for one in done.results.records if one.status == "failed"]
    assert failed == ["RateLimited: worker 'ada': too many"]  # what has no answer stays what it is
    for old, new in zip(before.results.records, done.results.records, strict=True):
        assert (
            replace(
                new, correct=old.correct, status=old.status, extracted=old.extracted, note=old.note
            )
            == old
        )
    with JournalReader(folder / "journal.sqlite") as journal:
        history = [record.value["correct"] for record in journal.records(history=True)]
    assert len(history) == 8 + 7
    assert history[:8].count(True) == 3
    assert ada.asked == bob.asked == [], "nobody is called"


def test_other_questions_than_those_that_were_asked_are_refused(folder: Path) -> None:
    write_sums(Path("test.jsonl"), range(2, 6))
    with pytest.raises(errors.ConfigError, match="its questions have changed: gsm8k: digest: got"):
        again(folder)
    with pytest.raises(errors.ConfigError, match="expected the folder of an evaluation"):
        again(Path("elsewhere"))
