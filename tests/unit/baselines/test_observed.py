"""Observations, and what is read off them without training: the best column.

The observed oracle.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted import answers, planted_pool

from openconductor.baselines.observed import Observations
from openconductor.baselines.planned import BestFixed
from openconductor.errors import ConfigError, WorkflowError
from openconductor.gym.levels import BEST_FIXED
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.types import Step, Workflow

SEEN = Observations(
    ("a", "b", "c", "d"),
    ("x", "y"),
    ((1.0, 0.0), (0.5, 1.0), (None, 1.0), (0.25, None)),
    (("1", "2"), ("3", None), (None, "4"), ("5", None)),
)


FOUR = "Answer: 4"
PAIR = Workflow((Step(0, "Begin."), Step(1, "End.", "all")))


# ── the table itself ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), ("x",), ()), "0 questions"),
        ((("a",), ("x", "x"), ((1, 0),)), "each name once"),
        ((("a",), ("x", "y"), ((1,),)), r"right: got 1 rows of \[1\] entries, expected 1 of 2"),
        ((("a", "b"), ("x",), ((1,), (0,)), (("1",),)), r"answers: got 1 rows"),
        ((("a",), ("x",), ((1.5,),)), "got 1.5, expected a share"),
    ],
)
def test_a_table_of_another_shape_is_refused(
    arguments: tuple[tuple[object, ...], ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Observations(*arguments)  # type: ignore[arg-type]


def test_workers_are_compared_on_the_questions_that_all_decided() -> None:
    assert SEEN.shares() == {"x": 0.75, "y": 0.5}  # on a and b alone, though y is right on c
    assert SEEN.best() == "x"
    lonely = Observations(("a", "b"), ("x", "y"), ((1, None), (None, 0.5)))
    assert lonely.shares() == {"x": 1.0, "y": 0.5}
    with pytest.raises(ConfigError, match="nothing was decided"):
        Observations(("a",), ("x",), ((None,),)).best()


# ── the best fixed workflow ───────────────────────────────────────────────────────────────────────
async def test_the_best_worker_of_the_selection_split_answers_everything() -> None:
    pool = planted_pool(y=lambda *_: "from y", x=lambda *_: "from x")
    assert await answers(BestFixed(pool, observations=SEEN), ["e", "f"]) == ["from x", "from x"]


async def test_a_vote_of_the_best_is_the_best_fixed_workflow_where_it_would_have_been() -> None:
    """Each of three is wrong on one question of its own, so that a vote of them is never wrong."""
    right = ((0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0))
    texts = (("Answer: 0", FOUR, FOUR), (FOUR, "Answer: 1", FOUR), (FOUR, FOUR, "Answer: 2"))
    seen = Observations(("a", "b", "c"), ("x", "y", "z"), right, texts)
    pool = planted_pool(x=lambda *_: "Answer: 1", y=lambda *_: FOUR, z=lambda *_: FOUR)
    episode = await BestFixed(pool, observations=seen).ask("e")
    assert episode.answer == FOUR
    assert len(episode.rounds[0].workflow) == 3
    alone = replace(seen, right=((1.0, 0.0, 0.0),) * 3)
    episode = await BestFixed(pool, observations=alone).ask("e")
    assert len(episode.rounds[0].workflow) == 1


async def test_a_given_workflow_is_played_and_must_be_valid() -> None:
    pool = planted_pool(x=lambda *_: "from x", z=lambda *_: "from z")
    assert (await BestFixed(pool, workflow=PAIR).ask("e")).answer == "from z"
    with pytest.raises(WorkflowError, match="unknown_worker"):
        BestFixed(pool.subset([0]), workflow=PAIR)
    with pytest.raises(ConfigError, match="one of them at most"):
        BestFixed(pool, workflow=PAIR, observations=SEEN)
    with pytest.raises(ConfigError, match="pair"):  # the best column is not a worker of the pool
        BestFixed(pool, observations=Observations(("a",), ("x", "pair"), ((0, 1),)))


async def test_in_the_gym_the_constant_is_that_of_its_search() -> None:
    (question,) = draw_questions("test", 1, seed=0)
    episode = await BestFixed(gym_pool()).ask(question.text)
    workers = [step.worker for step in episode.rounds[0].workflow]
    assert workers == list(BEST_FIXED.workers)
    with pytest.raises(ConfigError, match="requires observations of a selection split"):
        await BestFixed(gym_pool()).ask("What is 6 * 7?")
    with pytest.raises(ConfigError, match="which the pool lacks"):
        await BestFixed(gym_pool().subset([0, 1])).ask(question.text)
