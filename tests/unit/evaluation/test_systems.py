"""Specs become systems: what each option is wired to, and what is refused before anybody is asked."""

from __future__ import annotations

import pytest

from openconductor.baselines.best_fixed import BestFixed
from openconductor.baselines.consensus import Consensus
from openconductor.baselines.observed import Observations
from openconductor.baselines.rewired import Rewired
from openconductor.baselines.routers import RouterDC
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError
from openconductor.evaluation.cells import System
from openconductor.evaluation.config import EvalConfig, make_eval_config
from openconductor.evaluation.planner import Planners
from openconductor.evaluation.specs import read_spec
from openconductor.evaluation.systems import Lessons, Workshop, explores, learns
from openconductor.gym.workers import gym_pool
from openconductor.types import Budget

WORKERS = tuple(worker.name for _, worker in gym_pool())
LESSONS = Lessons(
    Observations(
        ("Sum 1 2.", "Sort 3 1."),
        WORKERS,
        tuple(tuple(float(name == good) for name in WORKERS) for good in ("counter", "lister")),
        (("x",) * len(WORKERS),) * 2,
    )
)


def config(**values: object) -> EvalConfig:
    return make_eval_config({"conductor": {"planner": "worker:maven", "max_steps": 4}, **values}, where="test")


def workshop(**values: object) -> Workshop:
    return Workshop(config(**values), Planners(config(**values), gym_pool()), None)


def make(spec: str, lessons: Lessons | None = None, **values: object) -> System:
    return workshop(**values).make(read_spec(spec), lessons)


# ── Conductors ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_conductor_is_the_recipes() -> None:
    made = make("conductor", conductor={"planner": "worker:maven", "max_steps": 4, "rounds": 3})
    assert isinstance(made.orchestrator, Conductor)
    assert (made.name, made.budget) == ("conductor", None)
    assert (made.orchestrator.max_steps, made.orchestrator.max_rounds) == (4, 3)
    assert made.orchestrator.asked.name == "maven"


@pytest.mark.parametrize(
    ("spec", "max_steps", "max_rounds", "budget"),
    [
        ("conductor?rounds=2", 4, 2, None),
        ("conductor?max_steps=1", 1, 1, None),
        ("conductor?calls=7", 4, 1, Budget(calls=7)),
        ("conductor?rounds=unlimited&calls=7", 4, None, Budget(calls=7)),
    ],
)
def test_an_option_of_the_conductor_overrules_the_recipe(
    spec: str, max_steps: int, max_rounds: int | None, budget: Budget | None
) -> None:
    made = make(spec)
    assert isinstance(made.orchestrator, Conductor)
    assert (made.orchestrator.max_steps, made.orchestrator.max_rounds, made.budget) == (max_steps, max_rounds, budget)


@pytest.mark.parametrize(
    "spec",
    ["conductor?one_worker=jack", "conductor?access=none", "conductor?access=all", "conductor?sequential=true"],
)
def test_what_changes_plans_or_their_order_is_a_rewired_conductor(spec: str) -> None:
    made = make(spec)
    assert isinstance(made.orchestrator, Rewired)
    assert made.name == spec


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("conductor?subtasks=false", ("subtasks", False)),
        ("conductor?access=binary", ("access", "binary")),
        ("conductor?examples=out", ("examples", "out_of_distribution")),
    ],
)
def test_a_prompted_conductor_is_asked_for_less(spec: str, said: tuple[str, object]) -> None:
    made = make(spec)
    assert isinstance(made.orchestrator, Conductor)
    assert getattr(made.orchestrator.prompt, said[0]) == said[1]


def test_all_ablations_of_one_planner_share_it_and_other_planners_stand_beside() -> None:
    shop = workshop()
    made = [shop.make(read_spec(spec)).orchestrator for spec in ("conductor", "conductor?rounds=2")]
    other = shop.make(read_spec("planner:worker:jack")).orchestrator
    assert all(isinstance(one, Conductor) for one in (*made, other))
    assert made[0].asked is made[1].asked  # type: ignore[attr-defined]
    assert other.asked.name == "jack"  # type: ignore[attr-defined]


