"""Study a recipe: train it over several seeds and two controls, and compare with the exact levels.

The runs go on side by side as processes of their own, one thread each; over a database several
machines share them. Shares of the oracle are exact: they are the chance that the written workflows
answer, not a count of answers.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from openconductor.errors import ConfigError, OpenConductorError
from openconductor.evaluation.eval_config import what_differs
from openconductor.evaluation.joined.agreement import agree_on
from openconductor.evaluation.joined.cells import JoinedCells
from openconductor.measures import Pace
from openconductor.parser import parse_completion
from openconductor.pool import WorkerPool, simulated_pool
from openconductor.store import SharedStore, database_url, open_store, place_name, read_store
from openconductor.store.storage import write_whole
from openconductor.tasks.simulated import Simulation, find_simulation
from openconductor.training.completions import draws_ordinals
from openconductor.training.curves import Record, read_record, write_record
from openconductor.training.run import keep_quiet
from openconductor.training.scoring import gather_or_cancel
from openconductor.training.setup import HELD_OUT_SEED
from openconductor.training.train_config import (
    TrainConfig,
    differences,
    dump_train_config,
    load_train_config,
)
from openconductor.types import Problem

CONTROLS = ("shuffled", "flipped")
PHASES = ("start", "sampled", "greedy")

_STUDY = "study"  # the key of the record that describes it
_SET_DEATH_SIGNAL = 1  # of prctl


def study(
    config: TrainConfig,
    folder: str | Path,
    *,
    seeds: Sequence[int],
    controls: bool = True,
    jobs: int = 2,
    journal: str = "",
    on_progress: Callable[[str], None] | None = None,
) -> Record:
    """Train the recipe once a seed, and once a control (with the first seed).

    Args:
        config: the recipe.
        folder: the runs' folder. Unfinished runs in it are resumed, finished ones not repeated.
        seeds: the seeds of fresh weights, cold start and sampling.
        controls: also train on shuffled and on flipped rewards.
        jobs: runs at the same time.
        journal: the URL of a database over which processes share the runs; each has a folder, and
            returns the results of all. "": this process makes all of them.
        on_progress: gets lines for people.

    Returns:
        The reference levels, a row a run, and the summary (also in ``study.json``); ``seconds`` is
        work, not wall time.

    Raises:
        ConfigError: the recipe's task or pool is not simulated, so that no levels are known, or the
            folder or the database has runs of another recipe.
        OpenConductorError: a run failed; the message ends with its last output.
    """
    simulation = find_simulation(config.data.task)
    simulated = simulated_pool(config.pool)
    if simulation is None or simulated is None:
        raise ConfigError(
            f"study: got task {config.data.task!r} over pool {config.pool!r}, expected the gym for "
            "both; a study compares with its exact levels"
        )
    if draws_ordinals(config):
        raise ConfigError(
            f"study: over pool {config.pool!r} each question has workers or ordinals of its own, "
            "expected the same for all; `openconductor gym measure` measures such pools"
        )
    if journal and database_url(journal) is None:
        raise ConfigError(
            f"study: journal: got {journal!r}, expected the URL of a database "
            "(postgresql://USER@HOST/DATABASE), because a SQLite file has one writer"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    runs = _plan_runs(config, folder, seeds, controls)
    unfinished: dict[Path, TrainConfig] = {}
    for run, recipe in runs.items():
        finished = (run / "results.json").is_file()
        if finished or (run / "config.toml").is_file():
            _check_recipe(run, recipe)
        if not finished:
            unfinished[run] = recipe
    say = on_progress or keep_quiet
    say(f"study folder: {folder}")
    pool = simulated.draw(config.seed)
    problems = simulation.draw(simulation.tested, config.held_out.questions, seed=HELD_OUT_SEED)

    def read_result(run: Path) -> Record:
        result = read_record(run / "results.json")
        result["exact"] = exact_accuracies(run, problems, simulation, pool)
        return result

    if journal:
        shared = _SharedRuns(runs, unfinished, read_result, say)
        asked = {
            "recipe": config.model_dump(mode="json"),
            "seeds": list(seeds),
            "controls": controls,
        }
        results = asyncio.run(shared.make(journal, asked, jobs))
    else:
        asyncio.run(_train_all(unfinished, jobs, say))
        results = [read_result(run) for run in runs]
    summary = summarise(results, simulation.levels(problems, pool))
    write_record(folder / "study.json", summary)
    return summary


def _plan_runs(
    config: TrainConfig, folder: Path, seeds: Sequence[int], controls: bool
) -> dict[Path, TrainConfig]:
    """Return the recipe of each run, by its folder."""
    runs = {folder / f"seed-{seed}": config.model_copy(update={"seed": seed}) for seed in seeds}
    if controls:
        for control in CONTROLS:
            reward = config.reward.model_copy(update={"control": control})
            changes = {"seed": seeds[0], "reward": reward}
            runs[folder / control] = config.model_copy(update=changes)
    return runs


def _check_recipe(run: Path, recipe: TrainConfig) -> None:
    changed = differences(load_train_config(run / "config.toml"), recipe)
    if changed:
        raise ConfigError(
            f"study: {run} holds a run of another recipe (config.toml: {changed}); expected the "
            "same recipe, or another folder"
        )


async def _train_all(
    recipes: Mapping[Path, TrainConfig], jobs: int, say: Callable[[str], None]
) -> None:
    """Train recipes as processes, ``jobs`` at a time; the first failure ends the others."""
    waiting = iter(recipes.items())
    done = itertools.count(1)
    pace = Pace()

    async def train_next() -> None:
        for run, recipe in waiting:
            await _train(run, recipe, say)
            number = next(done)
            finish = pace.finish(number, len(recipes))
            say(f"{run.name}: done, {number} of {len(recipes)}{finish}")

    await gather_or_cancel(train_next() for _ in range(jobs))


class _SharedRuns:
    """The runs of a study that several processes make over a database.

    Args:
        runs: the recipes by the run's folder.
        unfinished: those that this process's folder lacks.
        read_result: returns the result of a finished run.
        say: gets lines for people.
    """

    def __init__(
        self,
        runs: Mapping[Path, TrainConfig],
        unfinished: Mapping[Path, TrainConfig],
        read_result: Callable[[Path], Record],
        say: Callable[[str], None],
    ) -> None:
        self._runs = {f"run/{run.name}": run for run in runs}
        self._unfinished = unfinished
        self._read_result = read_result
        self._say = say

    async def make(self, url: str, asked: Mapping[str, object], jobs: int) -> list[Record]:
        """Make runs that no other process has, until all are made; return their results.

        Raises:
            ConfigError: the database holds another study.
        """
        with open_store(url) as store:
            assert isinstance(store, SharedStore)
            await self._agree(store, place_name(url), asked)
            keys = {key: key for key in self._runs}
            drawn = JoinedCells(store, keys, on_kept=self._say_kept)
            await gather_or_cancel(self._make_next(store, drawn) for _ in range(jobs))
            return [dict(store.find_record(key) or {}) for key in self._runs]

    async def _agree(self, store: SharedStore, title: str, asked: Mapping[str, object]) -> None:
        def compare(kept: Mapping[str, object]) -> list[str]:
            return what_differs(kept, asked)

        if await agree_on(store, _STUDY, title, compare):
            store.put_record(_STUDY, asked)
            store.release(_STUDY)
            await store.wait_durable()

    async def _make_next(self, store: SharedStore, drawn: JoinedCells[str]) -> None:
        async for key in drawn:
            run = self._runs[key]
            if run in self._unfinished:
                await _train(run, self._unfinished[run], self._say)
            result = self._read_result(run)
            if await drawn.confirm(key):
                store.put_record(key, result)
                store.release(key)
                await store.wait_durable()
                self._say(f"{run.name}: done")

    def _say_kept(self, count: int) -> None:
        self._say(f"made by other processes: {count}")


async def _train(run: Path, config: TrainConfig, say: Callable[[str], None]) -> None:
    """Train a recipe as a process, with a log beside the run's folder."""
    recipe = run.with_suffix(".toml")
    log = run.with_suffix(".log")
    write_whole(recipe, dump_train_config(config))
    # -P: no module is taken from the folder in which the study was started.
    arguments = ["-P", "-m", "openconductor", "train", str(recipe), "--out", str(run)]
    if (run / "config.toml").is_file():
        arguments.append("--resume")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    say(f"{run.name}: started")
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    if code != 0:
        output = log.read_text(encoding="utf-8", errors="replace")
        raise OpenConductorError(f"run {run}: exit {code}: {output[-2000:]}")


