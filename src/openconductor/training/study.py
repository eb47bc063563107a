"""A study: the same recipe over several seeds and two controls, against the exact levels of the gym.

In: a recipe of the gym. Out: one run folder a seed, one a control that must not learn, and
``study.json``: what each reached on held-out questions. Shares of the oracle are exact: the chance
that the workflows which it wrote answer, not whether they did. Runs go on side by side as processes
of their own, one thread each, and import nothing of this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from openconductor.errors import ConfigError, OpenConductorError
from openconductor.parser import parse_workflow
from openconductor.pool import WorkerPool, simulated_pool
from openconductor.store import read_store
from openconductor.store.storage import write_whole
from openconductor.tasks.simulated import Simulation, find_simulation
from openconductor.training.curves import Record
from openconductor.training.examples import HELD_OUT_SEED
from openconductor.training.run import keep_quiet
from openconductor.training.train_config import (
    TrainConfig,
    differences,
    dump_train_config,
    load_train_config,
)
from openconductor.types import Problem

CONTROLS = ("shuffled", "flipped")
_POLL = 0.5  # seconds


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
        The reference levels, a row a run, and the summary (also in ``study.json``); ``seconds`` is
        work, not wall time.

    Raises:
        ConfigError: the recipe is not the gym's, whose reference levels are known, or a run that is
            there has another.
        OpenConductorError: a run failed; the message ends with what it said.
    """
    simulation, simulated = find_simulation(config.data.task), simulated_pool(config.pool)
    if simulation is None or simulated is None:
        raise ConfigError(
            f"study: got task {config.data.task!r} over pool {config.pool!r}, expected the gym for both: only there "
            "the levels are known by which a study says what was learnt"
        )
    if simulated.redrawn:
        raise ConfigError(
            f"study: got other workers for each question (pool {config.pool!r}), expected the same for all; "
            "`openconductor gym measure` measures these"
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
    _run_all(
        {run: recipe for run, recipe in runs.items() if not (run / "results.json").is_file()},
        jobs,
        say,
    )
    pool = simulated.draw(config.seed)
    problems = simulation.draw(simulation.tested, config.held_out.questions, seed=HELD_OUT_SEED)
    results = [
        {
            **json.loads((run / "results.json").read_text(encoding="utf-8")),
            "exact": exact_accuracies(run, problems, simulation, pool),
        }
        for run in runs
    ]
    summary = summarise(results, simulation.levels(problems, pool))
    write_whole(folder / "study.json", json.dumps(summary, indent=2) + "\n")
    return summary


def exact_accuracies(
    run: Path, problems: Sequence[Problem], simulation: Simulation, pool: WorkerPool
) -> dict[str, dict[str, float]]:
    """The chances that the workflows of a finished run answer the held-out questions, by phase and kind of question.

    Phases are ``start`` (as many as were played), ``sampled`` and ``greedy``; ``all`` is the mean
    over the questions.
    """
    chances: dict[str, dict[str, list[float]]] = {
        name: {"all": []} for name in ("start", "sampled", "greedy")
    }
    with read_store(run / "journal.sqlite") as journal:
        for outcome in journal.records():
            phase, _, place = outcome.key.partition("/")
            if phase in chances:
                problem = problems[int(place) % len(problems)]
                chance = 0.0
                if not outcome.value["invalid"]:
                    workflow = parse_workflow(str(outcome.value["completion"]), pool.ordinals)
                    chance = simulation.expected_accuracy(problem.question, workflow, pool) or 0.0
                for name in ("all", problem.kind):
                    chances[phase].setdefault(name, []).append(chance)
    return {
        phase: {kind: fmean(each) for kind, each in by_kind.items() if each}
        for phase, by_kind in chances.items()
    }


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
                command = [
                    sys.executable,
                    "-m",
                    "openconductor",
                    "train",
                    str(recipe),
                    "--out",
                    str(run),
                ]
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


def summarise(results: Sequence[Record], levels: Mapping[str, float]) -> Record:
    """Whether the recipe is robust: how many seeds learnt, how far, and that the controls did not."""
    rows = [
        {
            "seed": result["seed"],
            "control": result["control"],
            "start": result["start"]["accuracy"],
            "sampled": result["sampled"]["accuracy"],
            "greedy": result["greedy"]["accuracy"],
            "share_of_oracle": result["exact"]["greedy"]["all"] / levels["oracle"],
            "sampled_share_of_oracle": result["exact"]["sampled"]["all"] / levels["oracle"],
            "exact_by_kind": result["exact"]["greedy"],
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
        "levels": dict(levels),
        "rows": rows,
        "learnt": sum(reached),
        "seeds": len(learners),
        "median_share_of_oracle": median(row["share_of_oracle"] for row in learners),
        "worst_share_of_oracle": min(row["share_of_oracle"] for row in learners),
        "seconds": sum(row["seconds"] for row in rows),
        "controls_over_start": {
            row["control"]: row["sampled"] / max(row["start"], 1e-9)
            for row in rows
            if row["control"] != "none"
        },
    }
