"""Measure the worth of each step of a plan, by replays in which one thing is taken away.

``counterfactuals`` returns mean changes of accuracy by kind of edit, place of the step, topology
and worker, with paired intervals. A way to play is a ``Watch``: ``watch_pool`` plays over workers,
``watch_exactly`` computes what simulated ones come to.

Every edited workflow is compared with the unedited one, replayed in the same way, on the same
question and the same repeat. Records of several rounds are not replayed, and effects of two edits
together are not measured. A step whose loss changes nothing may still be worth something where
others fail.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from openconductor.evaluation.strategies import keep_steps
from openconductor.measures import topology
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext, Grader, OnEvent
from openconductor.tasks.simulated import find_simulation, instructions_for
from openconductor.types import Problem, Step, Workflow

Rounds = tuple[Workflow, ...]
"""The workflows of an episode, one a round, without those that only accept."""


class Seen(NamedTuple):
    """The score of a play in [0, 1] (None: undecided), and its answer ("": unknown)."""

    score: float | None
    answer: str = ""


Watch = Callable[[Problem, Rounds, int], Awaitable[Seen]]
"""Plays the rounds of a plan on a problem, for a repeat."""

EditKind = Literal["drop", "swap", "blind", "untold"]
"""An edit of one step.

- ``drop``: the step is left out. Steps that saw it see one step less; if it was the last, the one
  before it answers.
- ``swap``: another worker does it.
- ``blind``: its access list is emptied.
- ``untold``: its subtask is just to solve the question.
"""
EDIT_KINDS: tuple[EditKind, ...] = get_args(EditKind)
_PLACES = ("only", "first", "middle", "last")


# ── edits ─────────────────────────────────────────────────────────────────────────────────────────
def edits_of(
    workflow: Workflow, ordinals: Iterable[int], *, told: str, seed: str = ""
) -> Iterator[tuple[EditKind, int, Workflow]]:
    """Yield every edit of every step: the kind, the step, and the workflow then.

    Edits that leave no step, or change nothing, are left out.

    Args:
        workflow: the workflow.
        ordinals: the workers that a step may be swapped for.
        told: the subtask of an ``untold`` step.
        seed: draws the other worker of each swap.

    >>> chain = Workflow([Step(0, "Draft."), Step(0, "Check.", [0])])
    >>> [(kind, step, len(made)) for kind, step, made in edits_of(chain, [0], told="Draft.")]
    [('drop', 0, 1), ('drop', 1, 1), ('blind', 1, 2), ('untold', 1, 2)]
    """
    known = sorted(ordinals)
    for index, step in enumerate(workflow):
        if len(workflow) > 1:
            kept = [other for other in range(len(workflow)) if other != index]
            yield "drop", index, keep_steps(workflow, kept)
        others = [ordinal for ordinal in known if ordinal != step.worker]
        if others:
            worker = random.Random(f"swap/{seed}/{index}").choice(others)
            yield "swap", index, _with_step(workflow, index, replace(step, worker=worker))
        # "all" of the first step shows nothing of this workflow, so blinding it is no change.
        if workflow.visible(index):
            yield "blind", index, _with_step(workflow, index, replace(step, access=()))
        if step.subtask != told:
            yield "untold", index, _with_step(workflow, index, replace(step, subtask=told))


def _with_step(workflow: Workflow, index: int, step: Step) -> Workflow:
    """Return the workflow with another step at one place."""
    return Workflow((*workflow.steps[:index], step, *workflow.steps[index + 1 :]))


# ── results ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one kind of edit on accuracy.

    Attributes:
        by: the grouping of the steps: ``all``, ``position``, ``topology``, ``worker``.
        group: the group: ``first``, ``middle``, ``last``, ``only``; a topology; a worker's name; ""
            of all.
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
    """The effects of all edits.

    Attributes:
        records, left_out: records that were replayed, and not (no workflow, several rounds, an
            unknown problem).
        replays, undecided: workflows that were played, the unedited among them, and those of them
            that are left out as undecided.
        unedited: the accuracy of the unedited workflows, replayed.
        effects: by kind of edit, all steps first.
    """

    records: int
    left_out: int
    replays: int
    undecided: int
    unedited: Estimate | None
    effects: tuple[Effect, ...]

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        return asdict(self)


# ── ways to play ──────────────────────────────────────────────────────────────────────────────────
def watch_pool(
    pool: WorkerPool,
    grader: Callable[[Problem], Grader],
    *,
    sample: Callable[[Problem, int], int],
    budget: RunBudget | None = None,
    on_event: OnEvent | None = None,
) -> Watch:
    """Return a way to play over a pool's workers, whose answers are graded.

    Args:
        pool: the workers; with ``pool.replaying(journal)`` calls of before are free.
        grader: returns the grader of a problem.
        sample: returns the sample number of a problem's repeat.
        budget: pays for the calls.
        on_event: gets every event.
    """

    async def watch(problem: Problem, rounds: Rounds, repeat: int) -> Seen:
        context = CallContext(sample=sample(problem, repeat), budget=budget)
        live = LiveEpisode(pool, problem.question, context=context, on_event=on_event, spent="data")
        async with live.play():
            for workflow in rounds:
                answer = await live.answer_by(workflow, previous=live.answer)
                live.answer = live.answer if answer is None else answer
        outcome = await judge(problem, live.episode, grader(problem), repeat)
        score = None if outcome.correct is None else float(outcome.correct)
        text = live.episode.answer or ""
        if outcome.grade is not None and outcome.grade.extracted is not None:
            text = outcome.grade.extracted
        return Seen(score, text)

    return watch


async def watch_exactly(problem: Problem, rounds: Rounds, _repeat: int = 0) -> Seen:
    """Return the exact chance that the one round of a simulated task is right; None: unknown."""
    simulation = find_simulation(problem.task)
    if simulation is None:
        return Seen(None)
    (workflow,) = rounds
    return Seen(simulation.expected_accuracy(problem.question, workflow))


# ── the replays ───────────────────────────────────────────────────────────────────────────────────
class _Edit(NamedTuple):
    """A workflow that is played beside a record's own one."""

    record: Record
    workflow: Workflow
    kind: EditKind
    step: int