def _end_with_parent() -> None:
    """Have this process killed when its parent ends, so that another one can resume its run."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


# ── results ───────────────────────────────────────────────────────────────────────────────────────
def exact_accuracies(
    run: Path, problems: Sequence[Problem], simulation: Simulation, pool: WorkerPool
) -> dict[str, dict[str, float]]:
    """Return the chance that a finished run's workflows answer, by phase and kind of question.

    Phases are ``start`` (as many questions as were played), ``sampled`` and ``greedy``; the kind
    ``all`` is the mean over the questions.
    """
    chances: dict[str, dict[str, list[float]]] = {phase: {"all": []} for phase in PHASES}
    with read_store(run / "journal.sqlite") as journal:
        for record in journal.records():
            phase, _, place = record.key.partition("/")
            if phase not in PHASES:
                continue
            problem = problems[int(place) % len(problems)]
            chance = 0.0
            if not record.value["invalid"]:
                workflow = parse_completion(str(record.value["completion"]), pool.ordinals)
                chance = simulation.expected_accuracy(problem.question, workflow, pool) or 0.0
            chances[phase]["all"].append(chance)
            chances[phase].setdefault(problem.kind, []).append(chance)
    means: dict[str, dict[str, float]] = {}
    for phase, by_kind in chances.items():
        means[phase] = {kind: fmean(values) for kind, values in by_kind.items() if values}
    return means


def summarise(results: Sequence[Record], levels: Mapping[str, float]) -> Record:
    """Summarise how many seeds learnt, how far, and what the controls learnt."""
    rows = [_row(result, levels["oracle"]) for result in results]
    learners = [row for row in rows if row["control"] == "none"]
    controls = [row for row in rows if row["control"] != "none"]
    threshold = max(3 * levels["random"], levels["best_worker"])
    shares = [row["share_of_oracle"] for row in learners]
    return {
        "levels": dict(levels),
        "rows": rows,
        "learnt": sum(row["greedy"] > threshold for row in learners),
        "seeds": len(learners),
        "median_share_of_oracle": median(shares),
        "worst_share_of_oracle": min(shares),
        "seconds": sum(row["seconds"] for row in rows),
        "controls_over_start": {
            row["control"]: row["sampled"] / max(row["start"], 1e-9) for row in controls
        },
    }


def _row(result: Record, oracle: float) -> Record:
    greedy, exact = result["greedy"], result["exact"]
    return {
        "seed": result["seed"],
        "control": result["control"],
        "start": result["start"]["accuracy"],
        "sampled": result["sampled"]["accuracy"],
        "greedy": greedy["accuracy"],
        "share_of_oracle": exact["greedy"]["all"] / oracle,
        "sampled_share_of_oracle": exact["sampled"]["all"] / oracle,
        "exact_by_kind": exact["greedy"],
        "validity": greedy["validity"],
        "routing_entropy_bits": greedy["routing_entropy_bits"],
        "steps_by_kind": greedy["steps_by_kind"],
        "seconds": sum(result["seconds"].values()),
    }
