"""Measure how near a Conductor comes to the oracle of the gym, by exact chances."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

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
        workflow: the last one.
        answer: its answer. None: an admitted failure.
        was_right: True if the first answer was right.
        calls: of workers, so far.
        ended: why no further round follows. "": one does.
    """

    workflow: Workflow
    answer: Seen
    was_right: bool
    calls: int
    ended: Literal["", "accepted", "failed"] = ""


_Chances = Mapping[_State, float]


class _Course(NamedTuple):
    """A question with the chances of its states after each round."""

    question: GymQuestion
    rounds: list[_Chances]


class _Outcome(NamedTuple):
    """A state of a question after some round, with its chance."""

    question: GymQuestion
    state: _State
    chance: float

    @property
    def is_right(self) -> bool:
        return self.state.answer == self.question.answer


def recursion(
    conductor: Conductor, questions: Sequence[GymQuestion], offered: Offered, depth: int
) -> list[Recursion]:
    """Measure 0, 1, … ``depth`` further rounds. A question without a first answer stays without."""
    return asyncio.run(_recursion(conductor, questions, offered, depth))


async def _recursion(
    conductor: Conductor, questions: Sequence[GymQuestion], offered: Offered, depth: int
) -> list[Recursion]:
    plays = (_play(conductor, question, offered, depth) for question in questions)
    courses = await asyncio.gather(*plays)
    return [_measure(courses, offered, number) for number in range(depth + 1)]


def _measure(courses: Sequence[_Course], offered: Offered, depth: int) -> Recursion:
    firsts, lasts = _outcomes_after(courses, 0), _outcomes_after(courses, depth)
    right = sum(first.chance for first in firsts if first.state.was_right)
    wrong = sum(first.chance for first in firsts if not first.state.was_right)
    kept = fixed = 0.0
    for last in lasts:
        if last.is_right and last.state.was_right:
            kept += last.chance
        elif last.is_right:
            fixed += last.chance
    accepted = 0.0
    for outcome in _outcomes_after(courses, min(1, depth)):
        if outcome.state.was_right and outcome.state.ended == "accepted":
            accepted += outcome.chance
    mendable = 0.0
    for first in firsts:
        if first.state.answer is None:
            mendable += first.chance * _mended(first.question, offered, depth)
    calls = sum(last.chance * last.state.calls for last in lasts)
    return Recursion(
        depth=depth,
        accuracy=(kept + fixed) / len(courses),
        fixed=_share(fixed, wrong),
        broken=1 - kept / right if right else None,
        accepted=_share(accepted, right),
        calls=_share(calls, right + wrong),
        ceiling=_share(mendable, wrong),
    )


def _outcomes_after(courses: Sequence[_Course], number: int) -> list[_Outcome]:
    outcomes: list[_Outcome] = []
    for question, rounds in courses:
        for state, chance in rounds[number].items():
            outcomes.append(_Outcome(question, state, chance))
    return outcomes


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
) -> _Course:
    """Follow a question's chances over the rounds."""
    workflow = await _plan(conductor, question, None)
    states: dict[_State, float] = {}
    if workflow is not None:
        answered = (1 - REFUSES) ** len(workflow)
        for answer, chance in answer_chances(question, workflow, offered).items():
            state = _State(workflow, answer, answer == question.answer, len(workflow))
            states[state] = answered * chance
    rounds: list[_Chances] = [states]
    # A Conductor sees only the last workflow and answer, so that equal ones get equal plans.
    plans: dict[tuple[Workflow, Seen], Workflow | None] = {}
    for number in range(depth):
        after: dict[_State, float] = defaultdict(float)
        for state, chance in rounds[-1].items():
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
                after[replace(state, calls=calls, ended="failed")] += chance * (1 - answered)
                for answer, share in answers.items():
                    following = _State(workflow, answer, state.was_right, calls)
                    after[following] += chance * answered * share
        rounds.append(after)
    return _Course(question, rounds)


async def _plan(
    conductor: Conductor, question: GymQuestion, state: _State | None
) -> Workflow | None:
    """Return the Conductor's workflow; without steps it accepts the last answer. None: invalid."""
    pool, max_steps = conductor.pool, conductor.max_steps
    messages = render_prompt(
        question.text,
        pool.ordinals,
        options=conductor.prompt,
        max_steps=max_steps,
        cards=pool.cards,
        previous=None if state is None else _round_of(state),
    )
    is_later = state is not None
    call = CallContext(round=int(is_later))
    completion = await conductor.planner.complete(messages, call=call)
    if completion.finish_reason == "length":
        return None
    try:
        return parse_workflow(
            completion.text, pool.ordinals, max_steps=max_steps, accept_allowed=is_later
        )
    except WorkflowError:
        return None


def _round_of(state: _State) -> Round:
    """Return the round that the Conductor is shown."""
    results = [StepResult(step) for step in state.workflow]
    answer = LOST if state.answer is None else write_value(state.answer)
    results[-1] = replace(results[-1], completion=Completion(answer))
    return Round(None, state.workflow, Transcript(state.workflow, tuple(results)))
