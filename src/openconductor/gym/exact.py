"""Exact reference levels: how likely a workflow answers a question, computed from the workers' own distributions.

In: a question and a workflow. Out: probabilities, by summing over every outcome of every step
(nothing is sampled); and the best workflow of a question (the oracle). Exact but for one thing:
that two mistakes of different steps never agree by chance (in the simulation they do about once in
a thousand smudged questions).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from openconductor.gym.questions import GymQuestion
from openconductor.gym.sampling import random_workflow
from openconductor.gym.workers import (
    FURTHER,
    PROFILES,
    REFUSES,
    STEPS,
    Profile,
    Seen,
    View,
    outcomes,
)
from openconductor.gym.world import COMPARE, Operation
from openconductor.types import Step, Workflow

Offered = Mapping[int, Profile]
"""Profiles by ordinal: all eight, or a subset of them under the same ordinals."""

ALL: Offered = dict(enumerate(PROFILES))


def answer_chances(
    question: GymQuestion,
    workflow: Workflow,
    offered: Offered = ALL,
    *,
    before: tuple[Seen, ...] = (),
) -> dict[Seen, float]:
    """The chance of each final answer where no worker declines.

    What no later step sees is forgotten on the way, which merges states. ``before`` holds the
    answers of the rounds before, in recursion: steps whose access is ``"all"`` see the last one,
    too.
    """
    last = len(workflow) - 1
    final_use = [
        max(
            (later for later in range(len(workflow)) if index in workflow.visible(later)),
            default=index,
        )
        for index in range(len(workflow))
    ]
    states: dict[tuple[Seen, ...], float] = {(): 1.0}
    for index, step in enumerate(workflow):
        after: dict[tuple[Seen, ...], float] = {}
        visible = workflow.visible(index)
        instruction = step.subtask.rsplit("\n\n", 1)[-1]
        for responses, weight in states.items():
            shown = before[-1:] if step.access == "all" else ()
            seen = (*shown, *(responses[earlier] for earlier in visible))
            view = View(question, instruction, seen, STEPS * len(before) + index)
            kept = tuple(
                response if final_use[place] > index else None
                for place, response in enumerate(responses)
            )
            for chance, result, _ in outcomes(offered[step.worker], view):
                if chance > 0:
                    response = result if index == last or final_use[index] > index else None
                    key = (*kept, response)
                    after[key] = after.get(key, 0.0) + weight * chance
        states = after
    answers: dict[Seen, float] = {}
    for responses, weight in states.items():
        answers[responses[-1]] = answers.get(responses[-1], 0.0) + weight
    return answers


def expected_accuracy(question: GymQuestion, workflow: Workflow, offered: Offered = ALL) -> float:
    """The chance that the workflow's answer is right.

    >>> from openconductor.gym.questions import read_question
    >>> question = read_question("Take 4 17 9, sort the list.")
    >>> round(expected_accuracy(question, Workflow((Step(3, "sort the list"),))), 2)
    0.94
    """
    answered = (1 - REFUSES) ** len(workflow)
    return answered * answer_chances(question, workflow, offered).get(question.answer, 0.0)


def alone_accuracy(question: GymQuestion, profile: Profile) -> float:
    """The chance that one worker, sent nothing but the question, answers it."""
    view = View(question, question.text, (), 0)
    return (1 - REFUSES) * sum(
        one.chance for one in outcomes(profile, view) if one.seen == question.answer
    )


def oracle_workflow(
    question: GymQuestion, offered: Offered = ALL, *, max_steps: int = 5
) -> tuple[Workflow, float]:
    """The best workflow of a question and its expected accuracy.

    The search covers every way to cut the operations into stretches, to repeat stretches and whole
    chains in independent attempts, and to let a referee compare finished attempts, within
    ``max_steps``; each stretch goes to the worker and wording with the highest chance (more success
    never hurts later steps, so nothing better is skipped).
    """
    # The chances depend on the operations and on whether the list is smudged, not on the numbers in
    # it.
    key = (
        question.composition,
        question.smudged,
        tuple(map(repr, sorted(offered.items()))),
        max_steps,
    )
    if key not in _ORACLE:
        plans = (
            (plan, expected_accuracy(question, plan, offered))
            for plan in _plans(question, offered, max_steps)
        )
        best = next(plans)
        for plan, accuracy in plans:
            if (
                accuracy > best[1] + 1e-9
            ):  # of equally good ones the first stands, which is the shortest
                best = (plan, accuracy)
        _ORACLE[key] = best
    return _ORACLE[key]


_ORACLE: dict[tuple[object, ...], tuple[Workflow, float]] = {}


def best_part(operations: Sequence[Operation], profiles: Offered) -> tuple[int, str]:
    """Who does a stretch best, and told how (of equals, the cheapest)."""
    ranked: list[tuple[float, float, int, str]] = []
    for ordinal, profile in profiles.items():
        told = [profile.best_phrase(operation) for operation in operations]
        chance = FURTHER ** (len(operations) - 1)
        for success, _ in told:
            chance *= success
        ranked.append(
            (
                chance,
                -float(profile.price.output),
                ordinal,
                ", then ".join(phrase for _, phrase in told),
            )
        )
    return max(ranked)[2:]


Bundle = tuple[tuple[Step, ...], tuple[int, ...]]
"""Chains of steps, and which of them end with an answer."""


def _plans(question: GymQuestion, profiles: Offered, max_steps: int) -> Iterator[Workflow]:
    """Every plan of the search, the shortest first.

    A plan is a bundle of chains (each cuts the operations into stretches; chains may share their
    first stretches) and, where there are several finished attempts or one to be checked, a referee
    at the end.
    """
    operations = [operation for operation, _ in question.operations]
    length = len(operations)
    # By end, then start: a stretch's source always stands before it.
    spans = [(start, end) for end in range(1, length + 1) for start in range(end)]
    parts = {(start, end): best_part(operations[start:end], profiles) for start, end in spans}
    referees = [ordinal for ordinal, profile in profiles.items() if profile.referee]

    def bundles(
        count: int, chosen: tuple[tuple[int, int], ...], steps: tuple[Step, ...]
    ) -> Iterator[Bundle]:
        """Every bundle of ``count`` steps that starts with these and ends in an answer."""
        if len(chosen) == count:
            finished = tuple(index for index, (_, end) in enumerate(chosen) if end == length)
            if finished:
                yield steps, finished
            return
        for start, end in spans[spans.index(chosen[-1]) if chosen else 0 :]:
            sources = (
                [(index,) for index, (_, other) in enumerate(chosen) if other == start]
                if start
                else [()]
            )
            for source in sources:
                ordinal, subtask = parts[start, end]
                yield from bundles(
                    count, (*chosen, (start, end)), (*steps, Step(ordinal, subtask, source))
                )

    for count in range(1, max_steps + 1):
        for steps, finished in bundles(count - 1, (), ()) if referees else ():
            yield Workflow((*steps, Step(referees[0], COMPARE[0], finished)))
        yield from (
            Workflow(steps) for steps, finished in bundles(count, (), ()) if len(finished) == 1
        )


def random_accuracy(
    question: GymQuestion, offered: Offered = ALL, *, draws: int = 200, seed: int = 0
) -> float:
    """The mean expected accuracy of ``draws`` random workflows over the pool (each one's accuracy is exact)."""
    rng = random.Random(f"random/{seed}/{question.text}")
    drawn = [random_workflow(rng, question, tuple(offered)) for _ in range(draws)]
    return sum(expected_accuracy(question, workflow, offered) for workflow in drawn) / draws
