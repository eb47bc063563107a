"""The curve of a training: a record of each iteration, and warnings about what it shows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

from openconductor.errors import WorkflowError, WorkflowReason
from openconductor.measures import entropy_bits, topology
from openconductor.parser import trailing_text
from openconductor.pool import WorkerPool
from openconductor.reward import Scored, answered_dollars, count_answers
from openconductor.store.storage import write_whole
from openconductor.tasks.simulated import SIMULATIONS
from openconductor.types import Problem, Workflow

Record = dict[str, Any]
"""Names and numbers that are written as JSON."""
WINDOW = 20
"""The iterations that a warning looks back."""
_RISE = 0.02  # from one window's mean to the next; less is noise
_GROWTH = 1.25  # of completions from one window to the next
_TRAILING = 0.1  # more completions that go on after their plan than in the window before
_TOLD_APART = {*SIMULATIONS, "specialists"}
"""The tasks whose kinds of question want plans of different shapes."""


def kind_of(problem: Problem, *, again: bool = False) -> str:
    """Return the group of a problem in curves: the kind where shapes depend on it, else the task.

    ``again``: of a second round.
    """
    kind = problem.kind if problem.task in _TOLD_APART else problem.task
    return f"{kind}, again" if again else kind


def is_undecided(scored: Scored) -> bool:
    """Return True if the grader could not decide, whatever the recipe counts that as."""
    return scored.grade is not None and scored.grade.note.startswith("undecided")


class _PlannedStep(NamedTuple):
    """A step of a plan, with the name of its worker."""

    kind: str
    subtask: str
    worker: str


# ── records ───────────────────────────────────────────────────────────────────────────────────────
def measure(
    kinds: Sequence[str], scored: Sequence[Scored], pools: Sequence[WorkerPool], *, group: int = 1
) -> Record:
    """Measure the completions of an iteration or an evaluation.

    Args:
        kinds: the kind of each completion's question.
        scored: the completions, as they were scored.
        pools: all workers, under the ordinals that each completion was shown.
        group: neighbours that belong to one question. With imitation in recursion the second rounds
            of a group may be of several questions.

    Returns:
        Shares of the decided completions; ``accuracy_given_valid`` is None if none is valid.
    """
    decided: list[tuple[str, Scored]] = []
    workflows: list[tuple[str, Workflow]] = []
    steps: list[_PlannedStep] = []
    tokens: list[int] = []
    right = valid = truncated = trailing = answers = 0
    for kind, result, pool in zip(kinds, scored, pools, strict=True):
        if result.correct is None:
            continue
        decided.append((kind, result))
        right += result.correct
        merging = [ordinal for ordinal, worker in pool if worker.resolved.merges]
        answers += count_answers(result.episode, merging)
        error = result.episode.error
        if not isinstance(error, WorkflowError):
            valid += 1
        elif error.reason is WorkflowReason.TRUNCATED:
            truncated += 1
        if not result.episode.rounds:
            continue
        played = result.episode.rounds[-1]
        if played.completion is not None:
            tokens.append(played.completion.usage.output_tokens)
            trailing += bool(trailing_text(played.completion.text))
        if played.workflow is not None:
            workflows.append((kind, played.workflow))
            for step in played.workflow:
                steps.append(_PlannedStep(kind, step.subtask, pool.names[step.worker]))
    steps_by_kind: dict[str, list[_PlannedStep]] = defaultdict(list)
    for step in steps:
        steps_by_kind[step.kind].append(step)
    rewards = [result.reward for result in scored if result.reward is not None]
    undecided = sum(is_undecided(result) for result in scored)
    dollars = sum(answered_dollars(result.episode) for _, result in decided)
    workers = Counter(step.worker for step in steps)
    names = pools[0].names.values() if pools else ()
    shares = {name: workers[name] / max(1, len(steps)) for name in names}
    entropies = {kind: _entropy_by_subtask(steps_by_kind[kind]) for kind in sorted(steps_by_kind)}
    topologies = Counter(topology(workflow) for _, workflow in workflows)
    lengths = [(kind, len(workflow)) for kind, workflow in workflows]
    solved = [(kind, float(result.correct is True)) for kind, result in decided]
    count = max(1, len(decided))
    return {
        "rollouts": len(scored),
        "masked": len(scored) - len(rewards),
        "reward": sum(rewards) / max(1, len(rewards)),
        "validity": valid / count,
        "accuracy": right / count,
        "accuracy_given_valid": right / valid if valid else None,
        "truncated": truncated / count,
        "completion_tokens": sum(tokens) / max(1, len(tokens)),
        "trailing_text": trailing / count,
        "undecided": undecided / max(1, len(scored)),
        "dollars": dollars / count,
        "answers": answers / count,
        "groups_without_spread": _share_without_spread(scored, group),
        "routing_entropy_bits": entropy_bits(workers.values()),
        "routing_entropy_by_subtask_bits": _entropy_by_subtask(steps),
        "routing_entropy_by_kind_bits": entropies,
        "worker_share": shares,
        "topology": dict(topologies),
        "steps_by_kind": _means(lengths),
        "accuracy_by_kind": _means(solved),
    }


def _share_without_spread(scored: Sequence[Scored], group: int) -> float:
    """Return the share of groups that teach nothing, because all their rewards are the same."""
    starts = range(0, len(scored), group)
    without = 0
    for start in starts:
        members = scored[start : start + group]
        rewards = {result.reward for result in members if result.reward is not None}
        without += len(rewards) < 2
    return without / max(1, len(starts))


def _entropy_by_subtask(steps: Sequence[_PlannedStep]) -> float:
    """Return how open it is who does a given subtask: the mean over the steps, in bits."""
    by_subtask: dict[str, Counter[str]] = defaultdict(Counter)
    for step in steps:
        by_subtask[step.subtask][step.worker] += 1
    total = sum(entropy_bits(counts.values()) * counts.total() for counts in by_subtask.values())
    return total / max(1, len(steps))


def _means(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for kind, value in values:
        by_kind[kind].append(value)
    return {kind: fmean(by_kind[kind]) for kind in sorted(by_kind)}


def scalars(record: Record) -> dict[str, float]:
    """Return the numbers of a record by name; those of a table as ``table/name``."""
    numbers: dict[str, float] = {}
    for name, value in record.items():
        parts = {name: value}
        if isinstance(value, dict):
            parts = {f"{name}/{key}": part for key, part in cast("Record", value).items()}
        numbers |= {key: part for key, part in parts.items() if isinstance(part, int | float)}
    return numbers


def read_record(path: Path) -> Record:
    """Return the record that a file of the run holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_record(path: Path, record: Record) -> None:
    """Write a record as a file of the run, whole or not at all."""
    write_whole(path, json.dumps(record, indent=2) + "\n")


