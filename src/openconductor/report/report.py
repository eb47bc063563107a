"""The whole report of a run: its figures, its verdict, its pool's headroom and its training.

``make_report`` makes a ``Report`` from the results of an evaluation. ``same_questions`` loads an
evaluation of the untrained Conductor for a comparison. Ids alone do not tell if two evaluations
asked the same questions, because another seed gives the same ids to other questions; so their
folders must say the same of their inputs.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from openconductor.errors import ConfigError
from openconductor.evaluation.choice import Choice, choose_auto
from openconductor.evaluation.eval_config import CONDUCTOR, PLANNER, PLANNER_ALONE, read_spec
from openconductor.evaluation.headroom import Headroom, headroom
from openconductor.evaluation.records import Plain, Record, Results, read_folder
from openconductor.evaluation.sheets import read_questions
from openconductor.evaluation.tables import Cost, user_costs
from openconductor.plots.material import Material
from openconductor.providers.replay_pool import AGGREGATORS
from openconductor.report.answers import merge_questions
from openconductor.report.headline import (
    AskingPrice,
    headline,
    price_missing,
    say_missing,
    who_works,
)
from openconductor.report.orchestration import Orchestration, Siblings, measure_orchestration
from openconductor.report.replays import Replays
from openconductor.report.training import Training, read_training
from openconductor.report.verdict import Judgement, Missing, judge
from openconductor.store.serialisation import plain
from openconductor.tasks.simulated import find_simulation

_IDENTITY = ("ordinal", "name", "identity", "sampling")


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one run about one system.

    Attributes:
        name: the run's.
        setting: constrained or unconstrained.
        missing: the number of records that a whole evaluation would have beyond these.
        orchestration: the figures.
        verdict: the judgement on them.
        headroom: the gain that the pool's workers leave; None: no worker was asked alone.
        training: the curve of a training; None: none was given.
        costs: the cost of a question to each system that was evaluated.
        auto: the system that is worth deploying; None: no worker was asked alone.
        sources: the files or tasks whose questions were all asked; empty: some task has more.
        folder: the folder of the evaluation, for commands; "": unknown.
    """

    name: str
    setting: str
    missing: int
    orchestration: Orchestration
    verdict: Judgement
    headroom: Headroom | None = None
    training: Training | None = None
    costs: Mapping[str, Cost] = field(default_factory=dict[str, Cost])
    auto: Choice | None = None
    sources: tuple[str, ...] = ()
    folder: str = ""

    @property
    def advice(self) -> list[str]:
        """The first lines, in plain words: what to deploy, and the command that does."""
        lines = headline(self.orchestration, self.auto, self.costs)
        if self.folder and self.auto is not None and lines[0].startswith("Deploy"):
            command = shlex.join(["openconductor", "serve", "--from", self.folder])
            lines.append(f"To serve {self.auto.system}, under the model name auto: {command}")
        return lines

    @property
    def notes(self) -> list[str]:
        """The lines below the verdict: what it lacks if it is undecided, and who works."""
        figures, missing = self.orchestration, self.verdict.missing
        lines: list[str] = []
        if missing is not None:
            lines.append(say_missing(figures, missing, self.sources))
            if self.folder and missing != Missing():
                command = shlex.join(["openconductor", "report", self.folder, "--complete"])
                more = Missing(questions=missing.questions)
                when = "To ask for it"
                if self.sources and missing == more:
                    when = "To ask for it once it is there"
                lines.append(f"{when} ({self.price}): {command}")
        lines.append(who_works(figures))
        return [line for line in lines if line]

    @property
    def price(self) -> AskingPrice:
        """The price of asking for what an undecided verdict lacks."""
        return price_missing(self.orchestration, self.verdict.missing or Missing(), self.costs)

    def to_json(self) -> dict[str, Any]:
        """Return one object of plain values: the verdict first, then the figures."""
        return {
            "name": self.name,
            "setting": self.setting,
            "missing": self.missing,
            "verdict": self.verdict.label,
            "line": self.verdict.line,
            "reasons": self.verdict.reasons,
            "answers": self.verdict.answers,
            "lacks": plain(self.verdict.missing),
            "summary": " ".join(self.advice + self.notes),
            "lines": self.advice + self.notes,
            "auto": None if self.auto is None else self.auto.to_json(),
            "costs": {system: cost._asdict() for system, cost in self.costs.items()},
            **self.orchestration.to_json(),
            "headroom": None if self.headroom is None else self.headroom.to_json(),
            "training": None if self.training is None else self.training.to_json(),
        }


