"""What each step of a plan is worth: the same question again, with one thing taken away, and what becomes of it.

In: the records of a system, their problems, and a way to replay a workflow. Out: Counterfactuals:
mean changes of accuracy by kind of edit, place of the step, topology and worker, with paired
intervals; and what becomes of a system whose workflows are dealt out among other questions.

Every edited workflow is compared with the unedited one, replayed in the same way, on the same
question and the same repeat. Not covered: recursion (of a record with several rounds nothing is
replayed), and effects of two edits together. A step whose loss changes nothing may still be worth
something where others fail.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from typing import Literal, NamedTuple, get_args

from openconductor.calls.budget import RunBudget
from openconductor.episode import LiveEpisode
from openconductor.evaluation import for_each, judge
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import (
    Difference,
    Estimate,
    Key,
    difference,
    estimate,
    grouped,
    holm,
)
from openconductor.measures import group_by, topology
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext, Grader, OnEvent
from openconductor.tasks.simulated import find_simulation, instructions_for
from openconductor.types import Problem, Question, Step, Workflow

Replay = Callable[[Problem, Workflow, int], Awaitable[float | None]]
"""Plays a workflow on a problem, for a repeat: its score in [0, 1], or None where that could not be decided."""

EditKind = Literal["drop", "swap", "blind", "untold"]
"""What is taken away.

- ``drop``: the step itself. Who saw it sees one step less; of the last step, the one before it answers.
- ``swap``: its worker, for another one.
- ``blind``: what it is shown: its access list is emptied.
- ``untold``: what it is told: its subtask is just to solve the question.
"""
EDIT_KINDS: tuple[EditKind, ...] = get_args(EditKind)
WholeEdit = Literal["shuffled", "strangers", "silent"]
"""What is taken from a whole workflow: its question, all its workers, all its subtasks."""
_PLACES = ("only", "first", "middle", "last")


# ── edits ─────────────────────────────────────────────────────────────────────────────────────────
def edits_of(
    workflow: Workflow, ordinals: Iterable[int], *, told: str, seed: str = ""
) -> Iterator[tuple[EditKind, int, Workflow]]:
    """Every edit of every step (kind, step, the workflow then), but those that leave nothing or change nothing.

    Args:
        workflow: the workflow.
        ordinals: the workers that a step may be swapped for.
        told: what an ``untold`` step is told.
        seed: draws the other worker of each swap.

    >>> chain = Workflow([Step(0, "Draft."), Step(0, "Check.", [0])])
    >>> [(kind, step, len(made)) for kind, step, made in edits_of(chain, [0], told="Draft.")]
    [('drop', 0, 1), ('drop', 1, 1), ('blind', 1, 2), ('untold', 1, 2)]
    """
    known = sorted(ordinals)
    for index, step in enumerate(workflow):
        if len(workflow) > 1:
            left = (
                _unseeing(workflow, place, index)
                for place in range(len(workflow))
                if place != index
            )
            yield "drop", index, Workflow(tuple(left))
        others = [ordinal for ordinal in known if ordinal != step.worker]
        other = random.Random(f"swap/{seed}/{index}").choice(others) if others else step.worker
        changes: dict[EditKind, Step] = {
            "swap": replace(step, worker=other),
            # "all" of the first step shows nothing of this workflow: that is no change.
            "blind": replace(step, access=()) if workflow.visible(index) else step,
            "untold": replace(step, subtask=told),
        }
        for kind, changed in changes.items():
            if changed != step:
                yield (
                    kind,
                    index,
                    Workflow((*workflow.steps[:index], changed, *workflow.steps[index + 1 :])),
                )


def _unseeing(workflow: Workflow, place: int, index: int) -> Step:
    """A step as it is without the step ``index``: the others are numbered anew."""
    step = workflow.steps[place]
    if step.access == "all":
        return step
    return replace(
        step, access=tuple(one - (one > index) for one in workflow.visible(place) if one != index)
    )


# ── what was found ────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Effect:
    """What one kind of edit does to accuracy.

    Attributes:
        by: what the steps are grouped by: ``all``, ``position``, ``topology``, ``worker``.
        group: which group: ``first``, ``middle``, ``last``, ``only``; a topology; a worker's name;
            "" of all.
        change: edited less unedited, so what helps has a negative change.
        p_holm: its p-value, adjusted for all effects.
        edits: how many edited workflows it rests on.
    """

    kind: EditKind
    by: str
    group: str
    change: Difference
    p_holm: float
    edits: int


@dataclass(frozen=True, slots=True)
class Counterfactuals:
    """What was found.

    Attributes:
        records, left_out: how many were replayed, and not (no workflow, several rounds, no such
            problem).
        replays, undecided: how many workflows were played, the unedited among them; of these, left
            out as undecided.
        unedited: the accuracy of the unedited workflows, replayed.
        effects: by kind of edit, all steps first.
        shuffled: accuracy with another question's workflow less with the own one; None where there
            is no other.
        strangers: the same with every step done by another worker.
        silent: the same with every step only told to solve the question.
    """

    records: int
    left_out: int
    replays: int
    undecided: int
    unedited: Estimate | None
    effects: tuple[Effect, ...]
    shuffled: Difference | None
    strangers: Difference | None = None
    silent: Difference | None = None

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


# ── ways to replay ────────────────────────────────────────────────────────────────────────────────
def pool_replay(
    pool: WorkerPool,
    grader: Callable[[Problem], Grader],
    *,
    sample: Callable[[Problem, int], int],
    budget: RunBudget | None = None,
    on_event: OnEvent | None = None,
) -> Replay:
    """Replay over a pool's workers (``pool.replaying(journal)`` makes what a journal holds free), graded.

    ``sample`` gives the sample number of a problem's repeat; ``budget`` pays for the calls.
    """

    async def replay(problem: Problem, workflow: Workflow, repeat: int) -> float | None:
        context = CallContext(sample=sample(problem, repeat), budget=budget)
        live = LiveEpisode(pool, problem.question, context=context, on_event=on_event, spent="data")
        async with live.play():
            live.answer = await live.answer_by(workflow)
        correct = (await judge(problem, live.episode, grader(problem), repeat)).correct
        return None if correct is None else float(correct)

    return replay


async def exact_replay(problem: Problem, workflow: Workflow, _repeat: int = 0) -> float | None:
    """Return the exact chance that the workflow of a simulated task is right; None: it is not known."""
    simulation = find_simulation(problem.task)
    if simulation is None:
        return None
    return simulation.expected_accuracy(problem.question, workflow)


# ── the replays ───────────────────────────────────────────────────────────────────────────────────
class _Edit(NamedTuple):
    """What is played beside a record's own workflow: which edit of which of its steps."""

    record: Record
    workflow: Workflow
    kind: EditKind | WholeEdit
    step: int = 0


