"""What a workflow would be without one thing in it: a step, a worker, what it is shown, what it is told.

In: a Workflow and an Edit. Out: the edited Workflow, valid where the first one was. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from openconductor.prompt import SOLVE_SUBTASK
from openconductor.types import Step, Workflow

EditKind = Literal["drop", "swap", "blind", "untold"]
"""What is taken away.

- ``drop``: the step itself. Who saw it sees one step less; of the last step, the one before it answers.
- ``swap``: its worker, for another one.
- ``blind``: what it is shown: its access list is emptied.
- ``untold``: what it is told: its subtask is just to solve the question.
"""
EDIT_KINDS: tuple[EditKind, ...] = get_args(EditKind)
Swap = Literal["random", "each"]
"""Whether a step's worker is swapped for one other, drawn at random, or for each other in turn."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One thing that is taken away.

    Attributes:
        kind: what.
        step: of which step, 0-based.
        worker: the ordinal that takes its place; only of a ``swap``.
    """

    kind: EditKind
    step: int
    worker: int | None = None


def edited(workflow: Workflow, edit: Edit, *, plain: str = SOLVE_SUBTASK) -> Workflow | None:
    """The workflow with one thing taken away.

    Args:
        workflow: a valid one.
        edit: what is taken away.
        plain: what an ``untold`` step is told.

    Returns:
        None where nothing would be left, or nothing would change.

    Raises:
        IndexError: there is no such step.

    >>> chain = Workflow([Step(0, "Draft."), Step(1, "Check.", [0]), Step(2, "Polish.", [1])])
    >>> [step.access for step in edited(chain, Edit("drop", 0))]
    [(), (0,)]
    """
    index = edit.step
    step = workflow.steps[index]
    match edit.kind:
        case "drop":
            return _without(workflow, index) if len(workflow) > 1 else None
        case "swap":
            changed = step if edit.worker is None else replace(step, worker=edit.worker)
        case "blind":
            # "all" of the first step shows nothing of this workflow: that is no change.
            changed = replace(step, access=()) if workflow.visible(index) else step
        case "untold":
            changed = replace(step, subtask=plain)
    if changed == step:
        return None
    return Workflow((*workflow.steps[:index], changed, *workflow.steps[index + 1 :]))


def edits_of(
    workflow: Workflow,
    ordinals: Sequence[int],
    *,
    kinds: Sequence[EditKind] = EDIT_KINDS,
    swap: Swap = "random",
    seed: str = "",
) -> Iterator[Edit]:
    """Every edit of every step.

    Args:
        workflow: the workflow.
        ordinals: the workers that a step may go to.
        kinds: what may be taken away.
        swap: for which other workers a step's own is swapped.
        seed: keys the draws; the same seed draws the same workers.
    """
    for index, step in enumerate(workflow):
        for kind in kinds:
            if kind != "swap":
                yield Edit(kind, index)
                continue
            others = sorted(ordinal for ordinal in ordinals if ordinal != step.worker)
            if others and swap == "random":
                others = [random.Random(f"swap/{seed}/{index}").choice(others)]
            yield from (Edit("swap", index, worker) for worker in others)


def _without(workflow: Workflow, index: int) -> Workflow:
    kept: list[Step] = []
    for place, step in enumerate(workflow):
        if place == index:
            continue
        if step.access == "all":
            kept.append(step)
        else:
            seen = tuple(one - (one > index) for one in workflow.visible(place) if one != index)
            kept.append(replace(step, access=seen))
    return Workflow(tuple(kept))
