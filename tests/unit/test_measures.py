"""Shapes of workflows and spread of work."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor import measures
from openconductor.types import Step, Workflow


def plan(*accesses: object, workers: tuple[int, ...] | None = None) -> Workflow:
    return Workflow([Step(w, "Do.", a) for w, a in zip(workers or [0] * len(accesses), accesses, strict=True)])  # type: ignore[arg-type]


accesses = st.integers(0, 6).flatmap(
    lambda n: st.tuples(
        *(st.one_of(st.just("all"), st.lists(st.integers(0, max(0, i - 1)), max_size=3 if i else 0)) for i in range(n))
    )
)


@pytest.mark.parametrize(
    ("shape", "name", "longest"),
    [
        ((), "accept", 0),
        (("all",), "single", 1),
        (([], "all", "all", "all"), "chain", 4),
        (([], [0], [0, 1]), "chain", 3),
        (([], []), "parallel", 1),
        (([], [], "all"), "aggregate", 2),
        (([], [], [0], [1], [2, 3]), "tree", 3),
        (([], [], [0, 1], "all"), "tree", 3),
        (([], [0], [0], [1, 2]), "dag", 3),
        (([], [0], []), "dag", 2),
        (([], [], [], [0, 1]), "dag", 2),
    ],
    ids=str,
)
def test_each_shape_has_its_name_and_its_longest_wait(shape: tuple[object, ...], name: str, longest: int) -> None:
    assert (measures.topology(plan(*shape)), measures.critical_path(plan(*shape))) == (name, longest)


@given(accesses)
def test_how_a_flow_is_written_and_what_is_implied_change_nothing(shape: tuple[object, ...]) -> None:
    workflow = plan(*shape)
    spelled = plan(*(list(range(i)) if access == "all" else access for i, access in enumerate(shape)))
    reduced = plan(*(sorted(step) for step in measures.direct_access(workflow)))
    for measure in (measures.topology, measures.critical_path, measures.unused_steps):
        assert measure(reduced) == measure(spelled) == measure(workflow)


def test_steps_that_cannot_reach_the_answer_are_unused() -> None:
    assert measures.unused_steps(plan([], [0], [], [2])) == (0, 1)
    assert measures.unused_steps(plan([], [], "all")) == measures.unused_steps(plan()) == ()


def test_entropy_is_zero_for_one_log_n_for_an_even_spread_and_refuses_nonsense() -> None:
    assert measures.entropy_bits([5]) == 0.0 and math.copysign(1, measures.entropy_bits([5])) == 1.0
    assert measures.entropy_bits([]) == measures.entropy_bits([0, 0]) == 0.0
    assert measures.entropy_bits([1] * 8) == pytest.approx(3.0)
    for counts in ([-1, 2], [math.nan], [math.inf, 1]):
        with pytest.raises(ValueError, match="counts"):
            measures.entropy_bits(counts)


def test_shares_are_over_steps_and_in_order_of_ordinals() -> None:
    workflows = [plan([], "all", workers=(3, 1)), plan([], workers=(1,)), plan([], workers=(1,))]
    assert list(measures.worker_shares(workflows).items()) == [(1, 0.75), (3, 0.25)]
    assert measures.routing_entropy_bits(workflows) == pytest.approx(0.8113, abs=1e-4)
    assert measures.mean_steps(workflows) == pytest.approx(4 / 3)
    assert (
        measures.worker_shares([]) == {}
        and measures.mean_steps([]) is None
        and measures.routing_entropy_bits([]) == 0.0
    )
    assert measures.topology_shares(workflows) == {"chain": pytest.approx(1 / 3), "single": pytest.approx(2 / 3)}