async def counterfactuals(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    replay: Replay,
    workers: Mapping[int, str],
    *,
    seed: int = 0,
    concurrency: int = 64,
    on_progress: Callable[[int, int], None] | None = None,
) -> Counterfactuals:
    """Replay the workflow of every record of one system that has one round, and each edit of it.

    Args:
        records: of one system.
        problems: by task and id.
        replay: plays a workflow.
        workers: those that a step may go to, by ordinal.
        seed: of swaps, shuffles and bootstraps.
        concurrency: the most replays at once.
        on_progress: told how many replays are done, of how many.

    Raises:
        OpenConductorError: one whose fate is *stop*, raised by ``replay``; what runs is cancelled.
    """
    kept = [one for one in records if len(one.workflows) == 1 and _key(one) in problems]
    edits = [*_edits(kept, problems, workers, seed), *_shuffled(kept, seed)]
    scores: dict[tuple[Key, Workflow, int], float | None] = {}

    def played(record: Record, workflow: Workflow) -> tuple[Key, Workflow, int]:
        return _key(record), workflow, record.sample

    unedited = [played(one, one.workflows[0]) for one in kept]
    wanted = [*unedited, *(played(one.record, one.workflow) for one in edits)]
    distinct = dict.fromkeys(wanted)  # what is asked for twice is played once

    async def play(one: tuple[Key, Workflow, int]) -> None:
        key, workflow, repeat = one
        scores[one] = await replay(problems[key], workflow, repeat)
        if on_progress is not None:
            on_progress(len(scores), len(distinct))

    await for_each(distinct, play, limit=max(1, concurrency))

    def change(group: Iterable[_Edit]) -> Difference | None:
        """The mean change over questions; a question's is the mean over its edits that were decided, both ways."""
        before: list[tuple[Key, float]] = []
        after: list[tuple[Key, float]] = []
        for one in group:
            own, edited = (
                scores[played(one.record, flow)] for flow in (one.record.workflows[0], one.workflow)
            )
            if own is not None and edited is not None:
                before.append((_key(one.record), own))
                after.append((_key(one.record), edited))
        return difference(grouped(after), grouped(before), seed)

    groups: dict[tuple[str, EditKind, str], list[_Edit]] = {}
    for one in edits:
        for kind, by, group in _groups(one, workers):
            groups.setdefault((by, kind, group), []).append(one)
    found = [
        (name, one)
        for name in sorted(groups, key=_order)
        if (one := change(groups[name])) is not None
    ]
    adjusted = holm([one.p for _, one in found])
    own = grouped((key, scores[key, flow, repeat]) for key, flow, repeat in unedited)
    return Counterfactuals(
        records=len(kept),
        left_out=len(records) - len(kept),
        replays=len(wanted),
        undecided=sum(scores[one] is None for one in wanted),
        unedited=estimate(own) if own else None,
        effects=tuple(
            Effect(kind, by, group, one, p, len(groups[by, kind, group]))
            for ((by, kind, group), one), p in zip(found, adjusted, strict=True)
        ),
        **{kind: change(one for one in edits if one.kind == kind) for kind in get_args(WholeEdit)},
    )