_Play = tuple[Key, Workflow, int]
"""A question, a workflow, and a repeat."""


async def counterfactuals(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    watch: Watch,
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
        watch: plays a workflow.
        workers: those that a step may go to, by ordinal.
        seed: of swaps and bootstraps.
        concurrency: the most replays at once.
        on_progress: told how many replays are done, of how many.

    Raises:
        OpenConductorError: an error of ``watch`` whose fate is *stop*; what runs is cancelled.
    """
    kept = [one for one in records if len(one.workflows) == 1 and one.key in problems]
    edits = list(_edits(kept, problems, workers, seed))
    own_plays = [_play(record, record.workflows[0]) for record in kept]
    edited_plays = [_play(edit.record, edit.workflow) for edit in edits]
    plays = own_plays + edited_plays
    distinct = dict.fromkeys(plays)  # an equal workflow is played once
    scores: dict[_Play, float | None] = {}

    async def play(one: _Play) -> None:
        key, workflow, repeat = one
        seen = await watch(problems[key], (workflow,), repeat)
        scores[one] = seen.score
        if on_progress is not None:
            on_progress(len(scores), len(distinct))

    await for_each(distinct, play, limit=max(1, concurrency))
    own_scores = grouped((one[0], scores[one]) for one in own_plays)
    return Counterfactuals(
        records=len(kept),
        left_out=len(records) - len(kept),
        replays=len(plays),
        undecided=sum(scores[one] is None for one in plays),
        unedited=estimate(own_scores) if own_scores else None,
        effects=_effects(edits, scores, workers, seed),
    )


def _play(record: Record, workflow: Workflow) -> _Play:
    return record.key, workflow, record.sample


def _change(
    edits: Iterable[_Edit], scores: Mapping[_Play, float | None], seed: int
) -> Difference | None:
    """Return the mean change over questions.

    A question's change is the mean over its edits that were decided both ways.
    """
    before: list[tuple[Key, float]] = []
    after: list[tuple[Key, float]] = []
    for edit in edits:
        own = scores[_play(edit.record, edit.record.workflows[0])]
        edited = scores[_play(edit.record, edit.workflow)]
        if own is not None and edited is not None:
            before.append((edit.record.key, own))
            after.append((edit.record.key, edited))
    return difference(grouped(after), grouped(before), seed)


def _effects(
    edits: Iterable[_Edit],
    scores: Mapping[_Play, float | None],
    workers: Mapping[int, str],
    seed: int,
) -> tuple[Effect, ...]:
    """Return the effect of each kind of edit on each group of steps."""
    groups: dict[tuple[str, EditKind, str], list[_Edit]] = {}
    for edit in edits:
        for by, group in _groups(edit, workers).items():
            groups.setdefault((by, edit.kind, group), []).append(edit)
    changes: dict[tuple[str, EditKind, str], Difference] = {}
    for name in sorted(groups, key=_order):
        change = _change(groups[name], scores, seed)
        if change is not None:
            changes[name] = change
    adjusted = holm([change.p for change in changes.values()])
    effects: list[Effect] = []
    for (name, change), p_holm in zip(changes.items(), adjusted, strict=True):
        by, kind, group = name
        edited = len(groups[name])
        effects.append(Effect(kind, by, group, change, p_holm, edited))
    return tuple(effects)


def _groups(edit: _Edit, workers: Mapping[int, str]) -> dict[str, str]:
    """Return the groups that an edited step belongs to, by the grouping."""
    workflow = edit.record.workflows[0]
    last = len(workflow) - 1
    if last == 0:
        position = "only"
    elif edit.step == last:
        position = "last"
    elif edit.step == 0:
        position = "first"
    else:
        position = "middle"
    ordinal = workflow.steps[edit.step].worker
    return {
        "all": "",
        "position": position,
        "topology": topology(workflow),
        "worker": workers.get(ordinal, str(ordinal)),
    }


def _order(name: tuple[str, EditKind, str]) -> tuple[str, int, int, str]:
    by, kind, group = name
    place = _PLACES.index(group) if by == "position" else 0
    return by, EDIT_KINDS.index(kind), place, group


def _edits(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    workers: Mapping[int, str],
    seed: int,
) -> Iterator[_Edit]:
    """Yield each record with one step changed."""
    for record in records:
        workflow = record.workflows[0]
        question = problems[record.key].question
        told = instructions_for(question).solve(question)
        draw = f"{seed}/{record.task}/{record.problem}/{record.sample}"
        for kind, step, changed in edits_of(workflow, workers, told=told, seed=draw):
            yield _Edit(record, changed, kind, step)
