"""What each step of a plan is worth: the same question again, with one thing taken away, and what becomes of it.

In: the records of a system, their problems, and a way to replay a workflow. Out: Counterfactuals: mean changes of
accuracy by kind of edit, place of the step, topology and worker, with paired intervals; and what becomes of a system
whose workflows are dealt out among other questions.

Every edited workflow is compared with the unedited one, replayed in the same way, on the same question and the same
repeat. What a replay costs is up to who offers it: calls that a journal holds are not made again.

Not covered: recursion (of a record with several rounds nothing is replayed), and effects of two edits together. A step
whose loss changes nothing may still be worth something where others fail, so effects do not add up to the accuracy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from openconductor.baselines.instructions import solve
from openconductor.episode import Stage
from openconductor.errors import GradingError
from openconductor.evaluation.edits import EDIT_KINDS, Edit, EditKind, Swap, edited, edits_of
from openconductor.evaluation.headroom import estimate
from openconductor.evaluation.records import Record
from openconductor.evaluation.run import Outcome
from openconductor.evaluation.statistics import Difference, Estimate, Key, difference, holm
from openconductor.gym.exact import expected_accuracy
from openconductor.gym.questions import read_question
from openconductor.measures import topology
from openconductor.pool import WorkerPool
from openconductor.protocols import Grader, OnEvent
from openconductor.types import Budget, Problem, Workflow

Replay = Callable[[Problem, Workflow, int], Awaitable[float | None]]
"""Plays a workflow on a problem, for a repeat: its score in [0, 1], or None where that could not be decided."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is taken away, and how.

    Attributes:
        kinds: the kinds of edit.
        swap: for which workers a step's own is swapped.
        shuffle: whether workflows are also dealt out among the other questions of their task.
        seed: of swaps, shuffles and bootstraps.
        concurrency: the most replays at once.
    """

    kinds: Sequence[EditKind] = EDIT_KINDS
    swap: Swap = "random"
    shuffle: bool = True
    seed: int = 0
    concurrency: int = 64


@dataclass(frozen=True, slots=True)
class Effect:
    """What one kind of edit does to accuracy.

    Attributes:
        kind: what was taken away.
        by: what the steps are grouped by: ``all``, ``position``, ``topology``, ``worker``.
        group: which group: ``first``, ``middle``, ``last``, ``only``; a topology; a worker's name; "" of all.
        change: edited less unedited, so what helps has a negative change.
        p_holm: its p-value, adjusted for all effects that are looked at together.
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
        records: how many records were replayed.
        left_out: how many were not: no workflow, several rounds, or a problem that is not there.
        replays: how many workflows were played, the unedited among them.
        undecided: how many of these could not be decided; they are left out.
        unedited: the accuracy of the unedited workflows, replayed.
        effects: by kind of edit, all steps first.
        shuffled: accuracy with another question's workflow less with the own one; None where that was not asked for,
            or there is no other question.
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
    """Replay over a pool's workers, graded; what a journal holds is free where the pool answers from it.

    Args:
        pool: the workers (``pool.replaying(journal)`` makes them answer from a journal).
        grader: the judge of a problem.
        budget: what one replay may cost; where it is spent, the workflow counts as wrong, as in an evaluation.
        on_event: gets the events: a journal, so that the new calls are kept.
        sample: the sample number of a problem's repeat; the repeat itself by default.
    """

    async def replay(problem: Problem, workflow: Workflow, repeat: int) -> float | None:
        number = repeat if sample is None else sample(problem, repeat)
        stage = Stage(pool, problem.question, sample=number, on_event=on_event, spent="data")
        episode = await stage.play(lambda stage: stage.answer_by(workflow), budget)
        grade = None
        if episode.answer is not None:
            try:
                grade = await grader(problem).grade(problem, episode.answer)
            except GradingError:
                grade = None
        correct = Outcome(problem, episode, grade, repeat).correct
        return None if correct is None else float(correct)

    return replay


async def exact_replay(problem: Problem, workflow: Workflow, _repeat: int = 0) -> float | None:
    """In the gym: the chance that the workflow is right, exact and free. None of a problem that is not the gym's."""
    question = read_question(problem.question)
    return None if question is None else expected_accuracy(question, workflow)


# ── the replays ──────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Place:
    """What a replayed edit belongs to."""

    key: Key
    record: int
    edit: Edit | None
    groups: tuple[tuple[str, str], ...] = ()