def _key(record: Record) -> Key:
    return record.task, record.problem


def _solving(question: Question) -> str:
    return instructions_for(question).solve(question)


def _edits(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    workers: Mapping[int, str],
    seed: int,
) -> Iterator[_Edit]:
    """Each record with one step changed, with all its steps done by others, and with none of them told anything."""
    for one in records:
        flow, told = one.workflows[0], _solving(problems[_key(one)].question)
        drawn = f"{seed}/{one.task}/{one.problem}/{one.sample}"
        for kind, step, changed in edits_of(flow, workers, told=told, seed=drawn):
            yield _Edit(one, changed, kind, step)
        rng = random.Random(f"strangers/{drawn}")
        others = [
            [ordinal for ordinal in workers if ordinal != step.worker] or [step.worker]
            for step in flow
        ]
        strangers = (
            replace(step, worker=rng.choice(some)) for step, some in zip(flow, others, strict=True)
        )
        yield _Edit(one, Workflow(tuple(strangers)), "strangers")
        yield _Edit(one, Workflow(tuple(replace(step, subtask=told) for step in flow)), "silent")


def _shuffled(records: Sequence[Record], seed: int) -> Iterator[_Edit]:
    """Each record with a workflow of another question of its task."""
    rng = random.Random(f"shuffle/{seed}")
    for of_task in group_by(records, lambda one: one.task).values():
        questions = group_by(of_task, lambda one: one.problem)
        order = list(questions)
        rng.shuffle(order)  # each question gets the workflows of the next one
        for problem, giver in zip(order, [*order[1:], *order[:1]], strict=True):
            for one, other in zip(questions[problem], cycle(questions[giver]), strict=False):
                if problem != giver:
                    yield _Edit(one, other.workflows[0], "shuffled")


def _groups(edit: _Edit, workers: Mapping[int, str]) -> Iterator[tuple[EditKind, str, str]]:
    """The groups that an edit of a step belongs to: of its kind, by what, and which."""
    if edit.kind not in EDIT_KINDS:
        return
    workflow = edit.record.workflows[0]
    last, ordinal = len(workflow) - 1, workflow.steps[edit.step].worker
    place = (
        "only" if not last else "last" if edit.step == last else "middle" if edit.step else "first"
    )
    named = {
        "all": "",
        "position": place,
        "topology": topology(workflow),
        "worker": workers.get(ordinal, str(ordinal)),
    }
    for by, group in named.items():
        yield edit.kind, by, group


def _order(name: tuple[str, EditKind, str]) -> tuple[str, int, int, str]:
    by, kind, group = name
    return by, EDIT_KINDS.index(kind), _PLACES.index(group) if group in _PLACES else 0, group
