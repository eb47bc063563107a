"""What a training has learnt: its curve and its model card.

In: the problems of an iteration and how their completions were scored. Out: a record (validity,
accuracy, accuracy given valid, shares, entropies, steps, topologies, groups without spread,
truncation) appended to ``curves.jsonl``, and warnings when validity rises and accuracy given valid
does not (format only), or routing collapses onto one worker.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from openconductor.errors import WorkflowError, WorkflowReason
from openconductor.measures import entropy_bits, topology
from openconductor.pool import WorkerPool
from openconductor.reward import Scored, answered_dollars
from openconductor.store.storage import write_whole
from openconductor.tasks.simulated import SIMULATIONS
from openconductor.training.checkpoint import storing
from openconductor.training.rollout import is_undecided
from openconductor.training.train_config import load_train_config
from openconductor.types import Problem, Step

Record = dict[str, Any]
"""What is written as JSON: names and numbers."""
_WINDOW = 20  # iterations a warning looks back
_RISE = 0.02  # from one window's mean to the next; less is noise


def kind_of(problem: Problem, *, again: bool = False) -> str:
    """Return the group of a problem in curves: the kind in a simulated task, elsewhere the task.

    ``again``: of a second round.
    """
    kind = problem.kind if problem.task in SIMULATIONS else problem.task
    return f"{kind}, again" if again else kind


def measure(
    kinds: Sequence[str], scored: Sequence[Scored], pool: WorkerPool, *, group: int = 1
) -> Record:
    """Measure what was scored (an iteration, or an evaluation); neighbours of ``group`` belong to one question.

    ``kinds`` says of which kind each question is. ``accuracy_given_valid`` is None where no
    workflow is valid. With imitation in recursion, ``group`` second rounds may be of several
    questions: ``groups_without_spread`` is then about first rounds only in part.
    """
    played = [
        (kind, one) for kind, one in zip(kinds, scored, strict=True) if one.correct is not None
    ]
    rewards = [one.reward for one in scored if one.reward is not None]
    workflows = [
        (kind, workflow)
        for kind, one in played
        if one.episode.rounds and (workflow := one.episode.rounds[-1].workflow) is not None
    ]
    right = sum(one.correct is True for _, one in played)
    valid = sum(not isinstance(one.episode.error, WorkflowError) for _, one in played)
    count = max(1, len(played))
    steps = [step for _, workflow in workflows for step in workflow]
    workers = Counter(step.worker for step in steps)
    groups = [scored[start : start + group] for start in range(0, len(scored), group)]
    errors = [one.episode.error for _, one in played]
    cut = sum(
        isinstance(error, WorkflowError) and error.reason is WorkflowReason.TRUNCATED
        for error in errors
    )
    by_kind: dict[str, list[Step]] = defaultdict(list)
    for kind, workflow in workflows:
        by_kind[kind] += workflow
    return {
        "rollouts": len(scored),
        "masked": len(scored) - len(rewards),
        "reward": sum(rewards) / max(1, len(rewards)),
        "validity": valid / count,
        "accuracy": right / count,
        "accuracy_given_valid": right / valid if valid else None,
        "truncated": cut / count,
        "undecided": sum(is_undecided(one) for one in scored) / max(1, len(scored)),
        "dollars": sum(answered_dollars(one.episode) for _, one in played) / count,
        "groups_without_spread": sum(
            len({one.reward for one in members} - {None}) < 2 for members in groups
        )
        / max(1, len(groups)),
        "routing_entropy_bits": entropy_bits(workers.values()),
        "routing_entropy_by_subtask_bits": _entropy_by_subtask(steps),
        "routing_entropy_by_kind_bits": {
            kind: _entropy_by_subtask(each) for kind, each in sorted(by_kind.items())
        },
        "worker_share": {
            worker.name: workers[ordinal] / max(1, len(steps)) for ordinal, worker in pool
        },
        "topology": dict(Counter(topology(workflow) for _, workflow in workflows)),
        "steps_by_kind": _means((kind, len(workflow)) for kind, workflow in workflows),
        "accuracy_by_kind": _means((kind, float(one.correct is True)) for kind, one in played),
    }


def _entropy_by_subtask(steps: Sequence[Step]) -> float:
    """How open it is who does a given subtask, in bits: the mean over the steps of its subtask's entropy."""
    by_subtask: dict[str, Counter[int]] = defaultdict(Counter)
    for step in steps:
        by_subtask[step.subtask][step.worker] += 1
    return sum(entropy_bits(each.values()) * each.total() for each in by_subtask.values()) / max(
        1, len(steps)
    )