def make_report(
    results: Results,
    *,
    system: str | None = None,
    before: Results | None = None,
    training_folder: Path | None = None,
    replays: Replays | None = None,
    folder: Path | None = None,
) -> Report:
    """Make the report of a run.

    Args:
        results: the results of the evaluation.
        system: the system that is reported on; None: ``conductor``, else the first one that plans.
        before: an evaluation of the untrained Conductor on the same questions (``same_questions``):
            of the system of this name, else of ``conductor``.
        training_folder: a training's run, or its ``curves.jsonl``.
        replays: the replays of its plans (``replays.replay_plans``).
        folder: the evaluation's, which the command that completes it names.

    Raises:
        ConfigError: there is no record of the system, before or after, or no curve.
        JournalError: a journal cannot be read.
    """
    system = choose_system(results, system)
    seed = results.config.seed or 0
    earlier: Sequence[Record] = ()
    if before is not None:
        earlier = before.of(system) or before.of(CONDUCTOR)
        if not earlier:
            known = ", ".join(before.systems)
            raise ConfigError(
                f"before: no record of {system!r} or 'conductor', expected one of {known}"
            )
    records = results.records
    if folder is not None:
        questions = read_questions(folder)
        records = merge_questions(records, questions)
        earlier = merge_questions(earlier, questions)
    siblings = find_siblings(results, system)
    base = find_base(results, system, {} if folder is None else _read_inputs(folder))
    figures = measure_orchestration(
        records,
        system=system,
        before=earlier,
        workers=results.workers,
        counterfactuals=None if replays is None else replays.edits,
        plays=None if replays is None else replays.plays,
        siblings=replace(siblings, base=base),
        aggregators=_find_aggregators(folder),
        lessons=_count_lessons(results),
        seed=seed,
    )
    if figures.change is not None and not figures.change.questions:
        raise ConfigError(
            "before: none of its questions was asked here, "
            "expected an evaluation on the same questions"
        )
    return Report(
        name=results.config.name,
        setting=results.config.setting,
        missing=results.missing,
        orchestration=figures,
        verdict=judge(figures),
        headroom=headroom(records, seed=seed),
        training=None if training_folder is None else read_training(training_folder),
        costs=user_costs(results),
        auto=choose_auto(results),
        sources=_find_exhausted(results),
        folder="" if folder is None else str(folder),
    )


def find_siblings(results: Results, system: str) -> Siblings:
    """Find the evaluated Conductors that were trained by a system's recipe with other seeds.

    A Conductor is named by its folder; its training's recipe is in or beside it. If there are
    siblings, the seeds of the same study that were not evaluated are found, too.
    """
    recipes: dict[str, tuple[Path, Plain]] = {}
    for name in results.systems:
        recipe = _find_recipe(results, name)
        if recipe is not None and not read_spec(name).options:
            recipes[name] = recipe
    if system not in recipes:
        return Siblings()
    run, own = recipes[system]
    siblings = [name for name, (_, recipe) in recipes.items() if recipe == own and name != system]
    if not siblings:
        return Siblings()
    evaluated = {folder.resolve() for folder, _ in recipes.values()}
    absent: list[str] = []
    for folder in sorted(run.parent.glob("seed-*")):
        found = _read_recipe(str(folder))
        if found is not None and found[1] == own and folder.resolve() not in evaluated:
            absent.append(folder.name)
    return Siblings(tuple(siblings), tuple(absent))


def find_base(results: Results, system: str, inputs: Mapping[str, Any]) -> str:
    """Return the system that is the model which a Conductor was trained from, asked alone.

    It is known by its weights, whatever it is called, where the training and the evaluation say
    them in ``environment.json``; else by its name. A model that was itself trained to plan has a
    base of its own. "": unknown, or fresh weights.

    Args:
        results: of the evaluation.
        system: the Conductor.
        inputs: of the evaluation, by its folder; empty: unknown.

    Raises:
        ConfigError: other weights were asked under the model's name, or the training's
            ``environment.json`` is damaged.
    """
    base, weights, recipe = "", "", _find_recipe(results, system)
    while recipe is not None:
        run, values = recipe
        base = str(cast("Plain", values.get("model", {})).get("base", ""))
        weights = _read_weights(run)
        recipe = _read_recipe(base)
    if not base:
        return ""
    name = f"transformers:{base}"
    asked = cast("Mapping[str, str]", inputs.get("weights", {}))
    for model, known in asked.items():
        if weights and known == weights:
            return f"{PLANNER_ALONE}:{model}"
    if weights and asked.get(name):
        raise ConfigError(
            f"{PLANNER_ALONE}:{name}: got weights {asked[name]!r}, expected {weights!r}, from "
            f"which {system} was trained; ask that model in another evaluation"
        )
    return f"{PLANNER_ALONE}:{name}"


