"""What each step of a plan is worth: the same question again, with one thing taken away, and what becomes of it.

In: the records of a system, their problems, and a way to replay a workflow. Out: Counterfactuals: mean changes of
accuracy by kind of edit, place of the step, topology and worker, with paired intervals; and what becomes of a system
whose workflows are dealt out among other questions.

Every edited workflow is compared with the unedited one, replayed in the same way, on the same question and the same
repeat. Not covered: recursion (of a record with several rounds nothing is replayed), and effects of two edits together.
A step whose loss changes nothing may still be worth something where others fail.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

from openconductor.baselines.instructions import solve
from openconductor.episode import Stage
from openconductor.evaluation import Outcome
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Difference, Estimate, Key, difference, estimate, holm
from openconductor.gym.exact import expected_accuracy
from openconductor.gym.questions import read_question
from openconductor.measures import topology
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.protocols import Grader, OnEvent
from openconductor.reward import grade_answer
from openconductor.types import Budget, Problem, Step, Workflow

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
_PLACES = ("only", "first", "middle", "last")


# ── edits ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Edit:
    """One thing that is taken away of a step (0-based); ``worker`` takes its place in a ``swap``."""

    kind: EditKind
    step: int
    worker: int | None = None


def edited(workflow: Workflow, edit: Edit, *, told: str = SOLVE_SUBTASK) -> Workflow | None:
    """The workflow with one thing taken away; None where nothing would be left, or nothing would change.

    ``told`` is what an ``untold`` step is told.

    >>> chain = Workflow([Step(0, "Draft."), Step(1, "Check.", [0]), Step(2, "Polish.", [1])])
    >>> [step.access for step in edited(chain, Edit("drop", 0))]
    [(), (0,)]
    """
    index = edit.step
    step = workflow.steps[index]
    match edit.kind:
        case "drop":
            kept = [_unseeing(workflow, place, index) for place in range(len(workflow)) if place != index]
            return Workflow(tuple(kept)) if kept else None
        case "swap":
            changed = replace(step, worker=step.worker if edit.worker is None else edit.worker)
        case "blind":
            # "all" of the first step shows nothing of this workflow: that is no change.
            changed = replace(step, access=()) if workflow.visible(index) else step
        case "untold":
            changed = replace(step, subtask=told)
    if changed == step:
        return None
    return Workflow((*workflow.steps[:index], changed, *workflow.steps[index + 1 :]))


def edits_of(workflow: Workflow, ordinals: Iterable[int], *, seed: str = "") -> Iterator[Edit]:
    """Every edit of every step; a worker is swapped for one other of the ordinals, drawn by the seed."""
    for index, step in enumerate(workflow):
        others = sorted(ordinal for ordinal in ordinals if ordinal != step.worker)
        for kind in EDIT_KINDS:
            if kind != "swap":
                yield Edit(kind, index)
            elif others:
                yield Edit(kind, index, random.Random(f"swap/{seed}/{index}").choice(others))


def _unseeing(workflow: Workflow, place: int, index: int) -> Step:
    """A step as it is without the step ``index``: the others are numbered anew."""
    step = workflow.steps[place]
    if step.access == "all":
        return step
    return replace(step, access=tuple(one - (one > index) for one in workflow.visible(place) if one != index))


# ── what was found ───────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Options:
    """The seed of swaps, shuffles and bootstraps, and the most replays at once."""

    seed: int = 0
    concurrency: int = 64


@dataclass(frozen=True, slots=True)
class Effect:
    """What one kind of edit does to accuracy.

    Attributes:
        by: what the steps are grouped by: ``all``, ``position``, ``topology``, ``worker``.
        group: which group: ``first``, ``middle``, ``last``, ``only``; a topology; a worker's name; "" of all.
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
        records, left_out: how many were replayed, and not (no workflow, several rounds, no such problem).
        replays, undecided: how many workflows were played, the unedited among them; of these, left out as undecided.
        unedited: the accuracy of the unedited workflows, replayed.
        effects: by kind of edit, all steps first.
        shuffled: accuracy with another question's workflow less with the own one; None where there is no other.
    """

    records: int
    left_out: int
    replays: int
    undecided: int
    unedited: Estimate | None
    effects: tuple[Effect, ...]
    shuffled: Difference | None

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


# ── ways to replay ───────────────────────────────────────────────────────────────────────────────────────────────────
def pool_replay(
    pool: WorkerPool,
    grader: Callable[[Problem], Grader],
    *,
    budget: Budget | None = None,
    on_event: OnEvent | None = None,
    sample: Callable[[Problem, int], int] | None = None,
) -> Replay:
    """Replay over a pool's workers (``pool.replaying(journal)`` makes what a journal holds free), graded.

    Where the ``budget`` of one replay is spent, the workflow counts as wrong, as in an evaluation. ``sample`` gives the
    sample number of a problem's repeat; the repeat itself by default.
    """

    async def replay(problem: Problem, workflow: Workflow, repeat: int) -> float | None:
        number = repeat if sample is None else sample(problem, repeat)
        stage = Stage(pool, problem.question, sample=number, on_event=on_event, spent="data")
        episode = await stage.play(lambda stage: stage.answer_by(workflow), budget)
        grade = None if episode.answer is None else await grade_answer(grader(problem), problem, episode.answer)
        correct = Outcome(problem, episode, grade, repeat).correct
        return None if correct is None else float(correct)

    return replay


async def exact_replay(problem: Problem, workflow: Workflow, _repeat: int = 0) -> float | None:
    """In the gym: the chance that the workflow is right, exact and free. None of a problem that is not the gym's."""
    question = read_question(problem.question)
    return None if question is None else expected_accuracy(question, workflow)


