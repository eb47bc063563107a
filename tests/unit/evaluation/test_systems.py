"""Specs become systems: what each option is wired to.

What is refused before anybody is asked.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted import write_sums

from openconductor.baselines.collaboration import Trial
from openconductor.baselines.consensus import Consensus
from openconductor.baselines.observed import Observations
from openconductor.baselines.planned import BestFixed
from openconductor.baselines.routers import RouterDC
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError, TaskError
from openconductor.evaluation import systems
from openconductor.evaluation.eval_config import EvalConfig, make_eval_config, read_spec
from openconductor.evaluation.sheets import Sheet, load_learning, load_sheets
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.workers import gym_pool
from openconductor.pool import WorkerPool
from openconductor.providers.conductor_file import question_digest
from openconductor.tasks.gym import GymTask
from openconductor.testing import Scripted, pool_of
from openconductor.types import Budget, Problem

WORKERS = tuple(worker.name for _, worker in gym_pool())
LESSONS = systems.Lessons(
    Observations(
        ("Sum 1 2.", "Sort 3 1."),
        WORKERS,
        tuple(tuple(float(name == good) for name in WORKERS) for good in ("counter", "lister")),
        (("x",) * len(WORKERS),) * 2,
    )
)


def config(**values: object) -> EvalConfig:
    return make_eval_config(
        {"conductor": {"planner": "worker:maven", "max_steps": 4}, **values}, where="test"
    )


def workshop(**values: object) -> systems.Workshop:
    return systems.Workshop(config(**values), gym_pool())


def make(spec: str, lessons: systems.Lessons | None = None, **values: object) -> systems.System:
    return workshop(**values).make(read_spec(spec), lessons)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory holds a test's files."""
    monkeypatch.chdir(tmp_path)


# ── Conductors ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("spec", "max_steps", "max_rounds", "budget", "asked_for"),
    [
        ("conductor?rounds=2&subtasks=false", 4, 2, None, ("subtasks", False)),
        ("conductor?max_steps=1&access=binary", 1, 1, None, ("access", "binary")),
        (
            "conductor?calls=7&examples=out",
            4,
            1,
            Budget(calls=7),
            ("examples", "out_of_distribution"),
        ),
        ("conductor?rounds=unlimited&calls=7", 4, None, Budget(calls=7), ("subtasks", True)),
        ("conductor", 4, 1, None, ("cards", True)),
        ("conductor?cards=false", 4, 1, None, ("cards", False)),
        ("conductor?template=full", 4, 1, None, ("template", "full")),
    ],
)
def test_an_option_of_the_conductor_overrules_the_recipe_and_changes_its_prompt(
    spec: str,
    max_steps: int,
    max_rounds: int | None,
    budget: Budget | None,
    asked_for: tuple[str, object],
) -> None:
    made = make(spec)
    assert isinstance(made.orchestrator, Conductor)
    assert made.orchestrator.max_steps == max_steps
    assert made.orchestrator.max_rounds == max_rounds
    assert made.budget == budget
    assert getattr(made.orchestrator.prompt, asked_for[0]) == asked_for[1]
    assert made.orchestrator.on_no_plan == "error"


def test_what_is_served_can_be_measured() -> None:
    made = make("conductor?on_no_plan=default_worker").orchestrator
    assert isinstance(made, Conductor) and made.on_no_plan == "default_worker"
    with pytest.raises(ConfigError, match="on_no_plan: got 'default'"):
        make("conductor?on_no_plan=default")


