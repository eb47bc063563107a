"""Records in order, what looks back over them, and what trained baselines learn from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rows_of import record, records, results_of

from openconductor.errors import ConfigError
from openconductor.evaluation.results import Results, hindsight, observations


def test_records_are_in_the_recipes_order_whatever_order_they_came_in() -> None:
    found = [
        *records(["+-", "-+"], system="worker:bob", task="b"),
        *records(["+-", "-+"], system="conductor", task="b"),
        *records(["+-", "-+"], system="worker:bob", task="a"),
        *records(["+-", "-+"], system="conductor", task="a"),
    ]
    results = results_of(found, ["worker:bob", "conductor"], tasks=["b", "a"], repeats=2)
    assert [(one.system, one.task, one.problem, one.sample) for one in results.records] == [
        (system, task, problem, sample)
        for system in ("worker:bob", "conductor")
        for task in ("b", "a")
        for problem in ("p0", "p1")
        for sample in (0, 1)
    ]
    assert results == results_of(found[::-1], ["worker:bob", "conductor"], tasks=["b", "a"], repeats=2)
    assert len(results.of("conductor")) == 8
    assert {one.task for one in results.of("conductor", "a")} == {"a"}


def test_what_is_of_no_row_is_kept_apart() -> None:
    lesson = record("+", "q0", task="learn:t", system="worker:ann")
    other = record("-", "p0", system="worker:bob")
    results = results_of([lesson, other, record("+", "p0")], ["conductor"])
    assert [one.system for one in results.records] == ["conductor"]
    assert results.learning == (lesson, other)


@pytest.mark.parametrize(("expected", "missing"), [({"t": 2}, 1), ({"t": 3}, 3), ({}, 0)])
def test_what_a_whole_run_would_have_beyond_is_missing(expected: dict[str, int], missing: int) -> None:
    found = [*records(["+", "-"], system="conductor"), *records(["+"], system="worker:ann")]
    assert results_of(found, ["conductor", "worker:ann"], expected=expected).missing == missing


def test_a_system_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigError, match="no 'conducter'"):
        results_of([], ["conducter"])


def test_a_repeat_that_stands_there_twice_is_not_counted_as_two() -> None:
    with pytest.raises(ConfigError, match=r"got \('conductor', 't', 'p0', 0\) more than once"):
        results_of([*records(["+"]), *records(["+", "-"])], ["conductor"])


# ── hindsight ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_hindsight_is_for_each_problem_the_worker_that_did_best_of_ties_the_first() -> None:
    found = [
        *records(["+-", "--", "--"], system="worker:ann"),
        *records(["++", "--", "f+"], system="worker:bob"),
    ]
    best = hindsight(found, ["ann", "bob"])
    assert {one.system for one in best} == {"oracle_observed"}
    marks = {(one.problem, one.sample): one.correct for one in best}
    # p0: bob, 2 of 2. p1: ann, the first of equals. p2: bob, 1 of the 1 that was decided; the other stays masked.
    assert marks == {
        ("p0", 0): True,
        ("p0", 1): True,
        ("p1", 0): False,
        ("p1", 1): False,
        ("p2", 0): None,
        ("p2", 1): True,
    }


def test_what_no_worker_decided_stays_masked_in_hindsight() -> None:
    best = hindsight([*records(["f"], system="worker:ann"), *records(["u"], system="worker:bob")], ["ann", "bob"])
    assert [(one.system, one.correct, one.status) for one in best] == [("oracle_observed", None, "failed")]


def test_hindsight_looks_at_each_task_by_itself() -> None:
    found = [
        *records(["+"], system="worker:ann", task="a"),
        *records(["-"], system="worker:bob", task="a"),
        *records(["-"], system="worker:ann", task="b"),
        *records(["+"], system="worker:bob", task="b"),
    ]
    results = results_of(found, ["oracle_observed"], tasks=["a", "b"])
    assert [(one.task, one.correct) for one in results.records] == [("a", True), ("b", True)]


def test_hindsight_over_nothing_is_nothing() -> None:
    assert hindsight([], ["ann"]) == []
    assert hindsight(records(["+"]), ["ann"]) == [], "no worker was asked alone"


def test_hindsight_over_many_problems_reads_each_record_a_few_times() -> None:
    class Counted(str):
        __slots__ = ()
        looked = 0

        def __eq__(self, other: object) -> bool:
            Counted.looked += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Counted(f"p{place}") for place in range(400)]
    found = [record("+", name, system=f"worker:{worker}") for name in names for worker in ("ann", "bob")]
    assert len(hindsight(found, ["ann", "bob"])) == 400
    assert Counted.looked < 40 * len(names)


# ── observations ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_observations_are_shares_of_what_was_decided_and_first_answers() -> None:
    found = [
        *records(["+-f", "uff"], system="worker:ann"),
        record("-", "p0", 1, system="worker:bob", answer="second"),
        record("+", "p0", 0, system="worker:bob", answer="first"),
        *records(["+"], system="conductor"),
        *records(["+++"] * 4, system="worker:bob", task="t")[-1:],
    ]
    seen = observations(found, {"p0": "What?", "p1": "Why?"}, ["ann", "bob"])
    assert seen.questions == ("What?", "Why?")
    assert seen.workers == ("ann", "bob")
    assert seen.right == ((0.5, 0.5), (None, None))
    assert seen.answers == (("42", "first"), ("42", None))


def test_a_folder_without_an_evaluation_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the folder of an evaluation"):
        Results.load(tmp_path)