# ── curves ────────────────────────────────────────────────────────────────────────────────────────
def read_curve(path: Path) -> list[Record]:
    """Return the records of a curve, up to a line that a kill left unfinished.

    []: no file.
    """
    records: list[Record] = []
    if not path.is_file():
        return records
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


@dataclass(slots=True)
class Curve:
    """An append-only file of records; a resumed run drops those after its checkpoint.

    Attributes:
        path: the file.
        records: all records in it.
        after: rounds of imitation before GRPO, whose iterations are counted on from there.
    """

    path: Path
    records: list[Record] = field(default_factory=list[Record])
    after: int = 0

    @classmethod
    def open(cls, path: Path, *, done: int, after: int = 0) -> Curve:
        """Open the curve of a phase after ``done`` iterations; later records are cut off."""
        records = read_curve(path)[: after + done]
        lines = [json.dumps(record) + "\n" for record in records]
        write_whole(path, "".join(lines))
        return cls(path, records, after)

    def append(self, record: Record) -> list[str]:
        """Append a record; return the warnings that it gives rise to."""
        from openconductor.training.checkpoint import storing  # here, because it needs torch

        self.records.append(record)
        with storing(self.path), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
        if record.get("phase") == "imitate":
            return []
        return warnings(self.records[self.after :])


def warnings(records: Sequence[Record]) -> list[str]:
    """Return what is worrying in the last window of a curve; [] within a window."""
    if len(records) < 2 * WINDOW or len(records) % WINDOW:
        return []
    before = records[-2 * WINDOW : -WINDOW]
    latest = records[-WINDOW:]
    messages: list[str] = []
    valid_before = _mean(before, "validity")
    valid = _mean(latest, "validity")
    # Without a valid workflow in both windows nothing is known about accuracy given valid.
    if valid_before > 0 and valid > valid_before + _RISE:
        right_before = _mean(before, "accuracy_given_valid")
        right = _mean(latest, "accuracy_given_valid")
        if right <= right_before + _RISE:
            messages.append(
                f"validity rises ({valid_before:.2f} -> {valid:.2f}) while accuracy given valid "
                f"does not ({right_before:.2f} -> {right:.2f}): format is being learnt, not "
                "orchestration"
            )
    entropy = _mean(latest, "routing_entropy_bits")
    if entropy < 0.5 <= _mean(before, "routing_entropy_bits"):
        messages.append(
            f"routing entropy fell to {entropy:.2f} bits: routing is collapsing onto one worker"
        )
    if _mean(latest, "groups_without_spread") > 0.9:
        messages.append(
            "more than 90 % of the groups have no spread of rewards: there is little left to learn "
            "from"
        )
    length_before, length = _mean(before, "completion_tokens"), _mean(latest, "completion_tokens")
    right_before, right = _mean(before, "accuracy"), _mean(latest, "accuracy")
    if 0 < length_before * _GROWTH < length and right <= right_before + _RISE:
        messages.append(
            f"completions grow from {length_before:.0f} to {length:.0f} tokens while accuracy does "
            f"not rise ({right_before:.2f} -> {right:.2f})"
        )
    trailing_before, trailing = _mean(before, "trailing_text"), _mean(latest, "trailing_text")
    if trailing > min(0.5, trailing_before + _TRAILING):
        messages.append(
            f"after {trailing:.0%} of the plans the text goes on ({trailing_before:.0%} before), "
            'and nothing teaches the model to stop; reward.trailing_text = "invalid" does'
        )
    return messages


def _mean(records: Sequence[Record], key: str) -> float:
    """Return the mean of a measure; 0: a curve of an earlier version lacks it."""
    known = [record[key] for record in records if record.get(key) is not None]
    return fmean(known) if known else 0.0