class Closing(Scripted):
    """A provider that knows whether it was closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def test_a_planner_is_loaded_once_for_all_its_ablations_and_closed_with_the_workers(
    monkeypatch,
) -> None:
    loaded: dict[str, Closing] = {}

    def find(named: str | None, pool: WorkerPool, **options: object) -> Closing:
        assert str(named) not in loaded
        return loaded.setdefault(str(named), Closing(identity="closing"))

    monkeypatch.setattr(systems, "find_planner", find)
    provider = Closing()
    shop = systems.Workshop(config(conductor={}), pool_of(provider))
    texts = ("conductor", "conductor?rounds=2", "planner:openai:gpt-5?subtasks=false", "random")
    specs = [read_spec(text) for text in texts]
    for spec in specs:
        shop.make(spec)
    assert list(loaded) == ["None", "openai:gpt-5"]
    planners = shop.described(specs)["planners"]
    assert planners["conductor"] == planners["openai:gpt-5"] == "closing"
    await shop.aclose()
    assert [closing.closed for closing in (provider, *loaded.values())] == [1, 1, 1]


def test_systems_are_checked_before_anything_is_learnt() -> None:
    shop = workshop()
    for system in (*LEARNERS, "heuristic", "oracle"):
        shop.check(read_spec(system))


LEARNERS = ("routerdc-lite", "smoothie-lite?mode=independent", "masrouter-lite")


def test_the_oracle_is_the_gyms() -> None:
    with pytest.raises(ConfigError, match="expected oracle_observed"):
        workshop(pool="pool.toml").check(read_spec("oracle"))


def of_files(**values: object) -> EvalConfig:
    """Write a pool and GSM8K's splits; return a recipe over them."""
    Path("pool.toml").write_text(POOL, "utf-8")
    write_sums(Path("test.jsonl"), range(1, 5))
    write_sums(Path("train.jsonl"), range(5, 9))
    tables = {"pool": "pool.toml", "task": [{"name": "gsm8k", "path": "."}]}
    return make_eval_config(tables | values, where="test")


# ── baselines ─────────────────────────────────────────────────────────────────────────────────────
def test_a_baselines_options_and_its_worker_come_from_the_spec_and_its_seed_from_the_recipe() -> (
    None
):
    made = make("consensus:jack?n=3").orchestrator
    assert isinstance(made, Consensus)
    assert made.name == "jack, 3x consensus"
    assert make("random", seed=5).orchestrator._seed == 5  # type: ignore[attr-defined]
    assert make("random?seed=7", seed=5).orchestrator._seed == 7  # type: ignore[attr-defined]


def test_what_trains_gets_the_lessons() -> None:
    made = make("routerdc-lite", LESSONS).orchestrator
    assert isinstance(made, RouterDC)
    assert made.choose("Sum 1 2.") in WORKERS
    fixed = make("best_fixed", LESSONS, pool="pool.toml").orchestrator
    assert isinstance(fixed, BestFixed)
    assert fixed.workflow("Sum 1 2.").steps[0].worker == WORKERS.index("counter")


WHO_LEARNS = """
conductor                          gym       →
oracle_observed                    gym       →
consensus:jack                     gym       →
best_fixed                         gym       →
best_fixed                         pool.toml → learns
routerdc-lite                      gym       → learns
routerdc-lite?router=trained.json  gym       →
masrouter-lite                     gym       → learns explores
cascade                            gym       → learns
cascade?workers=jack+counter+adder gym       →
"""  # the gym's best fixed workflow is known


@pytest.mark.parametrize("line", WHO_LEARNS.strip().splitlines())
def test_who_learns_from_what(line: str) -> None:
    system, what = line.split("→")
    spec, pool = system.split()
    recipe = config(pool=pool)
    needs = systems.needs(read_spec(spec), recipe)
    assert bool(needs) is ("learns" in what)
    assert (Trial in needs) is ("explores" in what)


