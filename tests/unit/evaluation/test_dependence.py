"""Does the workflow depend on the question? Exact bits, calibrated chance, repeats that do not count twice."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from openconductor.evaluation.dependence import dependence, routing_dependence, structure
from openconductor.evaluation.records import Record, RoundRecord
from openconductor.types import Step, Usage, Workflow


def record(problem: str, workers: Sequence[int], *, kind: str = "", sample: int = 0, task: str = "t") -> Record:
    flow = Workflow([Step(worker, "x", "all" if place else ()) for place, worker in enumerate(workers)])
    return Record(
        "c", task, problem, sample, kind, True, "graded", "", "", "", (RoundRecord(flow, True),), 1, Usage(), 0
    )


def test_a_workflow_for_each_kind_holds_all_bits_of_the_kind() -> None:
    found = dependence(["a", "b", "c", "d"] * 10, [[kind] for kind in "wxyz" * 10])
    assert found.bits == pytest.approx(2.0)
    assert found.p == 0.001
    assert (found.problems, found.labels, found.workflows) == (40, 4, 4)


def test_a_constant_workflow_holds_nothing() -> None:
    found = dependence(["a", "b"] * 30, [["same"]] * 60)
    assert (found.bits, found.excess, found.p, found.workflows) == (0.0, 0.0, 1.0, 1)


def test_workflows_drawn_at_random_seem_to_depend_one_time_in_twenty() -> None:
    seeming = 0
    for seed in range(300):
        rng = random.Random(seed)
        groups = [[rng.randrange(12)] for _ in range(40)]
        seeming += dependence(["a", "b", "c", "d"] * 10, groups, seed=seed, permutations=99).p <= 0.05
    assert 4 <= seeming <= 27, "15 are expected of 300"


def test_repeats_of_one_question_do_not_count_as_more_questions() -> None:
    """Each question has one workflow of its own, whatever its kind: repeats must not make that a sign of the kind."""
    seeming = 0
    for seed in range(200):
        rng = random.Random(seed)
        groups = [[rng.randrange(6)] * 8 for _ in range(24)]
        seeming += dependence(["a", "b"] * 12, groups, seed=seed, permutations=99).p <= 0.05
    assert seeming <= 20


def test_without_kinds_repeats_tell_whether_questions_get_their_own_workflow() -> None:
    own = [record(f"q{n}", [n % 4], sample=k) for n in range(40) for k in range(3)]
    found = routing_dependence(own)
    assert found is not None
    assert (found.on, found.p, found.problems) == ("question", 0.001, 40)
    rng = random.Random(0)
    drawn = [record(f"q{n}", [rng.randrange(4)], sample=k) for n in range(40) for k in range(3)]
    found = routing_dependence(drawn)
    assert found is not None
    assert found.p > 0.05


def test_one_kind_asked_once_tells_nothing() -> None:
    assert routing_dependence([record(f"q{n}", [n % 4]) for n in range(40)]) is None


def test_the_task_is_part_of_the_kind() -> None:
    records = [record(f"q{n}", [n % 2], task=f"task{n % 2}") for n in range(40)]
    found = routing_dependence(records)
    assert found is not None
    assert (found.on, found.labels) == ("kind", 2)


def test_all_and_its_index_form_are_one_structure_and_subtasks_play_no_part() -> None:
    one = Workflow([Step(0, "a"), Step(1, "b", "all")])
    assert structure(one) == structure(Workflow([Step(0, "x"), Step(1, "y", (0,))]))
    assert structure(one) != structure(Workflow([Step(0, "a"), Step(1, "b")]))
