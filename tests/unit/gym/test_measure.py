"""The nearness of a Conductor to the oracle, by the exact chances of its workflows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import pytest

from openconductor.conductor import Conductor, Planner
from openconductor.gym.exact import ALL, oracle_workflow
from openconductor.gym.measure import Recursion, draw_subset, nearness, recursion
from openconductor.gym.questions import GymQuestion, draw_questions, read_question
from openconductor.gym.workers import LOST, gym_pool, profiles_of
from openconductor.pool import WorkerPool
from openconductor.prompt import PromptOptions, render_workflow
from openconductor.types import Message, Step, Workflow

QUESTIONS = draw_questions("test", 8, seed=5)
BEST = [oracle_workflow(question)[1] for question in QUESTIONS]
ACCEPTS = render_workflow(Workflow(()))


def conductor(planner: Planner, pool: WorkerPool | None = None) -> Conductor:
    return Conductor(planner, pool=pool or gym_pool(), prompt=PromptOptions(template="compact"))


def read(text: str) -> GymQuestion:
    question = read_question(text.strip())
    assert question is not None
    return question


def oracle(messages: Sequence[Message]) -> str:
    """Write the best workflow over the workers on offer, and nonsense for smudged lists."""
    text = messages[-1].content
    question = read(text.split("Question: ")[1])
    if question.smudged:
        return "no idea"
    offered = {ordinal: worker for ordinal, worker in ALL.items() if f"Model {ordinal}\n" in text}
    return render_workflow(oracle_workflow(question, offered)[0])


def mending(messages: Sequence[Message]) -> str:
    """Write the best workflow again after an admitted failure, and accept other answers."""
    text = messages[-1].content.split("Question: ")[1]
    if "\nAnswer: " in text and LOST not in text:
        return ACCEPTS
    return render_workflow(oracle_workflow(read(text.split("\n")[0]))[0])


def test_an_oracle_without_comparisons_reaches_what_the_other_kinds_are_worth() -> None:
    measured = nearness(conductor(oracle), QUESTIONS, ALL)
    clear = [oracle_workflow(question)[1] for question in QUESTIONS if not question.smudged]
    assert measured.oracle == pytest.approx(fmean(BEST))
    assert measured.accuracy == pytest.approx(sum(clear) / 8)
    assert measured.validity == len(clear) / 8
    assert measured.share == pytest.approx(sum(clear) / sum(BEST))


def test_over_some_workers_the_measure_is_the_best_that_they_can_do() -> None:
    some = {ordinal: ALL[ordinal] for ordinal in (0, 2, 6, 7)}
    clear = [question for question in QUESTIONS if not question.smudged]
    few = nearness(conductor(oracle, gym_pool().subset(list(some))), clear, some)
    assert few.offered == (0, 2, 6, 7)
    assert few.share == pytest.approx(1.0)
    assert few.oracle < nearness(conductor(oracle), clear, ALL).oracle


def test_further_rounds_mend_admitted_failures_and_leave_the_rest() -> None:
    none, one, two = recursion(conductor(mending), QUESTIONS, ALL, 2)
    assert none.accuracy == pytest.approx(fmean(BEST))
    assert (none.fixed, none.broken, none.ceiling) == (0.0, pytest.approx(0.0), 0.0)
    for measured in (one, two):
        assert measured.fixed == pytest.approx(measured.ceiling)
    assert 0.3 < one.fixed < two.fixed < 0.6
    assert one.broken == pytest.approx(0.0)
    assert one.accepted == pytest.approx(1.0)
    assert none.accuracy < one.accuracy < two.accuracy
    assert none.calls < one.calls < 1.5 * none.calls


def test_a_share_of_nothing_is_unknown() -> None:
    silent = recursion(conductor(lambda _: "no idea"), QUESTIONS, ALL, 1)[1]
    assert silent == Recursion(1, 0.0, None, None, None, None, None)
    plan = render_workflow(Workflow((Step(2, "hm"),)))
    useless = recursion(conductor(lambda _: plan), QUESTIONS, ALL, 1)[1]
    assert (useless.accuracy, useless.fixed) == (0.0, 0.0)
    assert (useless.broken, useless.accepted) == (None, None)
    assert useless.ceiling == pytest.approx(fmean(BEST))


def test_subsets_keep_four_workers_and_leave_one_out() -> None:
    drawn = [draw_subset(range(8), number, seed=0) for number in range(200)]
    assert {len(subset) for subset in drawn} == {4, 5, 6, 7}
    assert all(list(subset) == sorted(set(subset)) for subset in drawn)
    assert drawn[:20] == [draw_subset(range(8), number, seed=0) for number in range(20)]


def test_the_command_measures_the_bundled_conductor_over_pools_and_worlds(run) -> None:
    command = ("gym", "measure", "--questions", "4", "--subsets", "2", "--seed", "1")
    whole, *_ = run(*command, "--json").json()["pools"]
    assert len(whole["offered"]) == 8
    assert whole["share"] > 0.9
    assert "2 subsets: of the oracle" in run(*command, "--pool", "gym:3").out
    assert profiles_of(3) != profiles_of(0)
    drawn = run(*command, "--pool", "gym:drawn", "--json").json()["pools"]
    assert len({pool["oracle"] for pool in drawn}) == 3, "each pool has workers of its own"
    wrong = run("gym", "measure", "--pool", "pool.toml")
    wrong.assert_refused("expected gym, gym:NUMBER or gym:drawn")