# ── what is refused ───────────────────────────────────────────────────────────────────────────────
REFUSED = """
conductor?subtask=false           → got the option 'subtask'.*nearest: 'subtasks'
conductor?subtasks=maybe          → subtasks 'maybe', expected true or false
conductor?cards=maybe             → cards 'maybe', expected true or false
conductor?template=compact        → template: got 'compact'
conductor?rounds=0                → rounds: got 0, expected a whole number from 1
conductor?rounds=unlimited        → require calls=N
conductor?examples=few            → got 'few'
conductor?one_worker=jac          → nearest is 'jack'
conductor?access=some             → got 'some'
conductor:jack                    → got 'jack' behind conductor; expected 'conductor' and options
planner                           → expected planner:PROVIDER:MODEL
worker                            → no worker, expected worker:NAME
worker:jac                        → nearest is 'jack'
oracle:jack                       → takes no name, got 'jack'; expected oracle
consensus                         → no worker, expected consensus:NAME
consensus:jack?observations=3     → got the option 'observations'
moa:jack?layer=1                  → nearest: 'layers'
moa:jack?layers=0                 → expected a whole number from 1
smoothie-lite?mode=both           → expected one of independent, dependent
routerdc-lite?router=nowhere.json → nowhere.json
best_fixed?workflow=abc           → got the option 'workflow', expected one of none
consensus:jack?key=len            → got the option 'key', expected one of n
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_cannot_be_made_is_refused_with_its_name_and_the_reason(line: str) -> None:
    spec, message = line.split("→")
    spec = spec.strip()
    with pytest.raises(ConfigError, match=message.strip()) as refused:
        workshop().check(read_spec(spec))
    assert str(refused.value).startswith(f"system {spec!r}: ")


# ── workers and questions ─────────────────────────────────────────────────────────────────────────
POOL = """
[[worker]]
name = "big"
model = "big-1"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "A_KEY_OF_MINE"
price = { input = 1.5, output = 2 }
sampling = { max_tokens = 32000, temperature = 0.2 }
body = { reasoning_effort = "high", top_k = 5 }
[[worker]]
name = "small"
model = "small-1"
base_url = "http://127.0.0.1:9/v1"
sampling = { max_tokens = 900 }
[[worker]]
name = "free"
model = "free-1"
base_url = "http://127.0.0.1:9/v1"
"""


def test_the_constrained_setting_lays_limits_over_every_workers_own() -> None:
    """A limit is never more than the worker's own, and has a default."""
    limits = {"big": {"body": {"reasoning_effort": "minimal"}}, "small": {"max_tokens": 5000}}
    pool = systems.load_pool(of_files(setting="constrained", constrained=limits))
    big, small, free = [worker.sampling for _, worker in pool]
    assert (big.max_tokens, small.max_tokens, free.max_tokens) == (4096, 900, 4096)
    assert dict(big.body) == {"reasoning_effort": "minimal", "top_k": 5}
    assert dict(small.body) == dict(free.body) == {}
    assert big.temperature == 0.2


def test_a_pools_description_holds_what_answers_and_costs_depend_on_and_no_key(
    monkeypatch,
) -> None:
    monkeypatch.setenv("A_KEY_OF_MINE", "zebra-secret")
    recipe = of_files()
    shop = systems.Workshop(recipe, systems.load_pool(recipe))
    described: Any = shop.described([read_spec("random")])["workers"]
    text = json.dumps(described)
    assert json.loads(text) == described
    assert "zebra-secret" not in text
    big, small, _ = described
    assert (big["ordinal"], big["name"]) == (0, "big")
    assert big["price"] == {"input": "1.5", "output": "2", "cached": None}
    assert big["sampling"]["body"] == {"reasoning_effort": "high", "top_k": 5}
    assert small["price"] is None
    assert "big-1" in str(big["identity"])


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
def test_a_prompted_planners_cards_are_described_and_a_trained_one_has_no_choice() -> None:
    prompted, trained = workshop(), workshop(conductor={"planner": ""})
    asked = [read_spec("conductor")]
    assert prompted.described(asked)["cards"] == {
        str(ordinal): worker.full_card for ordinal, worker in gym_pool()
    }
    assert "cards" not in trained.described(asked)
    with pytest.raises(ConfigError, match="asked as it was trained"):
        trained.check(read_spec("conductor?cards=false"))


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
def test_a_digest_moves_with_everything_that_is_asked_or_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem("p", "Q?", "A", "t", kind="easy")
    sets = [[problem]]
    for name in ("id", "question", "reference", "kind"):
        sets.append([replace(problem, **{name: "other"})])
    sets += [sets[0] + sets[1], sets[1] + sets[0]]
    digests: list[object] = []
    for problems in (*sets, sets[0]):
        monkeypatch.setattr(GymTask, "load", lambda self, problems=problems: problems)
        sheet = load_sheets(make_eval_config({"pool": "pool.toml"}, where="test"))["gym"]
        digests.append(sheet.described["digest"])
    assert len(set(digests)) == 7
    assert digests[-1] == digests[0]


def sheets_of(seed: int | None = None) -> Mapping[str, Sheet]:
    """Load GSM8K and the gym."""
    sums = {"name": "gsm8k", "path": ".", "limit": 3}
    return load_sheets(of_files(seed=seed, task=[sums, {"name": "gym", "limit": 5}]))


def test_every_task_is_loaded_under_its_name() -> None:
    sheets = sheets_of()
    assert list(sheets) == ["gsm8k", "gym"]
    sums = sheets["gsm8k"]
    assert len(sums.problems) == sums.described["problems"] == 3
    assert "test.jsonl" in json.dumps(sums.described["source"])


