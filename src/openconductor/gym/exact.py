"""Exact reference levels: the chance that a workflow answers a question, and the best workflow.

Probabilities are sums over every outcome of every step of the workers' own distributions; nothing
is sampled. They are exact but for one thing: two mistakes of different steps never agree by chance
(in the simulation they do about once in a thousand smudged questions).
"""

from __future__ import annotations

import random
from collections import defaultdict
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
    right_chance,
)
from openconductor.gym.world import COMPARE, Operation
from openconductor.types import Step, Workflow

Offered = Mapping[int, Profile]
"""Profiles by ordinal: all eight, or a subset of them under the same ordinals."""

ALL: Offered = dict(enumerate(PROFILES))


_State = tuple[Seen, ...]
"""The responses of the steps so far; those that no later step sees are forgotten (None)."""


def answer_chances(
    question: GymQuestion,
    workflow: Workflow,
    offered: Offered = ALL,
    *,
    before: tuple[Seen, ...] = (),
) -> dict[Seen, float]:
    """Return the chance of each final answer where no worker declines.

    ``before`` holds the answers of the rounds before, in recursion: steps whose access is ``"all"``
    see the last one, too.
    """
    last_use = _last_uses(workflow)
    first = STEPS * len(before)
    states: dict[_State, float] = {(): 1.0}
    for index, step in enumerate(workflow):
        shown = before[-1:] if step.access == "all" else ()
        instruction = step.subtask.rsplit("\n\n", 1)[-1]
        is_used = last_use[index] > index
        visible = workflow.visible(index)
        after: dict[_State, float] = defaultdict(float)
        for state, weight in states.items():
            seen = (*shown, *(state[earlier] for earlier in visible))
            view = View(question, instruction, seen, first + index)
            kept = [state[place] if last_use[place] > index else None for place in range(index)]
            for likely in outcomes(offered[step.worker], view):
                if likely.chance > 0:
                    key = (*kept, likely.seen if is_used else None)
                    after[key] += weight * likely.chance
        states = after
    answers: dict[Seen, float] = defaultdict(float)
    for state, weight in states.items():
        answers[state[-1]] += weight
    return answers


def _last_uses(workflow: Workflow) -> list[int]:
    """Return for each step the last step that sees it; itself if none does.

    The answer is used after all steps.
    """
    last = list(range(len(workflow)))
    last[-1] = len(workflow)
    for later in range(len(workflow)):
        for index in workflow.visible(later):
            last[index] = max(last[index], later)
    return last


def expected_accuracy(question: GymQuestion, workflow: Workflow, offered: Offered = ALL) -> float:
    """Return the chance that the workflow's answer is right.

    >>> from openconductor.gym.questions import read_question
    >>> question = read_question("Take 4 17 9, sort the list.")
    >>> round(expected_accuracy(question, Workflow((Step(3, "sort the list"),))), 2)
    0.94
    """
    answered = (1 - REFUSES) ** len(workflow)
    return answered * answer_chances(question, workflow, offered).get(question.answer, 0.0)


def alone_accuracy(question: GymQuestion, profile: Profile) -> float:
    """Return the chance that one worker, sent only the question, answers it."""
    view = View(question, question.text, (), 0)
    return (1 - REFUSES) * right_chance(profile, view)


def oracle_workflow(
    question: GymQuestion, offered: Offered = ALL, *, max_steps: int = 5
) -> tuple[Workflow, float]:
    """Return the best workflow of a question and its expected accuracy.

    The search covers every way to cut the operations into stretches, to repeat stretches and whole
    chains in independent attempts, and to let a referee compare finished attempts, within
    ``max_steps``; each stretch goes to the worker and wording with the highest chance (more success
    never hurts later steps, so nothing better is skipped).
    """
    # The chances depend on the operations and on whether the list is smudged, not on the numbers in
    # it.
    workers = tuple(map(repr, sorted(offered.items())))
    key = (question.composition, question.smudged, workers, max_steps)
    if key not in _ORACLE:
        best: tuple[Workflow, float] | None = None
        for plan in _plans(question, offered, max_steps):
            accuracy = expected_accuracy(question, plan, offered)
            # Of equally good ones the first stands, which is the shortest.
            if best is None or accuracy > best[1] + 1e-9:
                best = (plan, accuracy)
        assert best is not None
        _ORACLE[key] = best
    return _ORACLE[key]


