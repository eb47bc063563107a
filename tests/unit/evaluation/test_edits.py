"""What a workflow is without one thing in it."""

from __future__ import annotations

import pytest

from openconductor.evaluation.edits import EDIT_KINDS, Edit, edited, edits_of
from openconductor.types import Access, Step, Workflow

TREE = Workflow([Step(0, "a"), Step(1, "b"), Step(2, "c", (0,)), Step(3, "d", (1, 2))])


def accesses(workflow: Workflow | None) -> list[Access]:
    assert workflow is not None
    return [step.access for step in workflow]


@pytest.mark.parametrize(
    ("step", "left", "seen"),
    [
        (0, [1, 2, 3], [(), (), (0, 1)]),
        (1, [0, 2, 3], [(), (0,), (1,)]),
        (2, [0, 1, 3], [(), (), (1,)]),
        (3, [0, 1, 2], [(), (), (0,)]),
    ],
)
def test_dropping_a_step_numbers_the_others_anew(step: int, left: list[int], seen: list[Access]) -> None:
    found = edited(TREE, Edit("drop", step))
    assert found is not None
    assert [one.worker for one in found] == left
    assert accesses(found) == seen


def test_all_stays_all() -> None:
    flow = Workflow([Step(0, "a"), Step(1, "b", "all"), Step(2, "c", "all")])
    assert accesses(edited(flow, Edit("drop", 0))) == ["all", "all"]


def test_the_only_step_cannot_be_dropped() -> None:
    assert edited(Workflow([Step(0, "a")]), Edit("drop", 0)) is None


def test_a_swap_changes_the_worker_alone() -> None:
    found = edited(TREE, Edit("swap", 2, 5))
    assert found is not None
    assert found.steps[2] == Step(5, "c", (0,))
    assert found.steps[:2] + found.steps[3:] == TREE.steps[:2] + TREE.steps[3:]


@pytest.mark.parametrize("edit", [Edit("swap", 2, 2), Edit("swap", 2), Edit("blind", 0), Edit("untold", 0)])
def test_what_changes_nothing_is_no_edit(edit: Edit) -> None:
    assert edited(TREE, edit, plain="a") is None


def test_a_first_step_that_may_see_all_sees_nothing_so_it_cannot_be_blinded() -> None:
    assert edited(Workflow([Step(0, "a", "all"), Step(1, "b")]), Edit("blind", 0)) is None


def test_a_blind_step_sees_nothing_and_an_untold_one_is_told_to_solve() -> None:
    blind, untold = edited(TREE, Edit("blind", 3)), edited(TREE, Edit("untold", 3), plain="Solve it.")
    assert blind is not None
    assert untold is not None
    assert blind.steps[3] == Step(3, "d", ())
    assert untold.steps[3] == Step(3, "Solve it.", (1, 2))


def test_a_step_that_is_not_there_is_an_error() -> None:
    with pytest.raises(IndexError):
        edited(TREE, Edit("drop", 4))


def test_every_step_gets_every_kind_and_swaps_go_to_another_worker() -> None:
    found = list(edits_of(TREE, [0, 1, 2, 3], seed="s"))
    assert [(one.kind, one.step) for one in found] == [(kind, step) for step in range(4) for kind in EDIT_KINDS]
    swaps = [one for one in found if one.kind == "swap"]
    assert all(one.worker != TREE.steps[one.step].worker for one in swaps)
    assert found == list(edits_of(TREE, [3, 2, 1, 0], seed="s")), "whatever the order of the ordinals"
    each = [one.worker for one in edits_of(TREE, [0, 1, 2], kinds=["swap"], swap="each") if one.step == 3]
    assert each == [0, 1, 2]


def test_with_one_worker_nothing_can_be_swapped() -> None:
    assert not list(edits_of(Workflow([Step(0, "a")]), [0], kinds=["swap"]))