def test_a_tasks_own_seed_goes_before_the_recipes() -> None:
    ours = load_sheets(of_files(seed=4, task=[{"name": "gym", "limit": 5, "seed": 3}]))
    theirs, others = sheets_of(seed=3), sheets_of(seed=4)
    assert ours["gym"].problems == theirs["gym"].problems != others["gym"].problems


@pytest.mark.parametrize(
    "named", [{"task": [{"name": "gym"}, {"name": "math500"}]}, {"task": [{"name": "gsm8k"}]}]
)
def test_the_gyms_workers_are_asked_nothing_but_the_gym(named: dict[str, object]) -> None:
    with pytest.raises(
        ConfigError, match=r"can read only the gym's questions; expected a pool file: --pool FILE"
    ):
        systems.load_pool(of_files(pool="gym", **named))
    systems.load_pool(of_files(**named))
    systems.load_pool(make_eval_config({}, where="test"))


# ── what is learnt from ───────────────────────────────────────────────────────────────────────────
def test_the_splits_of_a_folder_lie_side_by_side() -> None:
    recipe = of_files(learn={"limit": 3})
    sheet = load_learning(recipe, load_sheets(recipe).values())
    assert sheet.name == "learn:gsm8k"
    assert len(sheet.problems) == sheet.described["problems"] == 3
    assert "train.jsonl" in json.dumps(sheet.described["source"])


@pytest.fixture
def learnt() -> Path:
    """A copy of the bundled Conductor that has learnt from one of the gym's questions alone."""
    copied = Path(shutil.copytree(bundled_folder(), "conductor"))
    (problem, *_) = load_sheets(config(task=HELD_OUT))["gym"].problems
    told = json.loads((copied / "conductor.json").read_text())
    told |= {"learnt_splits": [], "learnt_questions": [question_digest(problem.question)]}
    (copied / "conductor.json").write_text(json.dumps(told))
    return copied


HELD_OUT = [{"name": "gym", "limit": 5, "split": "test"}]

TRAIN = [{"name": "gym", "limit": 5, "split": "train"}]


def check_held_out(planner: str, task: list[dict[str, object]]) -> None:
    shop = workshop(conductor={"planner": planner}, task=task)
    shop.check(read_spec("conductor"))
    shop.check_held_out(load_sheets(config(task=task)).values())


@pytest.mark.parametrize(
    ("learn", "said"),
    [
        ({"split": "test"}, r"4 of 4 questions are evaluated, too .*; .*--learn TASK=FILE"),
        ({"path": "nowhere.jsonl"}, r"learn: .*nowhere\.jsonl.*--learn TASK=FILE"),
    ],
)
def test_what_is_learnt_from_is_there_and_is_not_evaluated(
    learn: dict[str, str], said: str
) -> None:
    recipe = of_files(learn=learn)
    with pytest.raises(TaskError, match=said):
        load_learning(recipe, load_sheets(recipe).values())


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"name": "math500"}, r"got the split 'train', expected one of test; .*--learn TASK or"),
        ({"name": "gsm8k", "path": "test.jsonl"}, r"the file of gsm8k, test.jsonl, is evaluated; "),
    ],
)
def test_a_task_without_questions_to_learn_from_says_how_to_name_some(task, said: str) -> None:
    recipe = of_files(task=[task])
    with pytest.raises(ConfigError, match=said):
        load_learning(recipe, [])


def test_what_a_planner_learnt_from_is_not_evaluated_whatever_it_is_called(learnt: Path) -> None:
    check_held_out("", HELD_OUT)
    with pytest.raises(TaskError, match=r"learnt from \(drawn from gym/train\)"):
        check_held_out("", TRAIN)
    with pytest.raises(TaskError, match=r"learnt from \(1 of 5\)"):
        check_held_out(str(learnt), HELD_OUT)


@pytest.mark.parametrize(("planner", "name"), [("worker:maven", "maven"), ("", "planner_alone")])
async def test_the_model_that_plans_can_be_asked_alone(planner: str, name: str) -> None:
    system = make("planner_alone", conductor={"planner": planner})
    episode = await system.orchestrator.ask("Question: sum of 1, 2")
    (result,) = episode.rounds[0].transcript.results
    assert result.calls[-1].worker == name
    assert episode.answer == result.completion.text
