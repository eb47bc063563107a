"""Measure how near a Conductor comes to the oracle of the gym, by exact chances."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from openconductor.errors import WorkflowError
from openconductor.gym.exact import Offered, answer_chances, expected_accuracy, oracle_workflow
from openconductor.gym.questions import GymQuestion
from openconductor.gym.sampling import answered_round
from openconductor.gym.workers import LOST, REFUSES, Seen
from openconductor.gym.world import write_value
from openconductor.parser import parse_completion
from openconductor.prompt import render_prompt
from openconductor.protocols import CallContext
from openconductor.types import Episode, Workflow

if TYPE_CHECKING:
    from openconductor.conductor import Conductor

FEWEST = 4
"""The fewest workers of a subset."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """A Conductor's distance from the oracle over a pool: shares in [0, 1], means over questions.

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
    """The worth of up to ``depth`` further rounds: exact, but that one mistake stands for all.

    A share of nothing is None.

    Attributes:
        depth: the most rounds after the first.
        accuracy: the chance that the answer is right, mean over the questions.
        fixed: the share of the first round's wrong answers that is right in the end.
        broken: the share of the right ones that is wrong in the end.
        accepted: the share of the right ones that the Conductor accepts in its second round.
        calls: of workers, as planned: mean over the first round's answers.
        ceiling: ``fixed`` if the oracle planned again after each admitted failure, and all other
            answers stood.
    """

    depth: int
    accuracy: float
    fixed: float | None
    broken: float | None
    accepted: float | None
    calls: float | None
    ceiling: float | None


def draw_subset(ordinals: Sequence[int], number: int, seed: int) -> tuple[int, ...]:
    """Draw the subset of a number: at least ``FEWEST`` ordinals and not all, sizes evenly."""
    rng = random.Random(f"subset/{seed}/{number}")
    size = rng.randint(FEWEST, len(ordinals) - 1)
    return tuple(sorted(rng.sample(ordinals, size)))


def nearness(conductor: Conductor, questions: Sequence[GymQuestion], offered: Offered) -> Nearness:
    """Measure one round of a Conductor over its pool, whose profiles are ``offered``."""
    episodes = asyncio.run(_ask_all(conductor, questions))
    for episode in episodes:
        if episode.rounds[0].completion is None and episode.error is not None:
            raise episode.error  # the Conductor was not reached: nothing is known of its workflows
    chances: list[float] = []
    valid = 0
    for question, episode in zip(questions, episodes, strict=True):
        workflow = episode.rounds[0].workflow
        if workflow is None:
            chances.append(0.0)
        else:
            valid += 1
            chances.append(expected_accuracy(question, workflow, offered))
    return Nearness(
        offered=tuple(offered),
        validity=valid / len(questions),
        accuracy=fmean(chances),
        oracle=fmean(oracle_workflow(question, offered)[1] for question in questions),
    )


async def _ask_all(conductor: Conductor, questions: Sequence[GymQuestion]) -> list[Episode]:
    return await asyncio.gather(*(conductor.ask(question.text) for question in questions))


# ── further rounds ────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _State:
    """A possible course of a question.

    Attributes:
        question: the question.
        workflow: the last one.
        answer: its answer. None: an admitted failure.
        was_right: True if the first answer was right.
        calls: of workers, so far.
        ended: why no further round follows. "": one does.
    """

    question: GymQuestion
    workflow: Workflow
    answer: Seen
    was_right: bool
    calls: int
    ended: Literal["", "accepted", "failed"] = ""


_Chances = Sequence[tuple[_State, float]]
"""States, each with its chance."""


def recursion(
    conductor: Conductor, questions: Sequence[GymQuestion], offered: Offered, depth: int
) -> list[Recursion]:
    """Measure 0, 1, … ``depth`` further rounds. A question without a first answer stays without."""
    rounds = asyncio.run(_play_all(conductor, questions, offered, depth))
    return [_measure(rounds, len(questions), offered, number) for number in range(depth + 1)]


async def _play_all(
    conductor: Conductor, questions: Sequence[GymQuestion], offered: Offered, depth: int
) -> list[_Chances]:
    """Return the states of all questions after each round."""
    plays = (_play(conductor, question, offered, depth) for question in questions)
    by_question = await asyncio.gather(*plays)
    return [list(chain.from_iterable(states)) for states in zip(*by_question, strict=True)]