async def counterfactuals(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    replay: Replay,
    workers: Mapping[int, str],
    *,
    options: Options | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Counterfactuals:
    """Replay every record's workflow, and each edit of it.

    Args:
        records: of one system; those with one round and a workflow are replayed.
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
    scores = await _play(
        [(problem, workflow, repeat) for _, problem, workflow, repeat in jobs], replay, options, on_progress
    )
    results = [(place, score) for (place, *_), score in zip(jobs, scores, strict=True)]
    base = {place.record: score for place, score in results if place.edit is None and not place.groups}
    unedited: dict[Key, list[float]] = {}
    for index, record in enumerate(kept):
        score = base[index]
        if score is not None:
            unedited.setdefault((record.task, record.problem), []).append(score)
    shuffled = [(place, score) for place, score in results if place.groups == _SHUFFLED]
    return Counterfactuals(
        records=len(kept),
        left_out=len(records) - len(kept),
        replays=len(jobs),
        undecided=sum(score is None for score in scores),
        unedited=estimate(unedited) if unedited else None,
        effects=_effects([one for one in results if one[0].edit is not None], base, options.seed),
        shuffled=_change(shuffled, base, options.seed),
    )


_SHUFFLED = (("shuffled", ""),)


def _jobs(
    records: Sequence[Record], problems: Mapping[Key, Problem], workers: Mapping[int, str], options: Options
) -> Iterator[tuple[_Place, Problem, Workflow, int]]:
    for index, record in enumerate(records):
        key = (record.task, record.problem)
        problem, workflow = problems[key], record.workflows[0]
        yield _Place(key, index, None), problem, workflow, record.sample
        seed = f"{options.seed}/{record.task}/{record.problem}/{record.sample}"
        for edit in edits_of(workflow, list(workers), kinds=options.kinds, swap=options.swap, seed=seed):
            changed = edited(workflow, edit, plain=solve(problem.question))
            if changed is not None:
                yield _Place(key, index, edit, _groups(workflow, edit.step, workers)), problem, changed, record.sample
    if options.shuffle:
        for index, other in _dealt(records, options.seed):
            record = records[index]
            key = (record.task, record.problem)
            yield _Place(key, index, None, _SHUFFLED), problems[key], records[other].workflows[0], record.sample


def _groups(workflow: Workflow, step: int, workers: Mapping[int, str]) -> tuple[tuple[str, str], ...]:
    last = len(workflow) - 1
    place = "only" if not last else "last" if step == last else "first" if not step else "middle"
    ordinal = workflow.steps[step].worker
    worker = workers.get(ordinal, str(ordinal))
    return ("all", ""), ("position", place), ("topology", topology(workflow)), ("worker", worker)


def _dealt(records: Sequence[Record], seed: int) -> Iterator[tuple[int, int]]:
    """Whose workflow each record gets: another question's of the same task, each workflow used once."""
    by_task: dict[str, dict[str, list[int]]] = {}
    for index, record in enumerate(records):
        by_task.setdefault(record.task, {}).setdefault(record.problem, []).append(index)
    rng = random.Random(f"shuffle/{seed}")
    for questions in by_task.values():
        order = list(questions)
        rng.shuffle(order)
        for problem, giver in zip(order, [*order[1:], *order[:1]], strict=True):
            if problem != giver:
                for place, index in enumerate(questions[problem]):
                    yield index, questions[giver][place % len(questions[giver])]


async def _play(
    jobs: Sequence[tuple[Problem, Workflow, int]],
    replay: Replay,
    options: Options,
    on_progress: Callable[[int, int], None] | None,
) -> list[float | None]:
    """The scores, in order; what is asked for twice is played once."""
    keys = [(id(problem), workflow, repeat) for problem, workflow, repeat in jobs]
    waiting = iter(dict(zip(keys, jobs, strict=True)).items())
    found: dict[object, float | None] = {}
    total = len(set(keys))

    async def lane() -> None:
        for key, (problem, workflow, repeat) in waiting:  # all lanes draw from one iterator
            found[key] = await replay(problem, workflow, repeat)
            if on_progress is not None:
                on_progress(len(found), total)

    try:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(min(max(1, options.concurrency), total)):
                lanes.create_task(lane())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the first one ended it all
    return [found[key] for key in keys]


# ── the effects ──────────────────────────────────────────────────────────────────────────────────────────────────────
Result = tuple[_Place, float | None]


def _effects(results: Sequence[Result], base: Mapping[int, float | None], seed: int) -> tuple[Effect, ...]:
    grouped: dict[tuple[EditKind, str, str], list[Result]] = {}
    for place, score in results:
        assert place.edit is not None
        for by, group in place.groups:
            grouped.setdefault((place.edit.kind, by, group), []).append((place, score))
    order = {by: rank for rank, by in enumerate(("all", "position", "topology", "worker"))}
    names = sorted(grouped, key=lambda one: (order[one[1]], EDIT_KINDS.index(one[0]), _rank(one[2]), one[2]))
    found = [
        (name, change, len(grouped[name]))
        for name in names
        if (change := _change(grouped[name], base, seed)) is not None
    ]
    adjusted = holm([change.p for _, change, _ in found])
    return tuple(
        Effect(kind, by, group, change, p, count)
        for ((kind, by, group), change, count), p in zip(found, adjusted, strict=True)
    )


def _rank(group: str) -> int:
    """Positions in their order."""
    places = ("only", "first", "middle", "last")
    return places.index(group) if group in places else 0


def _change(results: Iterable[Result], base: Mapping[int, float | None], seed: int) -> Difference | None:
    """The mean change over questions; a question's is the mean over its edits that were decided, both ways."""
    with_edit: dict[Key, list[float]] = {}
    without: dict[Key, list[float]] = {}
    for place, score in results:
        before = base[place.record]
        if score is not None and before is not None:
            with_edit.setdefault(place.key, []).append(score)
            without.setdefault(place.key, []).append(before)
    return difference(
        {key: [fmean(of_one)] for key, of_one in with_edit.items()},
        {key: [fmean(of_one)] for key, of_one in without.items()},
        seed,
    )
