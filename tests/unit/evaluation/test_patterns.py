"""The first distinct patterns, and how many kinds of plan there are at each place."""

from __future__ import annotations

import pytest

from openconductor.evaluation.patterns import Planned, diversity, first_patterns, topology_diversity
from openconductor.types import Step, Workflow

ONE = Workflow([Step(0, "Solve the problem.")])
SAME = Workflow([Step(4, "Another wording.")])
TWO = Workflow([Step(0, "Sort."), Step(1, "Add.", (0,))])
CHECK = Workflow([Step(0, "Sort."), Step(1, "Check it.", (0,))])


def test_patterns_come_in_the_order_of_their_first_workflow_with_all_that_are_like_it() -> None:
    planned = [
        Planned(TWO, 1, True, "a"),
        Planned(ONE, 2),
        Planned(SAME, 3),
        Planned(CHECK, 4),
        Planned(TWO, 5, False, "b"),
    ]
    found = first_patterns(planned)
    assert [(one.pattern, one.strategy, one.count, one.first) for one in found] == [
        ("A · B(1)", "chain", 2, 1),
        ("A", "single", 2, 2),
        ("A · B(1)", "verify-refine", 1, 4),
    ]
    assert found[1].example == ONE, "the first one"
    assert found[1].accuracy is None
    assert found[0].accuracy is not None
    assert (found[0].accuracy.value, found[0].accuracy.problems) == (0.5, 2)


def test_repeats_of_a_question_are_one_cluster() -> None:
    (found,) = first_patterns([Planned(ONE, 0, right, "same") for right in (True, True, False, False)])
    assert found.accuracy is not None
    assert (found.accuracy.value, found.accuracy.problems) == (0.5, 1)


def test_no_more_than_the_first_fifty_are_opened_but_later_ones_of_theirs_count() -> None:
    def alternating(bits: int) -> Workflow:
        """A chain of seven steps by two workers: 64 different ones, the first step being A."""
        return Workflow([Step(0, "x"), *(Step(bits >> place & 1, "x", "all") for place in range(6))])

    planned = [Planned(alternating(bits), bits) for bits in (*range(64), 0, 63)]
    found = first_patterns(planned)
    assert len(found) == 50
    assert found[0].count == 2
    assert sum(one.count for one in found) == 51


def test_diversity_is_the_effective_number_of_kinds_at_each_place() -> None:
    planned = [
        Planned(ONE, 0, True),
        Planned(TWO, 0, False),
        Planned(ONE, 1),
        Planned(SAME, 1),
        Planned(Workflow([]), 2),
    ]
    first, second = diversity(planned)
    assert (first.place, first.workflows, first.strategies, first.patterns, first.accuracy) == (0, 2, 2.0, 2.0, 0.5)
    assert (second.place, second.strategies, second.accuracy) == (1, 1.0, None)


def test_shapes_that_were_only_counted_have_a_diversity_too() -> None:
    assert topology_diversity({"single": 4, "chain": 4}) == pytest.approx(2.0)
    assert topology_diversity({"single": 0}) is None
