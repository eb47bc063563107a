"""What figures ask of their material."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from openconductor.evaluation.records import Record
from openconductor.plots.iterations import read_curve
from openconductor.plots.looks import OURS
from openconductor.plots.material import Material, columns_of, in_order, rows

Make = Callable[..., Record]


def test_ours_is_the_conductor_else_the_first_that_plans(record: Make) -> None:
    ablation, ours = (record(name, 0, True, [0], planned=True) for name in ("conductor?rounds=3", "conductor"))
    other = record("random", 0, True, [0])
    assert Material([other, ablation, ours]).ours == "conductor"
    assert Material([other, ablation]).ours == "conductor?rounds=3"
    assert Material([other]).ours is None


def test_a_worker_looks_the_same_in_records_and_curve(record: Make, write_curve: Callable[..., Path]) -> None:
    curve = read_curve(write_curve({}))
    records = [record("worker:bert", 0, True, [1]), record("conductor", 0, True, [1], planned=True)]
    results = Material(records, {0: "anna", 1: "bert"}, curve)
    assert results.names == ("anna", "bert")
    assert results.look_of_system("worker:bert") == results.look_of_worker("bert")
    assert results.look_of_system("conductor") == OURS


def test_workers_without_a_name_are_called_by_their_number(record: Make) -> None:
    results = Material([record("conductor", 0, True, [4, 2], planned=True)])
    assert results.names == ("worker 2", "worker 4")


def test_kinds_stand_from_easy_to_hard_and_numbers_by_their_size() -> None:
    assert in_order({"triple", "single", "smudged", "pair"}) == ["single", "pair", "triple", "smudged"]
    assert in_order({"level 10", "level 9"}) == ["level 9", "level 10"]


def test_one_task_is_parted_by_kind_and_several_by_task_and_kind(record: Make) -> None:
    records = [record("s", 0, True, kind="hard"), record("s", 1, True, kind="easy")]
    assert [(row.name, row.questions) for row in rows(records)] == [("easy", 1), ("hard", 1)]
    both = [*records, record("s", 0, True, task="u")]
    assert columns_of(both).names == ("t: easy", "t: hard", "u")
    assert columns_of([record("s", 0, True)]).names == ("t",)


def test_of_many_kinds_the_smallest_are_put_together(record: Make) -> None:
    records = [record("s", f"{kind}/{copy}", True, kind=f"k{kind}") for kind in range(20) for copy in range(kind + 1)]
    found = rows(records)
    assert [row.name for row in found] == [f"k{kind}" for kind in range(9, 20)] + ["9 others"]
    assert sum(row.questions for row in found) == len(records)


def test_many_kinds_of_several_tasks_are_parted_by_task_alone(record: Make) -> None:
    records = [record("s", kind, True, kind=f"k{kind}", task=task) for task in ("x", "y") for kind in range(10)]
    assert [(row.name, row.questions) for row in rows(records)] == [("x", 10), ("y", 10)]


def test_other_systems_look_like_no_worker(record: Make) -> None:
    systems = ["worker:anna", "worker:bert", "random", "best_fixed", "oracle"]
    results = Material([record(system, 0, True, (0,)) for system in systems], {0: "anna", 1: "bert"})
    looks = {(one.colour, one.marker) for one in map(results.look_of_system, systems)}
    assert len(looks) == len(systems)
    assert [results.look_of_system(system).hollow for system in systems] == [False, False, True, True, True]
