"""The worked examples: which set, the pool's ordinals and the step limit in, questions with valid workflows out.

An example is written with slots (0, 1, …) in place of workers (``prompt_texts``); here slots become ordinals on offer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from openconductor.prompt_texts import SETS, ExampleSet, Task
from openconductor.types import Access, Step, Workflow


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """An example as it is shown: the question, the thought, and the workflow over workers on offer."""

    question: str
    thought: str
    workflow: Workflow


def worked_examples(
    which: ExampleSet,
    ordinals: Sequence[int],
    *,
    max_steps: int,
    access: Literal["binary", "index"],
    subtask: str | None = None,
) -> tuple[WorkedExample, ...]:
    """The examples of a set, over the workers on offer.

    Slots are dealt out in turn, from a start that a checksum of the ordinals decides: the same pool always gets the
    same examples, and over many pools no worker is favoured.

    Args:
        which: the set.
        ordinals: the workers on offer, at least one.
        max_steps: no workflow is longer.
        access: whether what a step sees is shown as ``"all"`` or nothing, or by step numbers.
        subtask: the one instruction that every step gets instead of its own, if any.
    """
    offered = sorted(ordinals)
    turn = zlib.crc32(",".join(map(str, offered)).encode())
    shown: list[WorkedExample] = []
    for example in SETS[which]:
        plan = next(plan for plan in example.plans if len(plan.tasks) <= max_steps)
        steps = tuple(
            Step(offered[(turn + task.slot) % len(offered)], subtask or task.subtask, _access(task, access))
            for task in plan.tasks
        )
        used = len({task.slot for task in plan.tasks})
        turn += used if used % len(offered) else used + 1  # else the next example would begin with the same worker
        shown.append(WorkedExample(example.question, plan.plain if subtask else plan.thought, Workflow(steps)))
    return tuple(shown)


def _access(task: Task, access: Literal["binary", "index"]) -> Access:
    return "all" if task.sees and access == "binary" else task.sees