def _means(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for kind, value in values:
        by_kind[kind].append(value)
    return {kind: fmean(of_kind) for kind, of_kind in sorted(by_kind.items())}


def read_curve(path: Path) -> list[Record]:
    """The records of a curve, up to a line that a kill left unfinished; none where there is no file yet."""
    records: list[Record] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


@dataclass(slots=True)
class Curve:
    """An append-only file of records; a resumed run drops what came after its checkpoint.

    ``after`` counts the rounds of imitation before GRPO: a record's ``iteration`` counts on from
    there.
    """

    path: Path
    records: list[Record] = field(default_factory=list[Record])
    after: int = 0

    @classmethod
    def open(cls, path: Path, *, done: int, after: int = 0) -> Curve:
        """Open the curve of a phase that has done ``done`` iterations; later records are cut off."""
        records = read_curve(path)[: after + done]
        write_whole(path, "".join(json.dumps(record) + "\n" for record in records))
        return cls(path, records, after)

    def append(self, record: Record) -> list[str]:
        """Append a record; returns the warnings that it gives rise to."""
        self.records.append(record)
        with storing(self.path), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
        return warnings(self.records[self.after :]) if record.get("phase") != "imitate" else []


def warnings(records: Sequence[Record]) -> list[str]:
    """What the last window of a curve should make one worry about; looked at once a window."""
    if len(records) < 2 * _WINDOW or len(records) % _WINDOW:
        return []
    windows = records[-2 * _WINDOW : -_WINDOW], records[-_WINDOW:]

    def means(key: str) -> list[float]:
        return [
            fmean(value for record in window if (value := record[key]) is not None)
            for window in windows
        ]

    found: list[str] = []
    valid, entropy = means("validity"), means("routing_entropy_bits")
    # Only where each window holds a valid workflow; where one holds none, nothing is known of its
    # skill.
    if valid[0] > 0 and valid[1] > valid[0] + _RISE:
        right = means("accuracy_given_valid")
        if right[1] <= right[0] + _RISE:
            found.append(
                f"validity rises ({valid[0]:.2f} -> {valid[1]:.2f}) while accuracy given valid does not "
                f"({right[0]:.2f} -> {right[1]:.2f}): format is being learnt, not orchestration"
            )
    if entropy[1] < 0.5 <= entropy[0]:
        found.append(
            f"routing entropy fell to {entropy[1]:.2f} bits: routing is collapsing onto one worker"
        )
    if means("groups_without_spread")[1] > 0.9:
        found.append(
            "more than 90 % of the groups have no spread of rewards: there is little left to learn from"
        )
    return found


_SERVED = {
    True: """Served by
`vllm serve FOLDER` or `transformers serve FOLDER`, it is a provider: `openai_compatible:FOLDER` with the server's
`base_url`, its prompt, and temperature 0.""",
    False: """It is not for
vLLM and `transformers serve`: they would split its text as Qwen's tokenizers do, not as its own does.""",
}


# ── the model card ────────────────────────────────────────────────────────────────────────────────
def model_card(run: Path, results: Record, *, served: bool) -> str:
    """What a reader of an exported Conductor should know, in Markdown; ``served``: servers split as it does."""
    config = load_train_config(run / "config.toml")
    curve = read_curve(run / "curves.jsonl")
    curve = [record for record in curve if record["phase"] == curve[-1]["phase"]]
    told = json.loads((run / "conductor" / "conductor.json").read_text(encoding="utf-8"))
    base = config.model.base or "a fresh model"
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [openconductor, orchestration, grpo]
---
# {config.name}

A Conductor: for each question it writes a workflow over numbered workers. It was trained by OpenConductor from {base}
on {config.data.task} over the pool `{config.pool}`, seed {config.seed}. It plans only for workers in the places that
they had in that pool.

## What it reached

Held out: {config.held_out.questions} questions at most of {", ".join(config.held_out.tasks) or config.data.task}.
One seed proves little: compare several before you rely on a figure.

{_phases(results)}

## Curve

{_ends(curve)}

## How to ask it

`openconductor ask --conductor FOLDER --pool POOL.toml "…"` loads this folder in process. {_SERVED[served]}
The prompt that it was trained with:

```json
{json.dumps(told["prompt"], indent=2)}
```

At most {told["max_tokens"]} tokens and {told["max_steps"]} steps.

## Recipe

```toml
{(run / "config.toml").read_text(encoding="utf-8").strip()}
```
"""


def _phases(results: Record) -> str:
    rows = ["| | accuracy | given valid | validity |", "|---|---|---|---|"]
    for key, name in (
        ("start", "before rewards"),
        ("sampled", "sampled at temperature 1"),
        ("greedy", "greedy"),
    ):
        shares = [
            _percent(results[key][measure])
            for measure in ("accuracy", "accuracy_given_valid", "validity")
        ]
        rows.append(f"| {name} | {' | '.join(shares)} |")
    return "\n".join(rows)


def _ends(curve: list[Record]) -> str:
    window = max(
        1, min(_WINDOW, len(curve) // 4)
    )  # the two ends of a short training must not be the same
    rows = [f"| | first {window} iterations | last {window} |", "|---|---|---|"]
    for measure in ("validity", "accuracy", "routing_entropy_bits", "masked"):
        ends = [
            fmean(record[measure] for record in part) for part in (curve[:window], curve[-window:])
        ]
        rows.append(f"| {measure.replace('_', ' ')} | {ends[0]:.3f} | {ends[1]:.3f} |")
    return "\n".join(rows)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
