"""Random workflows: valid, readable, and ignorant of who is good at what.

In: a random state and a question. Out: a workflow drawn uniformly in each choice: the number of steps, each step's
worker, wording and access (nothing, the step before, or all; a comparison sees all), and which of the question's
operations a step names (in the order of the question, so that the steps read as a plan). This one distribution is the
*random* reference level and the cold start's only teacher.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from openconductor.gym.questions import GymQuestion
from openconductor.gym.world import COMPARE, WORDINGS, Operation
from openconductor.types import Access, Step, Workflow

_COMPARES = 0.15  # share of workflows of several steps that end in a comparison
_WHOLE = 0.1  # share of steps that are told to do everything


def random_workflow(
    rng: random.Random, question: GymQuestion, ordinals: Sequence[int], *, max_steps: int = 5
) -> Workflow:
    """Draw a valid workflow for a question over the offered ordinals."""
    count = rng.randint(1, max_steps)
    operations = [operation for operation, _ in question.operations]
    places = sorted(rng.randrange(len(operations)) for _ in range(count))
    steps: list[Step] = []
    for index, place in enumerate(places):
        access: Access = rng.choice(((), (index - 1,), "all")) if index else ()
        if index and index == count - 1 and rng.random() < _COMPARES:
            subtask, access = rng.choice(COMPARE), "all"
        elif rng.random() < _WHOLE:
            subtask = write_subtask(rng, operations)
        else:
            subtask = write_subtask(rng, [operations[place]])
        steps.append(Step(rng.choice(ordinals), subtask, access))
    return Workflow(tuple(steps))


def write_subtask(rng: random.Random, operations: Sequence[Operation]) -> str:
    """An instruction that names the operations, each in a wording drawn at random."""
    return ", then ".join(operation.phrase(rng.choice(WORDINGS)) for operation in operations)


def write_thought(workflow: Workflow) -> str:
    """The thought before the three lists: each subtask beside the worker chosen for it.

    >>> write_thought(Workflow((Step(3, "sort the list"), Step(1, "double every number", "all"))))
    'sort the list: 3; double every number: 1'
    """
    return "; ".join(f"{step.subtask}: {step.worker}" for step in workflow)