def _measure(rounds: Sequence[_Chances], count: int, offered: Offered, depth: int) -> Recursion:
    right = wrong = mendable = 0.0
    for state, chance in rounds[0]:
        if state.was_right:
            right += chance
        else:
            wrong += chance
        if state.answer is None:
            mendable += chance * _mended(state.question, offered, depth)
    kept = fixed = calls = 0.0
    for state, chance in rounds[depth]:
        calls += chance * state.calls
        is_right = state.answer == state.question.answer
        if is_right and state.was_right:
            kept += chance
        elif is_right:
            fixed += chance
    accepted = 0.0
    for state, chance in rounds[min(1, depth)]:
        if state.was_right and state.ended == "accepted":
            accepted += chance
    return Recursion(
        depth=depth,
        accuracy=(kept + fixed) / count,
        fixed=_share(fixed, wrong),
        broken=1 - kept / right if right else None,
        accepted=_share(accepted, right),
        calls=_share(calls, right + wrong),
        ceiling=_share(mendable, wrong),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mended(question: GymQuestion, offered: Offered, rounds: int) -> float:
    """Return the chance that the best workflow answers, repeated after each admitted failure."""
    workflow, accuracy = oracle_workflow(question, offered)
    admitted = answer_chances(question, workflow, offered).get(None, 0.0)
    lost = (1 - REFUSES) ** len(workflow) * admitted
    return accuracy * sum(lost**number for number in range(rounds))


async def _play(
    conductor: Conductor, question: GymQuestion, offered: Offered, depth: int
) -> list[_Chances]:
    """Return a question's states after each round."""
    workflow = await _plan(conductor, question, None)
    states: dict[_State, float] = {}
    if workflow is not None:
        answered = (1 - REFUSES) ** len(workflow)
        for answer, chance in answer_chances(question, workflow, offered).items():
            was_right = answer == question.answer
            state = _State(question, workflow, answer, was_right, len(workflow))
            states[state] = answered * chance
    rounds: list[_Chances] = [list(states.items())]
    # A Conductor sees only the last workflow and answer, so that equal ones get equal plans.
    plans: dict[tuple[Workflow, Seen], Workflow | None] = {}
    for number in range(depth):
        after: dict[_State, float] = defaultdict(float)
        for state, chance in rounds[-1]:
            if state.ended:
                after[state] += chance
                continue
            shown = state.workflow, state.answer
            if shown not in plans:
                plans[shown] = await _plan(conductor, question, state)
            workflow = plans[shown]
            if workflow is None:
                after[replace(state, ended="failed")] += chance
            elif not workflow:
                after[replace(state, ended="accepted")] += chance
            else:
                before = (*[None] * number, state.answer)
                answers = answer_chances(question, workflow, offered, before=before)
                answered = (1 - REFUSES) ** len(workflow)
                calls = state.calls + len(workflow)
                refused = replace(state, calls=calls, ended="failed")
                after[refused] += chance * (1 - answered)
                for answer, share in answers.items():
                    played = replace(state, workflow=workflow, answer=answer, calls=calls)
                    after[played] += chance * answered * share
        rounds.append(list(after.items()))
    return rounds


async def _plan(
    conductor: Conductor, question: GymQuestion, state: _State | None
) -> Workflow | None:
    """Return the Conductor's workflow; without steps it accepts the last answer. None: invalid."""
    pool, max_steps = conductor.pool, conductor.max_steps
    previous = None
    if state is not None:
        answer = LOST if state.answer is None else write_value(state.answer)
        previous = answered_round(state.workflow, answer)
    messages = render_prompt(
        question.text,
        pool.ordinals,
        options=conductor.prompt,
        max_steps=max_steps,
        cards=pool.cards,
        previous=previous,
    )
    is_later = previous is not None
    call = CallContext(round=int(is_later))
    completion = await conductor.planner.complete(messages, call=call)
    if completion.finish_reason == "length":
        return None
    try:
        return parse_completion(
            completion.text, pool.ordinals, max_steps=max_steps, accept_allowed=is_later
        )
    except WorkflowError:
        return None