# ── the replays ──────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Job:
    """One replay: of which record, and what was taken away (None: nothing, or its workflow is another question's)."""

    record: int
    problem: Problem
    workflow: Workflow
    repeat: int
    edit: Edit | None = None
    shuffled: bool = False


async def counterfactuals(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    replay: Replay,
    workers: Mapping[int, str],
    *,
    options: Options | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Counterfactuals:
    """Replay the workflow of every record of one system that has one round, and each edit of it.

    Args:
        records: of one system.
        problems: by task and id.
        replay: plays a workflow.
        workers: those that a step may go to, by ordinal.
        options: what is taken away.
        on_progress: told how many replays are done, of how many.

    Raises:
        OpenConductorError: one whose fate is *stop*, raised by ``replay``; what runs is cancelled.
    """
    options = options or Options()
    kept = [one for one in records if len(one.workflows) == 1 and (one.task, one.problem) in problems]
    jobs = list(_jobs(kept, problems, workers, options))
    scores = await _play(jobs, replay, options.concurrency, on_progress)
    base: dict[int, float | None] = {}
    shuffled: list[_Scored] = []
    grouped: dict[tuple[str, EditKind, str], list[_Scored]] = {}
    for job, score in zip(jobs, scores, strict=True):
        record = kept[job.record]
        scored = ((record.task, record.problem), job.record, score)
        if job.edit is not None:
            for by, group in _groups(record.workflows[0], job.edit.step, workers):
                grouped.setdefault((by, job.edit.kind, group), []).append(scored)
        elif job.shuffled:
            shuffled.append(scored)
        else:
            base[job.record] = score
    unedited: dict[Key, list[float]] = {}
    for index, score in base.items():
        if score is not None:
            unedited.setdefault((kept[index].task, kept[index].problem), []).append(score)
    return Counterfactuals(
        records=len(kept),
        left_out=len(records) - len(kept),
        replays=len(jobs),
        undecided=sum(score is None for score in scores),
        unedited=estimate(unedited) if unedited else None,
        effects=_effects(grouped, base, options.seed),
        shuffled=_change(shuffled, base, options.seed),
    )


def _jobs(
    records: Sequence[Record], problems: Mapping[Key, Problem], workers: Mapping[int, str], options: Options
) -> Iterator[_Job]:
    places: dict[str, dict[str, list[int]]] = {}
    for index, record in enumerate(records):
        places.setdefault(record.task, {}).setdefault(record.problem, []).append(index)
        whole = _Job(index, problems[record.task, record.problem], record.workflows[0], record.sample)
        yield whole
        seed = f"{options.seed}/{record.task}/{record.problem}/{record.sample}"
        for edit in edits_of(whole.workflow, workers, seed=seed):
            changed = edited(whole.workflow, edit, told=solve(whole.problem.question))
            if changed is not None:
                yield replace(whole, workflow=changed, edit=edit)
    rng = random.Random(f"shuffle/{options.seed}")
    for task, questions in places.items():
        order = list(questions)
        rng.shuffle(order)  # each question gets the workflows of the next one
        for problem, giver in zip(order, [*order[1:], *order[:1]], strict=True):
            for place, index in enumerate(questions[problem] if problem != giver else ()):
                other = records[questions[giver][place % len(questions[giver])]].workflows[0]
                yield _Job(index, problems[task, problem], other, records[index].sample, shuffled=True)


def _groups(workflow: Workflow, step: int, workers: Mapping[int, str]) -> tuple[tuple[str, str], ...]:
    last = len(workflow) - 1
    place = "only" if not last else "last" if step == last else "first" if not step else "middle"
    ordinal = workflow.steps[step].worker
    worker = workers.get(ordinal, str(ordinal))
    return ("all", ""), ("position", place), ("topology", topology(workflow)), ("worker", worker)


async def _play(
    jobs: Sequence[_Job], replay: Replay, concurrency: int, on_progress: Callable[[int, int], None] | None
) -> list[float | None]:
    """The scores, in order; what is asked for twice is played once."""
    keys = [(id(job.problem), job.workflow, job.repeat) for job in jobs]
    waiting = dict(zip(keys, jobs, strict=True))
    left, total = iter(waiting.items()), len(waiting)
    found: dict[object, float | None] = {}

    async def lane() -> None:
        for key, job in left:  # all lanes draw from one iterator
            found[key] = await replay(job.problem, job.workflow, job.repeat)
            if on_progress is not None:
                on_progress(len(found), total)

    try:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(min(max(1, concurrency), total)):
                lanes.create_task(lane())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the first one ended it all
    return [found[key] for key in keys]


# ── the effects ──────────────────────────────────────────────────────────────────────────────────────────────────────
_Scored = tuple[Key, int, float | None]
"""A replay's question, its record and its score."""


def _effects(
    grouped: Mapping[tuple[str, EditKind, str], Sequence[_Scored]], base: Mapping[int, float | None], seed: int
) -> tuple[Effect, ...]:
    def order(name: tuple[str, EditKind, str]) -> tuple[str, int, int, str]:
        by, kind, group = name
        return by, EDIT_KINDS.index(kind), _PLACES.index(group) if group in _PLACES else 0, group

    changes = {name: _change(grouped[name], base, seed) for name in sorted(grouped, key=order)}
    found = [(name, change) for name, change in changes.items() if change is not None]
    adjusted = holm([change.p for _, change in found])
    return tuple(
        Effect(kind, by, group, change, p, len(grouped[by, kind, group]))
        for ((by, kind, group), change), p in zip(found, adjusted, strict=True)
    )


def _change(results: Iterable[_Scored], base: Mapping[int, float | None], seed: int) -> Difference | None:
    """The mean change over questions; a question's is the mean over its edits that were decided, both ways."""
    after: dict[Key, list[float]] = {}
    before: dict[Key, list[float]] = {}
    for key, record, score in results:
        unedited = base[record]
        if score is not None and unedited is not None:
            after.setdefault(key, []).append(score)
            before.setdefault(key, []).append(unedited)
    return difference(after, before, seed)
