"""What trainings have learnt: the curve of one, its model card, and a study of the same recipe over several seeds.

In: the problems of an iteration and how their completions were scored. Out: a record (validity, accuracy, accuracy
given valid, shares, entropies, steps, topologies, groups without spread, truncation) appended to ``curves.jsonl``, and
warnings when validity rises and accuracy given valid does not (format only), or routing collapses onto one worker. Of
several seeds: one run folder a seed, one a control that must not learn, and ``study.json``: what each reached on
held-out questions against the reference levels of the same questions. Runs go on side by side as processes of their
own, one thread each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from openconductor.errors import ConfigError, OpenConductorError, WorkflowError, WorkflowReason
from openconductor.gym.levels import reference_levels
from openconductor.gym.questions import draw_questions
from openconductor.measures import entropy_bits, topology
from openconductor.pool import WorkerPool
from openconductor.reward import Scored
from openconductor.storage import write_whole
from openconductor.training.checkpoint import storing
from openconductor.training.examples import HELD_OUT_SEED
from openconductor.training.rollout import is_undecided
from openconductor.training.train_config import TrainConfig, differences, dump_train_config, load_train_config
from openconductor.types import Problem

Record = dict[str, Any]
"""What is written as JSON: names and numbers."""
_WINDOW = 20  # iterations a warning looks back
_RISE = 0.02  # from one window's mean to the next; less is noise


def kind_of(problem: Problem) -> str:
    """What curves break results down by: the gym's kinds, elsewhere the task."""
    return problem.kind if problem.task == "gym" else problem.task


def measure(problems: Sequence[Problem], scored: Sequence[Scored], pool: WorkerPool, *, group: int = 1) -> Record:
    """Measure what was scored (an iteration, or an evaluation); neighbours of ``group`` belong to one question.

    ``accuracy_given_valid`` is None where no workflow is valid.
    """
    played = [(kind_of(problem), one) for problem, one in zip(problems, scored, strict=True) if one.reward is not None]
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
    by_subtask: dict[str, Counter[int]] = defaultdict(Counter)
    for step in steps:
        by_subtask[step.subtask][step.worker] += 1
    groups = [scored[start : start + group] for start in range(0, len(scored), group)]
    errors = [one.episode.error for _, one in played]
    cut = sum(isinstance(error, WorkflowError) and error.reason is WorkflowReason.TRUNCATED for error in errors)
    entropies = [entropy_bits(counts.values()) * counts.total() for counts in by_subtask.values()]
    return {
        "rollouts": len(scored),
        "masked": len(scored) - len(played),
        "reward": sum(one.reward or 0.0 for _, one in played) / count,
        "validity": valid / count,
        "accuracy": right / count,
        "accuracy_given_valid": right / valid if valid else None,
        "truncated": cut / count,
        "undecided": sum(is_undecided(one) for one in scored) / max(1, len(scored)),
        "groups_without_spread": sum(len({one.reward for one in members} - {None}) < 2 for members in groups)
        / max(1, len(groups)),
        "routing_entropy_bits": entropy_bits(workers.values()),
        "routing_entropy_by_subtask_bits": sum(entropies) / max(1, len(steps)),
        "worker_share": {worker.name: workers[ordinal] / max(1, len(steps)) for ordinal, worker in pool},
        "topology": dict(Counter(topology(workflow) for _, workflow in workflows)),
        "steps_by_kind": _means((kind, len(workflow)) for kind, workflow in workflows),
        "accuracy_by_kind": _means((kind, float(one.correct is True)) for kind, one in played),
    }


