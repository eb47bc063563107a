"""MASRouter learns which questions need a chain, who belongs where in it, and when that is worth its cost."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planted import Say, answers, asked, attempts, planted_pool
from topics import draw_topics

from openconductor.baselines.collaboration import COLLABORATIONS, ROLES, find_collaboration
from openconductor.baselines.explorer import Explorer
from openconductor.baselines.masrouter import Controller, MASRouter, fit_masrouter
from openconductor.baselines.observed import Observations
from openconductor.baselines.trials import Trial, trial_of, trials_from_json, trials_of_workers, trials_to_json
from openconductor.errors import ConfigError
from openconductor.gym.questions import draw_questions
from openconductor.gym.world import asks_to_compare, find_operations
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.types import Message, Step, Workflow

TRAIN, HELD_OUT = draw_topics(160, seed=3), draw_topics(120, seed=4)
TOPIC = dict(TRAIN + HELD_OUT)
EASY, COMPOSITE = 0, 1
"""Topic 0 is easy: ``solo`` knows it, if nobody says how. Topic 1 takes ``starter``'s beginning, ``finisher``'s end."""


def solo(messages: Sequence[Message], rng: random.Random) -> str:
    question = asked(messages)
    return "right" if TOPIC[question] == EASY and messages[-1].content == question else "wrong"


def starter(messages: Sequence[Message], rng: random.Random) -> str:
    return "the first part" if messages[-1].content.endswith(ROLES["opener"]) else "wrong"


def finisher(messages: Sequence[Message], rng: random.Random) -> str:
    begun = "the first part" in attempts(messages)
    return "right" if begun and messages[-1].content.endswith(ROLES["closer"]) else "wrong"


def pool() -> WorkerPool:
    return planted_pool(solo=solo, starter=starter, finisher=finisher)


@cache
def explored() -> tuple[Trial, ...]:
    """What came of collaborations drawn at random on the training questions, eight a question."""
    import asyncio

    async def play() -> tuple[Trial, ...]:
        team = pool()
        explorer = Explorer(team, seed=0)
        trials: list[Trial] = []
        for sample in range(8):
            for question, _ in TRAIN:
                episode = await explorer.ask(question, sample=sample)
                workflow = episode.rounds[0].workflow
                assert workflow is not None
                right, cost = float(episode.answer == "right"), float(len(workflow))
                trial = trial_of(question, question, workflow, team, right=right, cost=cost)
                assert trial is not None
                trials.append(trial)
        return tuple(trials)

    return asyncio.run(play())


@cache
def trained(cost_weight: float = 0.1) -> Controller:
    return fit_masrouter(explored(), cost_weight=cost_weight)


def chosen(controller: Controller, topic: int) -> Counter[tuple[str, ...]]:
    names = ["solo", "starter", "finisher"]
    picked = [controller.choose(question, names) for question, of in HELD_OUT if of == topic]
    return Counter((one.name, *team) for one, team in picked)


# ── what is learnt ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_easy_questions_go_to_one_worker_and_composite_ones_to_a_chain() -> None:
    controller = trained()
    ((easy, easy_count), *_) = chosen(controller, EASY).most_common(1)
    assert easy == ("io", "solo")
    assert easy_count >= 0.9 * len(HELD_OUT) / 2
    ((composite, composite_count), *_) = chosen(controller, COMPOSITE).most_common(1)
    assert composite == ("chain-1", "starter", "finisher")
    assert composite_count >= 0.9 * len(HELD_OUT) / 2


async def test_held_out_questions_are_answered_though_no_fixed_choice_gets_more_than_half() -> None:
    system = MASRouter(pool(), controller=trained())
    said = await answers(system, [question for question, _ in HELD_OUT])
    assert sum(answer == "right" for answer in said) >= 0.95 * len(HELD_OUT)
    by_choice: dict[tuple[str, ...], list[float]] = {}
    for trial in explored():
        by_choice.setdefault((trial.collaboration, *trial.workers), []).append(trial.right)
    assert max(np.mean(right) for right in by_choice.values() if len(right) > 20) < 0.7


def test_a_cost_that_outweighs_being_right_sends_everything_to_one_worker() -> None:
    controller = trained(2.0)
    for topic in (EASY, COMPOSITE):
        assert {len(choice) for choice in chosen(controller, topic)} == {2}  # a mode and its one worker


def test_the_same_trials_give_the_same_controller() -> None:
    first, again = trained(), MASRouter(pool(), trials=explored(), cost_weight=0.1).controller
    assert first.parts == again.parts
    assert (first.weights == again.weights).all() and (first.costs == again.costs).all()


def test_a_controller_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    controller = trained()
    controller.save(tmp_path / "controller.json")
    again = Controller.load(tmp_path / "controller.json")
    for topic in (EASY, COMPOSITE):
        assert chosen(again, topic) == chosen(controller, topic)
    assert (again.weights == controller.weights).all()
    assert again.cost_weight == 0.1


def test_only_workers_on_offer_are_picked() -> None:
    controller = trained()
    for question, _ in HELD_OUT[:10]:
        assert set(controller.choose(question, ["starter", "finisher"])[1]) <= {"starter", "finisher"}
    with pytest.raises(ConfigError, match="no mode was tried with the workers on offer"):
        controller.choose("Hm?", ["stranger"])


async def test_from_single_workers_outcomes_it_learns_the_worker_alone() -> None:
    def knows(topic: int) -> Say:
        return lambda messages, rng: "right" if TOPIC[asked(messages)] == topic else "wrong"

    rows = tuple((float(topic == 0), float(topic == 1)) for _, topic in TRAIN)
    seen = Observations(tuple(question for question, _ in TRAIN), ("sky", "words"), rows)
    system = MASRouter(planted_pool(sky=knows(0), words=knows(1)), observations=seen)
    said = await answers(system, [question for question, _ in HELD_OUT])
    assert sum(answer == "right" for answer in said) >= 0.95 * len(HELD_OUT)
    with pytest.raises(ConfigError, match="no trial has a cost"):
        MASRouter(pool(), observations=seen, cost_weight=1.0)


def test_what_a_worker_costs_is_not_nothing_where_nobody_knows_it() -> None:
    # Both are always right; one is known to cost a little, of the other nothing is known.
    trials = [Trial(question, "io", ("priced",), 1.0, 0.01) for question, _ in TRAIN]
    trials += [Trial(question, "io", ("unpriced",), 1.0) for question, _ in TRAIN]
    names = ["unpriced", "priced"]
    assert fit_masrouter(trials, cost_weight=1.0).choose(TRAIN[0][0], names)[1] == ("priced",)
    assert "solver: unpriced" in fit_masrouter(trials).parts  # where cost does not count, it is a choice as any other


def test_something_to_train_on_is_needed() -> None:
    with pytest.raises(ConfigError, match="either trials or observations"):
        MASRouter(pool())
    with pytest.raises(ConfigError, match="either trials or observations"):
        MASRouter(pool(), trials=explored(), controller="controller.json")
    with pytest.raises(ConfigError, match="got no trials"):
        fit_masrouter([])
    for cost_weight in (-1, float("nan"), float("inf"), "much", True):
        with pytest.raises(ConfigError, match="cost_weight: got"):
            fit_masrouter(explored(), cost_weight=cost_weight)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"MASRouter\.seed"):
        fit_masrouter(explored(), seed=-1)
    with pytest.raises(ConfigError, match="expected a Controller or its file"):
        MASRouter(pool(), controller=3)  # type: ignore[arg-type]


# ── trials ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_trials_come_back_from_json_as_they_were() -> None:
    assert trials_from_json(trials_to_json(explored())) == list(explored())
    with pytest.raises(ConfigError, match="missing 'trials'"):
        trials_from_json({"version": 1})
    with pytest.raises(ConfigError, match="trial: "):
        trials_from_json({"version": 1, "trials": [{"question": "a"}]})


@pytest.mark.parametrize(
    "fields",
    [("io", ("a", "b"), 1.0, 0.0), ("io", ("a",), 1.1, 0.0), ("io", ("a",), 1.0, -1.0), ("guild", ("a",), 1.0, 0.0)],
)
def test_a_trial_that_cannot_have_been_is_refused(fields: tuple[str, tuple[str, ...], float, float]) -> None:
    with pytest.raises(ConfigError, match=r"Trial|collaboration"):
        Trial("a", *fields)


def test_undecided_outcomes_are_no_trials() -> None:
    seen = Observations(("a", "b"), ("x", "y"), ((1, None), (None, 0.5)))
    assert [(trial.question, trial.workers, trial.right) for trial in trials_of_workers(seen)] == [
        ("a", ("x",), 1),
        ("b", ("y",), 0.5),
    ]


# ── collaborations ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("question", ["What is 6 * 7?", *(one.text for one in draw_questions("train", 6, seed=0))])
def test_a_collaboration_is_a_valid_workflow_and_is_found_again_in_it(question: str) -> None:
    for one in COLLABORATIONS:
        workflow = one.workflow([index % 3 for index in range(len(one.seats))], question)
        if one.name != "io":  # whose instruction is blank on purpose: the question alone
            validate_workflow(workflow, range(3), max_steps=5)
        assert find_collaboration(workflow, question) == one
    assert find_collaboration(Workflow((Step(0, "Sing."),)), question) is None


def test_in_the_gym_a_chain_deals_out_the_operations_and_the_others_are_told_all_of_them() -> None:
    for question in draw_questions("train", 40, seed=0):
        for one in COLLABORATIONS:
            steps = one.workflow([0] * len(one.seats), question.text).steps
            named = [operation for step in steps for operation in find_operations(step.subtask)]
            if one.name.startswith("chain"):
                assert tuple(operation.name for operation, _ in named) == question.composition
            assert all(
                not step.subtask or find_operations(step.subtask) or asks_to_compare(step.subtask) for step in steps
            )


def test_a_collaboration_needs_one_worker_a_seat() -> None:
    with pytest.raises(ConfigError, match="chain-1: got 1 workers, expected 2"):
        COLLABORATIONS[2].workflow([0], "Hm?")