_ORACLE: dict[tuple[object, ...], tuple[Workflow, float]] = {}


def best_part(operations: Sequence[Operation], profiles: Offered) -> tuple[int, str]:
    """Return who does a stretch of operations best, and its subtask; of equals, the cheapest."""
    ranked: list[tuple[float, float, int, str]] = []
    for ordinal, profile in profiles.items():
        chance = FURTHER ** (len(operations) - 1)
        phrases: list[str] = []
        for operation in operations:
            success, phrase = profile.best_phrase(operation)
            chance *= success
            phrases.append(phrase)
        cost = float(profile.price.output)
        ranked.append((chance, -cost, ordinal, ", then ".join(phrases)))
    _, _, ordinal, subtask = max(ranked)
    return ordinal, subtask


_Span = tuple[int, int]
"""A stretch of a question's operations: the first one, and the one after the last."""


def _plans(question: GymQuestion, profiles: Offered, max_steps: int) -> Iterator[Workflow]:
    """Yield every plan of the search, the shortest first.

    A plan is a bundle of chains (each cuts the operations into stretches; chains may share their
    first stretches) and, where there are several finished attempts or one to be checked, a referee
    at the end.
    """
    operations = [operation for operation, _ in question.operations]
    search = _Search(operations, profiles)
    referees = [ordinal for ordinal, profile in profiles.items() if profile.referee]
    for count in range(1, max_steps + 1):
        if referees:
            for steps, finished in search.bundles(count - 1):
                comparison = Step(referees[0], COMPARE[0], finished)
                yield Workflow((*steps, comparison))
        for steps, finished in search.bundles(count):
            if len(finished) == 1:
                yield Workflow(steps)


class _Search:
    """A search for bundles of chains over a question's operations."""

    def __init__(self, operations: Sequence[Operation], profiles: Offered) -> None:
        self._length = len(operations)
        # By end, then start: a stretch's source always stands before it.
        self._spans: list[_Span] = []
        for end in range(1, self._length + 1):
            self._spans += [(start, end) for start in range(end)]
        self._parts = {
            (start, end): best_part(operations[start:end], profiles) for start, end in self._spans
        }

    def bundles(
        self, count: int, chosen: tuple[_Span, ...] = (), steps: tuple[Step, ...] = ()
    ) -> Iterator[tuple[tuple[Step, ...], tuple[int, ...]]]:
        """Yield every bundle of ``count`` steps that starts with these and has an answer.

        A bundle is its steps, and the indices of those that end with an answer.
        """
        if len(chosen) == count:
            finished = tuple(index for index, (_, end) in enumerate(chosen) if end == self._length)
            if finished:
                yield steps, finished
            return
        first = self._spans.index(chosen[-1]) if chosen else 0
        for span in self._spans[first:]:
            ordinal, subtask = self._parts[span]
            for source in _sources(span, chosen):
                step = Step(ordinal, subtask, source)
                yield from self.bundles(count, (*chosen, span), (*steps, step))


def _sources(span: _Span, chosen: Sequence[_Span]) -> list[tuple[int, ...]]:
    """Return the access of a step that starts from the question, or from where a step ended."""
    start, _ = span
    if start == 0:
        return [()]
    return [(index,) for index, (_, end) in enumerate(chosen) if end == start]


def random_accuracy(
    question: GymQuestion, offered: Offered = ALL, *, draws: int = 200, seed: int = 0
) -> float:
    """Return the mean expected accuracy of ``draws`` random workflows, each of them exact."""
    rng = random.Random(f"random/{seed}/{question.text}")
    total = 0.0
    for _ in range(draws):
        workflow = random_workflow(rng, question, tuple(offered))
        total += expected_accuracy(question, workflow, offered)
    return total / draws