def _read_weights(run: Path) -> str:
    """Return the digest of the weights that a training began from; "": unknown.

    Raises:
        ConfigError: the run's ``environment.json`` is damaged.
    """
    file = run / "environment.json"
    if not file.is_file():
        return ""
    try:
        return str(json.loads(file.read_text("utf-8")).get("base", ""))
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{file}: {error}; expected an object of JSON. Without the file, the base model is "
            "known by its name"
        ) from error


def _find_recipe(results: Results, system: str) -> tuple[Path, Plain] | None:
    """Return the run and the recipe of a Conductor; None: unknown, or it is no Conductor."""
    spec = read_spec(system)
    if spec.kind not in (CONDUCTOR, PLANNER):
        return None
    return _read_recipe(spec.argument or results.config.conductor.planner)


def _read_recipe(planner: str) -> tuple[Path, Plain] | None:
    """Return the run of a Conductor's training, and its recipe without the seed; None: unknown."""
    for folder in (Path(planner), Path(planner).parent):
        file = folder / "config.toml"
        if planner and file.is_file():
            with suppress(OSError, ValueError):
                recipe = tomllib.loads(file.read_text("utf-8"))
                recipe.pop("seed", None)
                return folder, recipe
    return None


def _find_aggregators(folder: Path | None) -> frozenset[int]:
    """Return the ordinals of recorded workers that have no model."""
    if folder is None:
        return frozenset()
    names = {f"replay_pool {name}" for name in AGGREGATORS}
    workers = _read_inputs(folder)["workers"]
    return frozenset(
        worker["ordinal"]
        for worker in workers
        if str(worker.get("identity")).rpartition(" ")[0] in names
    )


def _find_exhausted(results: Results) -> tuple[str, ...]:
    """Return the files or names of tasks whose questions were all asked; empty: one has more."""
    sources: list[str] = []
    for table in results.config.task:
        questions = results.expected.get(table.name, 0) // results.config.repeats
        drawn = find_simulation(table.task or table.name) is not None
        if drawn or (table.limit is not None and questions >= table.limit):
            return ()
        sources.append(table.path or table.name)
    return tuple(sources)


def _count_lessons(results: Results) -> int | None:
    """Return the number of questions that trained baselines learnt from; None: none did."""
    learnt = {record.key for record in results.learning if record.task.startswith("learn:")}
    return None if results.config.simulated else len(learnt) or None


def choose_system(results: Results, system: str | None) -> str:
    """Return the system that is reported on: the named one, ``conductor``, or the first that plans.

    Raises:
        ConfigError: the named one has no record, or none plans.
    """
    recorded = [name for name in results.systems if results.of(name)]
    known = ", ".join(recorded) or "none: no record is there"
    if system is not None and system not in recorded:
        raise ConfigError(f"system: got {system!r}, expected one of {known}")
    chosen = Material(results.records, system=system).ours
    if not chosen:
        raise ConfigError(
            f"report: no system here writes plans, expected one, or --system with one of {known}"
        )
    return chosen


# ── two evaluations ───────────────────────────────────────────────────────────────────────────────
def same_questions(folder: Path, before: Path) -> Results:
    """Load the results in ``before`` if its evaluation asked the same as that in ``folder``.

    Raises:
        ConfigError: it asked other questions or other workers; the message says what differs.
    """
    ours, theirs = _read_inputs(folder), _read_inputs(before)
    tasks, other_tasks = ours["tasks"], theirs["tasks"]
    shared = [name for name in tasks if name in other_tasks]
    if not shared:
        got, expected = ", ".join(other_tasks), ", ".join(tasks)
        raise ConfigError(f"before: got tasks {got}, expected those of {folder}: {expected}")
    for name in shared:
        task, other = tasks[name], other_tasks[name]
        if task.get("digest") != other.get("digest"):
            raise ConfigError(
                f"before: task {name}: got {other.get('problems')} other questions than the "
                f"{task.get('problems')} of {folder}; "
                "expected the same: one split, limit and seed for both"
            )
    if _identities(ours) != _identities(theirs):
        raise ConfigError(
            f"before: got other workers than {folder} has, expected the same pool and setting: "
            "else nobody can tell the Conductor's gain from the pool's"
        )
    return Results.load(before)


def _read_inputs(folder: Path) -> Mapping[str, Any]:
    """Read what an evaluation's folder says of its tasks and workers."""
    inputs = read_folder(folder)[1].get("inputs")
    if not (isinstance(inputs, dict) and "tasks" in inputs and "workers" in inputs):
        raise ConfigError(
            f"{folder}: its environment.json says nothing of its inputs, "
            "expected an evaluation's folder"
        )
    return cast("Mapping[str, Any]", inputs)


def _identities(inputs: Mapping[str, Any]) -> list[list[object]]:
    """Return what tells workers apart, except for prices."""
    identities: list[list[object]] = []
    for worker in inputs["workers"]:
        identities.append([worker.get(name) for name in _IDENTITY])
    return identities
