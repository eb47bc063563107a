"""Measure how near a Conductor comes to the oracle of the gym, exactly, over all workers and over some."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from openconductor.errors import WorkflowError
from openconductor.gym.exact import Offered, answer_chances, expected_accuracy, oracle_workflow
from openconductor.gym.questions import GymQuestion
from openconductor.gym.workers import LOST, REFUSES, Seen
from openconductor.gym.world import write_value
from openconductor.parser import parse_workflow
from openconductor.prompt import render_prompt
from openconductor.protocols import CallContext
from openconductor.types import Completion, Episode, Round, StepResult, Transcript, Workflow

if TYPE_CHECKING:
    from openconductor.conductor import Conductor

FEWEST = 4
"""Workers of a subset, at least."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near a Conductor comes to the oracle over a pool: shares in [0, 1], means over the questions.

    Attributes:
        offered: the ordinals on offer.
        validity: the share of its completions that are workflows.
        accuracy: the chance that its workflows answer.
        oracle: the chance that the best workflows do.
    """

    offered: tuple[int, ...]
    validity: float
    accuracy: float
    oracle: float

    @property
    def share(self) -> float:
        """The share of the oracle."""
        return self.accuracy / self.oracle


@dataclass(frozen=True, slots=True)
class Recursion:
    """What a Conductor reaches in up to ``depth`` rounds behind the first: exact, but that one mistake stands for all.

    Shares of what there is none of are None.

    Attributes:
        depth: how many rounds follow the first, at most.
        accuracy: the chance that the answer is right, mean over the questions.
        fixed: of the first round's answers that are wrong, the share that is right in the end.
        broken: of those that are right, the share that is not in the end.
        accepted: of those that are right, the share that the Conductor accepts when it sees it for
            the first time.
        calls: of workers, as planned, where the first round answers: mean over these answers.
        ceiling: what ``fixed`` is where an admitted failure is planned anew by the oracle, and all
            other answers stand.
    """

    depth: int
    accuracy: float
    fixed: float | None
    broken: float | None
    accepted: float | None
    calls: float | None
    ceiling: float | None


def draw_subset(ordinals: Sequence[int], number: int, seed: int) -> tuple[int, ...]:
    """The subset of this number: at least ``FEWEST`` of the ordinals and not all, each size alike often."""
    rng = random.Random(f"subset/{seed}/{number}")
    return tuple(sorted(rng.sample(ordinals, rng.randint(FEWEST, len(ordinals) - 1))))


def nearness(conductor: Conductor, questions: Sequence[GymQuestion], offered: Offered) -> Nearness:
    """Measure a Conductor of the gym over its pool, whose profiles are these, on one round."""

    async def play() -> list[Episode]:
        return await asyncio.gather(*(conductor.ask(question.text) for question in questions))

    episodes = asyncio.run(play())
    if failed := next(
        (one.error for one in episodes if one.rounds[0].completion is None and one.error), None
    ):
        raise failed  # a Conductor that could not be reached says nothing about its workflows
    workflows = [episode.rounds[0].workflow for episode in episodes]
    chances = [
        0.0 if workflow is None else expected_accuracy(question, workflow, offered)
        for question, workflow in zip(questions, workflows, strict=True)
    ]
    return Nearness(
        tuple(offered),
        fmean(workflow is not None for workflow in workflows),
        fmean(chances),
        fmean(oracle_workflow(question, offered)[1] for question in questions),
    )


@dataclass(frozen=True, slots=True)
class _State:
    """A way in which a question may go: the last workflow and its answer, and how it came to them.

    Attributes:
        workflow: the last one.
        answer: what it answered; None is an admitted failure.
        right: whether the first answer was right.
        calls: of workers, until now.
        ended: why no further round follows; "" where one does.
    """

    workflow: Workflow
    answer: Seen
    right: bool
    calls: int
    ended: Literal["", "accepted", "failed"] = ""


def recursion(
    conductor: Conductor, questions: Sequence[GymQuestion], offered: Offered, depth: int
) -> list[Recursion]:
    """What up to 0, 1, ... ``depth`` further rounds are worth; what got no first answer is not mended."""

    async def play() -> list[list[dict[_State, float]]]:
        return await asyncio.gather(
            *(_play(conductor, question, offered, depth) for question in questions)
        )

    played = list(zip(questions, asyncio.run(play()), strict=True))
    firsts = [
        (question, state, chance)
        for question, states in played
        for state, chance in states[0].items()
    ]
    right = sum(chance for _, state, chance in firsts if state.right)
    wrong = sum(chance for _, state, chance in firsts if not state.right)
    found: list[Recursion] = []
    for rounds in range(depth + 1):
        ends = [
            (question, state, chance)
            for question, states in played
            for state, chance in states[rounds].items()
        ]
        kept = sum(
            chance
            for question, state, chance in ends
            if state.right and state.answer == question.answer
        )
        fixed = sum(
            chance
            for question, state, chance in ends
            if not state.right and state.answer == question.answer
        )
        accepted = sum(
            chance
            for _, states in played
            for state, chance in states[min(1, rounds)].items()
            if state.right and state.ended == "accepted"
        )
        mendable = sum(
            chance * _mended(question, offered, rounds)
            for question, state, chance in firsts
            if state.answer is None
        )
        found.append(
            Recursion(
                depth=rounds,
                accuracy=(kept + fixed) / len(questions),
                fixed=fixed / wrong if wrong else None,
                broken=1 - kept / right if right else None,
                accepted=accepted / right if right else None,
                calls=sum(chance * state.calls for _, state, chance in ends) / (right + wrong)
                if firsts
                else None,
                ceiling=mendable / wrong if wrong else None,
            )
        )
    return found


def _mended(question: GymQuestion, offered: Offered, rounds: int) -> float:
    """The chance that the best workflow answers, tried again up to ``rounds`` times while its answer is none."""
    workflow, accuracy = oracle_workflow(question, offered)
    lost = (1 - REFUSES) ** len(workflow) * answer_chances(question, workflow, offered).get(
        None, 0.0
    )
    return accuracy * sum(lost**number for number in range(rounds))


async def _play(
    conductor: Conductor, question: GymQuestion, offered: Offered, depth: int
) -> list[dict[_State, float]]:
    """Where a question's chance stands after each round; what got no first answer is left out."""
    workflow = await _planned(conductor, question, None)
    states: dict[_State, float] = {}
    if workflow is not None:
        answered = (1 - REFUSES) ** len(workflow)
        for answer, chance in answer_chances(question, workflow, offered).items():
            states[_State(workflow, answer, answer == question.answer, len(workflow))] = (
                answered * chance
            )
    rounds = [states]
    plans: dict[
        tuple[Workflow, Seen], Workflow | None
    ] = {}  # the Conductor sees no more of what went before
    for number in range(depth):
        after: dict[_State, float] = defaultdict(float)
        for state, chance in rounds[-1].items():
            if state.ended:
                after[state] += chance
                continue
            shown = state.workflow, state.answer
            if shown not in plans:
                plans[shown] = await _planned(conductor, question, state)
            workflow = plans[shown]
            if not workflow:
                after[replace(state, ended="failed" if workflow is None else "accepted")] += chance
                continue
            answered, calls = (1 - REFUSES) ** len(workflow), state.calls + len(workflow)
            after[replace(state, calls=calls, ended="failed")] += chance * (1 - answered)
            for answer, share in answer_chances(
                question, workflow, offered, before=(*[None] * number, state.answer)
            ).items():
                after[_State(workflow, answer, state.right, calls)] += chance * answered * share
        rounds.append(after)
    return rounds


async def _planned(
    conductor: Conductor, question: GymQuestion, state: _State | None
) -> Workflow | None:
    """The workflow that the Conductor writes; one without steps accepts the last answer. None if it is invalid."""
    before = None
    if state is not None:
        results = [StepResult(step) for step in state.workflow]
        said = LOST if state.answer is None else write_value(state.answer)
        results[-1] = replace(results[-1], completion=Completion(said))
        before = Round(None, state.workflow, Transcript(state.workflow, tuple(results)))
    pool, steps, options = conductor.pool, conductor.max_steps, conductor.prompt
    messages = render_prompt(
        question.text,
        pool.ordinals,
        options=options,
        max_steps=steps,
        cards=pool.cards,
        previous=before,
    )
    said = await conductor.planner.complete(
        messages, call=CallContext(round=int(before is not None))
    )
    if said.finish_reason == "length":
        return None
    try:
        return parse_workflow(
            said.text, pool.ordinals, max_steps=steps, accept_allowed=before is not None
        )
    except WorkflowError:
        return None
