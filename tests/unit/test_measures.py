"""Shapes of workflows and spread of work."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from openconductor.measures import (
    direct_access,
    entropy_bits,
    mean_steps,
    routing_entropy_bits,
    topology,
    topology_shares,
    unused_steps,
    worker_shares,
)
from openconductor.types import Step, Workflow


def plan(*accesses: object, workers: tuple[int, ...] | None = None) -> Workflow:
    steps: list[Step] = []
    for index, access in enumerate(accesses):
        steps.append(Step(workers[index] if workers else 0, "Do.", access))  # type: ignore[arg-type]
    return Workflow(steps)


def accesses_of(size: int) -> st.SearchStrategy[tuple[object, ...]]:
    lists = [st.just([])]
    lists += [st.lists(st.integers(0, index - 1), max_size=3) for index in range(1, size)]
    return st.tuples(*(st.just("all") | seen for seen in lists[:size]))


accesses = st.integers(0, 6).flatmap(accesses_of)


# A name, and what each step sees: - for nothing.
SHAPES = """
accept
single all
chain - all all all
chain - 0 0,1
parallel - -
aggregate - - all
tree - - 0 1 2,3
tree - - 0,1 all
dag - 0 0 1,2
dag - 0 -
dag - - - 0,1
"""


def access_of(word: str) -> object:
    """Read an access of the table."""
    if word == "all":
        return word
    if word == "-":
        return []
    return [int(step) for step in word.split(",")]


@pytest.mark.parametrize("line", SHAPES.strip().splitlines())
def test_each_shape_has_its_name(line: str) -> None:
    name, *words = line.split()
    assert topology(plan(*map(access_of, words))) == name


@given(accesses)
def test_how_a_flow_is_written_and_what_is_implied_change_nothing(
    shape: tuple[object, ...],
) -> None:
    workflow = plan(*shape)
    spelled = plan(*(workflow.visible(index) for index in range(len(shape))))
    reduced = plan(*map(sorted, direct_access(workflow)))
    for measure in (topology, unused_steps):
        assert measure(reduced) == measure(spelled) == measure(workflow)


def test_steps_that_cannot_reach_the_answer_are_unused() -> None:
    assert unused_steps(plan([], [0], [], [2])) == (0, 1)
    assert unused_steps(plan([], [], "all")) == unused_steps(plan()) == ()


def test_entropy_is_zero_for_one_and_log_n_for_an_even_spread() -> None:
    assert entropy_bits([5]) == 0.0
    assert math.copysign(1, entropy_bits([5])) == 1.0
    assert entropy_bits([]) == entropy_bits([0, 0]) == 0.0
    assert entropy_bits([1] * 8) == pytest.approx(3.0)


def test_shares_are_over_steps_and_in_order_of_ordinals() -> None:
    workflows = [plan([], "all", workers=(3, 1)), plan([], workers=(1,)), plan([], workers=(1,))]
    assert list(worker_shares(workflows).items()) == [(1, 0.75), (3, 0.25)]
    assert routing_entropy_bits(workflows) == pytest.approx(0.8113, abs=1e-4)
    assert mean_steps(workflows) == pytest.approx(4 / 3)
    assert worker_shares([]) == {}
    assert mean_steps([]) is None
    assert routing_entropy_bits([]) == 0.0
    assert topology_shares(workflows) == {
        "chain": pytest.approx(1 / 3),
        "single": pytest.approx(2 / 3),
    }