# ── baselines ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_baselines_options_and_its_worker_come_from_the_spec_and_its_seed_from_the_recipe() -> None:
    made = make("consensus:jack?n=3").orchestrator
    assert isinstance(made, Consensus)
    assert made.name == "jack, 3x consensus"
    assert make("random", seed=5).orchestrator._seed == 5  # type: ignore[attr-defined]
    assert make("random?seed=7", seed=5).orchestrator._seed == 7  # type: ignore[attr-defined]


def test_what_trains_gets_the_lessons() -> None:
    made = make("routerdc", LESSONS).orchestrator
    assert isinstance(made, RouterDC)
    assert made.choose("Sum 1 2.") in WORKERS
    fixed = make("best_fixed", LESSONS, pool="pool.toml").orchestrator
    assert isinstance(fixed, BestFixed)
    assert fixed.workflow is not None and fixed.workflow.steps[0].worker == WORKERS.index("counter")


@pytest.mark.parametrize(
    ("spec", "pool", "does_learn", "does_explore"),
    [
        ("conductor", "gym", False, False),
        ("worker:jack", "gym", False, False),
        ("oracle_observed", "gym", False, False),
        ("consensus:jack", "gym", False, False),
        ("best_fixed", "gym", False, False),  # known there
        ("best_fixed", "pool.toml", True, False),
        ("routerdc", "gym", True, False),
        ("routerdc?router=trained.json", "gym", False, False),
        ("smoothie", "gym", True, False),
        ("masrouter", "gym", True, True),
        ("masrouter?controller=trained.json", "gym", False, False),
    ],
)
def test_who_learns_from_what(spec: str, pool: str, does_learn: bool, does_explore: bool) -> None:
    assert learns(read_spec(spec), config(pool=pool)) is does_learn
    assert explores(read_spec(spec), config(pool=pool)) is does_explore


def test_the_explorer_tries_another_team_at_each_repeat() -> None:
    explorer = workshop(seed=3).explorer().orchestrator
    drawn = {str(explorer.draw("Sum 1 2.", sample=sample)) for sample in range(20)}  # type: ignore[attr-defined]
    assert len(drawn) > 10


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("conductor?subtask=false", "no option 'subtask'.*nearest: 'subtasks'"),
        ("conductor?subtasks=maybe", "subtasks 'maybe', expected true or false"),
        ("conductor?rounds=0", "rounds 0, expected a whole number from 1"),
        ("conductor?rounds=true", "rounds True, expected"),
        ("conductor?rounds=unlimited", "expected calls=N beside"),
        ("conductor?one_worker=jac", "nearest is 'jack'"),
        ("conductor?access=some", "got 'some'"),
        ("conductor?examples=few", "got 'few'"),
        ("conductor:jack", "expected 'conductor' and options"),
        ("planner", "expected planner:PROVIDER:MODEL"),
        ("worker", "expected worker:NAME"),
        ("worker:jac", "nearest is 'jack'"),
        ("worker:jack?n=2", "no option 'n', expected one of none"),
        ("oracle:jack", "expected oracle"),
        ("oracle_observed?n=1", "no option 'n'"),
        ("consensus", "no worker, expected consensus:NAME"),
        ("consensus:jack?observations=3", "no option 'observations'"),
        ("random:jack", "takes no name, got 'jack'"),
        ("moa:jack?layer=1", "nearest: 'layers'"),
        ("moa:jack?layers=0", "expected a whole number from 1"),
        ("smoothie?mode=both", "expected 'independent' or 'dependent'"),
        ("routerdc?router=nowhere.json", "nowhere.json"),
        ("best_fixed?workflow=abc", "no option 'workflow', expected one of none"),
        ("best_fixed?candidates=abc", "no option 'candidates'"),
        ("consensus:jack?key=len", "no option 'key', expected one of n"),
    ],
)
def test_what_cannot_be_made_is_refused_with_its_name_and_the_reason(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        workshop().check(read_spec(spec))
    assert str(refused.value).startswith(f"system {spec!r}: ")


def test_the_true_oracle_is_the_gyms_alone() -> None:
    workshop().check(read_spec("oracle"))
    with pytest.raises(ConfigError, match="expected oracle_observed"):
        workshop(pool="pool.toml").check(read_spec("oracle"))


@pytest.mark.parametrize(
    "spec", ["routerdc", "smoothie?mode=independent", "masrouter?cost_weight=2", "context:jack?max_tokens=9"]
)
def test_what_can_be_made_passes_before_anything_is_learnt(spec: str) -> None:
    workshop().check(read_spec(spec))
