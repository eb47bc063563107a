"""Random workflows of the gym: valid, readable, and ignorant of who is good at what.

Each choice is drawn uniformly: how many of the question's operations a workflow names (in their
order, so that the steps read as a plan) and which; each step's worker, wording and access (nothing,
the step before, or all); and, where it ends in a comparison, how many independent attempts that
compares. This distribution is the *random* reference level. The cold start learns from it, too, but
there a workflow never skips an operation, and one plan in five is an exercise in reading: it names
a chain in any order in full. The few chains of questions alone are learnt by heart.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from openconductor.calls.cards import read_card
from openconductor.gym.questions import JOINERS, LARGEST, OPENERS, SMUDGED, GymQuestion
from openconductor.gym.workers import CATEGORIES, LOST
from openconductor.gym.world import COMPARE, OPERATIONS, WORDINGS, write_value
from openconductor.prompt import count_steps
from openconductor.types import Access, Completion, Round, Step, StepResult, Transcript, Workflow

COMPARES = 0.2
"""The share of workflows that end in a comparison, where there is room for one."""
WHOLE = 0.1
"""The share of steps whose subtask is the whole question."""
WANTED = " ({})"
"""The category that a thought looks for in the cards: one token before the worker."""
REMARK = " (smudged)"
"""The remark of a thought behind a worker whose list is smudged."""


def random_workflow(
    rng: random.Random,
    question: GymQuestion,
    ordinals: Sequence[int],
    *,
    max_steps: int = 5,
    skips: bool = True,
) -> Workflow:
    """Draw a valid workflow for a question over the offered ordinals.

    ``skips`` False: a workflow that names some operations names the first ones. So what comes next
    in a plan is always what comes next in the question.
    """
    operations = [operation for operation, _ in question.operations]
    size = rng.randint(1, min(len(operations), max_steps))
    places: Sequence[int] = range(size)
    if skips:
        places = sorted(rng.sample(range(len(operations)), size))
    room = (max_steps - 1) // size  # attempts that leave a step for a comparison
    compares = room > 0 and rng.random() < COMPARES
    attempts = rng.randint(1, room) if compares else 1
    steps: list[Step] = []
    for _ in range(attempts):
        for number, place in enumerate(places):
            access: Access = ()
            if number:
                access = rng.choice(((), (len(steps) - 1,), "all"))
            named = operations if rng.random() < WHOLE else [operations[place]]
            worker = rng.choice(ordinals)
            phrases = [operation.phrase(rng.choice(WORDINGS)) for operation in named]
            steps.append(Step(worker, ", then ".join(phrases), access))
    if compares:
        worker = rng.choice(ordinals)
        steps.append(Step(worker, rng.choice(COMPARE), "all"))
    return Workflow(tuple(steps))


def reading_workflow(
    rng: random.Random, question: GymQuestion, ordinals: Sequence[int]
) -> Workflow:
    """Draw a workflow that names each operation once, in order; all else is uniform."""
    steps: list[Step] = []
    for operation, _ in question.operations:
        access: Access = ()
        if steps:
            access = rng.choice(((), (len(steps) - 1,), "all"))
        subtask = operation.phrase(rng.choice(WORDINGS))
        steps.append(Step(rng.choice(ordinals), subtask, access))
    return Workflow(tuple(steps))


def random_round(
    rng: random.Random, question: GymQuestion, ordinals: Sequence[int], *, max_steps: int = 5
) -> Round:
    """Return a round to follow: a random workflow, and an answer that has nothing to do with it.

    The answer is the right one, one with a wrong item, or an admitted failure.
    """
    workflow = random_workflow(rng, question, ordinals, max_steps=max_steps)
    wrong = list(question.answer)
    place = rng.randrange(len(wrong))
    numbers = map(str, range(1, LARGEST + 1))
    wrong[place] = rng.choice([number for number in numbers if number != wrong[place]])
    answer = rng.choice((write_value(question.answer), write_value(tuple(wrong)), LOST))
    return answered_round(workflow, answer)


def answered_round(workflow: Workflow, answer: str) -> Round:
    """Return the round in which a workflow gave an answer, as a Conductor is shown it."""
    *earlier, last = workflow
    results = (*map(StepResult, earlier), StepResult(last, Completion(answer)))
    return Round(Completion(""), workflow, Transcript(workflow, results))


def draw_categories(
    rng: random.Random, workflow: Workflow, cards: Mapping[int, str]
) -> tuple[str, ...]:
    """Return for each step one of the categories on its worker's card, drawn uniformly."""
    categories_of = {ordinal: list(read_card(card)) for ordinal, card in cards.items()}
    return tuple(rng.choice(categories_of[step.worker]) for step in workflow)


def write_index(cards: Mapping[int, str]) -> str:
    """Return who is listed for what, the best first: an exercise in reading cards.

    >>> write_index({2: "sums plain 90%", 5: "order formal 80%, sums plain 100%"})
    ' (order formal): 5 (sums plain): 5 (sums plain): 2'
    """
    rates = {ordinal: read_card(card) for ordinal, card in cards.items()}
    text = ""
    for category in CATEGORIES:
        listed = [ordinal for ordinal in rates if category in rates[ordinal]]
        listed.sort(key=lambda ordinal: -rates[ordinal][category])
        for ordinal in listed:
            text += f"{WANTED.format(category)}: {ordinal}"
    return text


def write_thought(workflow: Workflow, question: GymQuestion, categories: Sequence[str] = ()) -> str:
    """Return the thought before the lists: the number of steps, and each subtask with its worker.

    With ``categories``, what is looked for in the cards stands between a subtask and its worker.
    Where the list is smudged, a remark says so; a comparison reads answers, not the list, so it has
    no remark.

    >>> from openconductor.gym.questions import read_question
    >>> steps = (Step(3, "sort the list"), Step(4, "compare the answers", "all"))
    >>> question = read_question("Take the smudged list 4 17 9, sort the list.")
    >>> write_thought(Workflow(steps), question)
    '2 steps; sort the list: 3 (smudged); compare the answers: 4'
    """
    parts = [count_steps(len(workflow))]
    for index, step in enumerate(workflow):
        part = step.subtask
        if categories:
            part += WANTED.format(categories[index])
        part += f": {step.worker}"
        if question.smudged and step.subtask not in COMPARE:
            part += REMARK
        parts.append(part)
    return "; ".join(parts)


def phrases(*, cards: bool = False) -> list[str]:
    """Return the texts that a fresh model has one token for, in the order of their ids.

    They are the phrases of questions, subtasks and thoughts, and the numbers; ``cards`` adds the
    phrases of the workers' cards.
    """
    operations = [
        operation.phrase(wording) for operation in OPERATIONS.values() for wording in WORDINGS
    ]
    texts = [*OPENERS, *JOINERS, f" {SMUDGED}", REMARK]
    texts += map(count_steps, range(6))
    texts += [*operations, *COMPARE]
    texts += [f" {number}" for number in range(LARGEST + 1)]
    if cards:
        texts += [f"Model {ordinal}: " for ordinal in range(16)]
        texts += [WANTED.format(category) for category in CATEGORIES]
        for category in CATEGORIES:
            texts += [f"{category} {10 * tenth}%" for tenth in range(11)]
    return texts