def _means(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for kind, value in values:
        by_kind[kind].append(value)
    return {kind: fmean(of_kind) for kind, of_kind in sorted(by_kind.items())}


@dataclass(slots=True)
class Curve:
    """An append-only file of records; a resumed run drops what came after its checkpoint.

    ``after`` counts the iterations of the act before: a record's ``iteration`` counts on from there.
    """

    path: Path
    records: list[Record] = field(default_factory=list[Record])
    after: int = 0

    @classmethod
    def open(cls, path: Path, *, done: int, after: int = 0) -> Curve:
        """Open the curve of an act that has done ``done`` iterations; later records are cut off."""
        records: list[Record] = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                break  # the line that a kill left unfinished
            if record["iteration"] >= after + done:
                break
            records.append(record)
        write_whole(path, "".join(json.dumps(record) + "\n" for record in records))
        return cls(path, records, after)

    def append(self, record: Record) -> list[str]:
        """Append a record; returns the warnings that it gives rise to."""
        self.records.append(record)
        with storing(self.path), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
        return warnings(self.records)


def warnings(records: Sequence[Record]) -> list[str]:
    """What the last window of a curve should make one worry about; looked at once a window."""
    if len(records) < 2 * _WINDOW or len(records) % _WINDOW:
        return []
    windows = records[-2 * _WINDOW : -_WINDOW], records[-_WINDOW:]

    def means(key: str) -> list[float]:
        return [fmean(value for record in window if (value := record[key]) is not None) for window in windows]

    found: list[str] = []
    valid, entropy = means("validity"), means("routing_entropy_bits")
    # Only where each window holds a valid workflow; where one holds none, nothing is known of its skill.
    if valid[0] > 0 and valid[1] > valid[0] + _RISE:
        right = means("accuracy_given_valid")
        if right[1] <= right[0] + _RISE:
            found.append(
                f"validity rises ({valid[0]:.2f} -> {valid[1]:.2f}) while accuracy given valid does not "
                f"({right[0]:.2f} -> {right[1]:.2f}): format is being learnt, not orchestration"
            )
    if entropy[1] < 0.5 <= entropy[0]:
        found.append(f"routing entropy fell to {entropy[1]:.2f} bits: routing is collapsing onto one worker")
    if means("groups_without_spread")[1] > 0.9:
        found.append("more than 90 % of the groups have no spread of rewards: there is little left to learn from")
    return found


_SERVED = {
    True: """Served by
`vllm serve FOLDER` or `transformers serve FOLDER`, it is a provider: `openai_compatible:FOLDER` with the server's
`base_url`, its prompt, and temperature 0.""",
    False: """It is not for
vLLM and `transformers serve`: they would split its text as Qwen's tokenizers do, not as its own does.""",
}


# ── the model card ────────────────────────────────────────────────────────────────────────────────────────────────────
def model_card(run: Path, results: Record, *, served: bool) -> str:
    """What a reader of an exported Conductor should know, in Markdown; ``served``: servers split as it does."""
    config = load_train_config(run / "config.toml")
    curve = [json.loads(line) for line in (run / "curves.jsonl").read_text(encoding="utf-8").splitlines()]
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
    for key, name in (("start", "before rewards"), ("sampled", "sampled at temperature 1"), ("greedy", "greedy")):
        shares = [_percent(results[key][measure]) for measure in ("accuracy", "accuracy_given_valid", "validity")]
        rows.append(f"| {name} | {' | '.join(shares)} |")
    return "\n".join(rows)


def _ends(curve: list[Record]) -> str:
    window = max(1, min(_WINDOW, len(curve) // 4))  # the two ends of a short training must not be the same
    rows = [f"| | first {window} iterations | last {window} |", "|---|---|---|"]
    for measure in ("validity", "accuracy", "routing_entropy_bits", "masked"):
        ends = [fmean(record[measure] for record in part) for part in (curve[:window], curve[-window:])]
        rows.append(f"| {measure.replace('_', ' ')} | {ends[0]:.3f} | {ends[1]:.3f} |")
    return "\n".join(rows)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


# ── over seeds ────────────────────────────────────────────────────────────────────────────────────────────────────────
CONTROLS = ("shuffled", "flipped")
_POLL = 0.5  # seconds


def keep_quiet(line: str) -> None:
    """What hears progress where nobody listens."""


def study(
    config: TrainConfig,
    folder: str | Path,
    *,
    seeds: Sequence[int],
    controls: bool = True,
    jobs: int = 2,
    on_progress: Callable[[str], None] | None = None,
) -> Record:
    """Train the recipe once a seed, and once a control (with the first seed).

    Args:
        config: the recipe.
        folder: where the runs go; runs that are there are resumed, finished ones are not repeated.
        seeds: the seeds of fresh weights, cold start and sampling.
        controls: also train on shuffled and on flipped rewards.
        jobs: runs at the same time.
        on_progress: gets lines for people.

    Returns:
        The reference levels, a row a run, and the summary (also in ``study.json``); ``seconds`` is work, not wall time.

    Raises:
        ConfigError: the recipe is not the gym's, whose reference levels are known, or a run that is there has another.
        OpenConductorError: a run failed; the message ends with what it said.
    """
    if (config.data.task, config.pool) != ("gym", "gym"):
        raise ConfigError(
            f"study: got task {config.data.task!r} over pool {config.pool!r}, expected the gym for both: only there "
            "the levels are known by which a study says what was learnt"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    say = on_progress or keep_quiet
    runs = {folder / f"seed-{seed}": config.model_copy(update={"seed": seed}) for seed in seeds}
    for control in CONTROLS if controls else ():
        reward = config.reward.model_copy(update={"control": control})
        runs[folder / control] = config.model_copy(update={"seed": seeds[0], "reward": reward})
    for run, recipe in runs.items():
        stored = run / "config.toml"
        if not stored.is_file() and not (run / "results.json").is_file():
            continue
        if changed := differences(load_train_config(stored), recipe):
            raise ConfigError(
                f"study: {run} holds a run of another recipe (config.toml: {changed}); expected the same recipe, or "
                "another folder"
            )
    _run_all({run: recipe for run, recipe in runs.items() if not (run / "results.json").is_file()}, jobs, say)
    results = [json.loads((run / "results.json").read_text(encoding="utf-8")) for run in runs]
    levels = reference_levels(draw_questions("test", config.held_out.questions, seed=HELD_OUT_SEED))
    summary = summarise(results, {"random": levels.random, "best_worker": levels.best_worker, "oracle": levels.oracle})
    write_whole(folder / "study.json", json.dumps(summary, indent=2) + "\n")
    return summary


def _run_all(runs: Mapping[Path, TrainConfig], jobs: int, say: Callable[[str], None]) -> None:
    """Train ``jobs`` at a time, each as a process on one thread, with a log beside its folder; a failure ends all."""
    waiting = list(runs)
    running: dict[Path, subprocess.Popen[bytes]] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, jobs):
                run = waiting.pop(0)
                recipe = run.with_suffix(".toml")
                write_whole(recipe, dump_train_config(runs[run]))
                command = [sys.executable, "-m", "openconductor", "train", str(recipe), "--out", str(run)]
                command += ["--resume"] if (run / "config.toml").is_file() else []
                with run.with_suffix(".log").open("ab") as log:
                    running[run] = subprocess.Popen(  # noqa: S603 - our own command line
                        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
                    )
                say(f"{run.name}: started")
            time.sleep(_POLL)
            for run in [run for run, process in running.items() if process.poll() is not None]:
                if code := running.pop(run).returncode:
                    said = run.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
                    raise OpenConductorError(f"run {run}: exit {code}: {said[-2000:]}")
                say(f"{run.name}: done")
    finally:
        for process in running.values():
            process.terminate()
            process.wait()


def summarise(results: Sequence[Record], levels: dict[str, float]) -> Record:
    """Whether the recipe is robust: how many seeds learnt, how far, and that the controls did not."""
    rows = [
        {
            "seed": result["seed"],
            "control": result["control"],
            "start": result["start"]["accuracy"],
            "sampled": result["sampled"]["accuracy"],
            "greedy": result["greedy"]["accuracy"],
            "share_of_oracle": result["greedy"]["accuracy"] / levels["oracle"],
            "validity": result["greedy"]["validity"],
            "routing_entropy_bits": result["greedy"]["routing_entropy_bits"],
            "steps_by_kind": result["greedy"]["steps_by_kind"],
            "seconds": sum(result["seconds"].values()),
        }
        for result in results
    ]
    learners = [row for row in rows if row["control"] == "none"]
    reached = [row["greedy"] > max(3 * levels["random"], levels["best_worker"]) for row in learners]
    return {
        "levels": levels,
        "rows": rows,
        "learnt": sum(reached),
        "seeds": len(learners),
        "median_share_of_oracle": median(row["share_of_oracle"] for row in learners),
        "worst_share_of_oracle": min(row["share_of_oracle"] for row in learners),
        "seconds": sum(row["seconds"] for row in rows),
        "controls_over_start": {
            row["control"]: row["sampled"] / max(row["start"], 1e-9) for row in rows if row["control"] != "none"
        },
    }
