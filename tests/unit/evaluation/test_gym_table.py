"""The gym's table: what ``demo --json`` prints, and that it says what happened."""

from __future__ import annotations

import json

import pytest

from openconductor.conductor import Conductor
from openconductor.errors import AuthFailed, ConfigError, RateLimited
from openconductor.evaluation.gym_table import GymTable, gym_table
from openconductor.gym.exact import oracle_workflow
from openconductor.gym.questions import KINDS, draw_questions, read_question
from openconductor.gym.workers import PROFILES, gym_pool
from openconductor.prompt import PromptOptions, render_workflow
from openconductor.protocols import CallContext, OnText
from openconductor.types import Completion, Message, Sampling, Step, Usage, Workflow

NAMES = [profile.name for profile in PROFILES]
QUESTIONS, SEED = 48, 5


class Knowing:
    """A planner that writes the oracle's workflow, but no workflow at all for questions of one kind."""

    prompt_options = PromptOptions(template="compact")

    def __init__(self, fails_at: str = "") -> None:
        self._fails_at = fails_at

    async def complete(
        self,
        messages: tuple[Message, ...],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        question = read_question(messages[-1].content.split("Question: ")[1].strip())
        assert question is not None
        text = "pass" if question.kind == self._fails_at else render_workflow(oracle_workflow(question)[0])
        return Completion(text, usage=Usage(input_tokens=10, output_tokens=5))


async def table_of(planner: object, **options: object) -> GymTable:
    conductor = Conductor(planner, pool=gym_pool(SEED))  # type: ignore[arg-type]
    return await gym_table(conductor, questions=QUESTIONS, seed=SEED, **options)  # type: ignore[arg-type]


async def test_the_table_is_one_json_object_of_the_agreed_shape() -> None:
    printed = json.loads(json.dumps((await table_of(Knowing())).to_json()))
    assert (printed["questions"], printed["seed"]) == (QUESTIONS, SEED)
    levels = {"conductor", "random", "best_worker", "best_fixed", "oracle"}
    assert set(printed["accuracy"]) == set(printed["ci95"]) == levels
    for name in levels:
        low, high = printed["ci95"][name]
        assert 0 <= low <= printed["accuracy"][name] <= high <= 1
    assert list(printed["workers"]) == list(printed["worker_share"]) == NAMES
    assert printed["accuracy"]["best_worker"] == max(printed["workers"].values())
    assert list(printed["mean_steps_by_kind"]) == list(KINDS)
    assert sum(printed["worker_share"].values()) == pytest.approx(1)
    assert sum(printed["topology_share"].values()) == pytest.approx(1)
    assert 0 < printed["routing_entropy_bits"] <= 3
    assert set(printed["usage"]) == {"input_tokens", "output_tokens", "dollars"}
    assert isinstance(printed["usage"]["dollars"], float) and printed["usage"]["dollars"] > 0
    assert printed["seconds"] > 0


async def test_a_conductor_that_writes_the_oracles_workflows_is_as_right_as_the_oracle() -> None:
    table = await table_of(Knowing())
    assert table.levels["conductor"] == table.levels["oracle"]
    assert table.validity == 1.0
    assert table.accuracy_given_valid == table.levels["conductor"].value
    steps = list(table.mean_steps_by_kind.values())
    assert steps == sorted(steps, key=float)  # type: ignore[arg-type]
    drawn = draw_questions("test", QUESTIONS, seed=SEED)
    assert table.mean_steps == pytest.approx(sum(len(oracle_workflow(question)[0]) for question in drawn) / QUESTIONS)


async def test_an_invalid_plan_counts_as_wrong_and_in_validity() -> None:
    whole, table = await table_of(Knowing()), await table_of(Knowing(fails_at="single"))
    singles = sum(question.kind == "single" for question in draw_questions("test", QUESTIONS, seed=SEED))
    assert table.validity == pytest.approx(1 - singles / QUESTIONS)
    assert table.levels["conductor"].value < whole.levels["conductor"].value
    assert table.accuracy_given_valid == pytest.approx(
        table.levels["conductor"].value * QUESTIONS / (QUESTIONS - singles)
    )
    assert table.mean_steps_by_kind["single"] is None
    assert table.masked == 0


async def test_a_conductor_without_any_valid_plan_is_wrong_everywhere() -> None:
    table = await table_of(lambda messages: "I would rather not.")
    assert table.levels["conductor"].value == 0.0
    assert (table.validity, table.accuracy_given_valid, table.mean_steps) == (0.0, None, None)
    assert (table.routing_entropy_bits, dict(table.topology_share)) == (0.0, {})
    assert set(table.worker_share.values()) == {0.0}
    json.dumps(table.to_json())


async def test_the_usage_is_the_conductors_own_and_its_workers() -> None:
    lazy = render_workflow(Workflow((Step(2, "sort the list"),)))

    async def plan(messages: list[Message]) -> str:
        return lazy

    table = await table_of(plan)
    assert table.worker_share["novice"] == 1.0
    assert dict(table.topology_share) == {"single": 1.0}
    read = sum(
        len(f"{question.text} sort the list".split()) for question in draw_questions("test", QUESTIONS, seed=SEED)
    )
    assert 0.8 * read <= table.usage.input_tokens <= read  # a refused call is not billed


async def test_the_same_seed_measures_the_same_and_another_one_something_else() -> None:
    first, again = await table_of(Knowing()), await table_of(Knowing())
    assert {**first.to_json(), "seconds": 0} == {**again.to_json(), "seconds": 0}
    other = await gym_table(Conductor(Knowing(), pool=gym_pool(1)), questions=QUESTIONS, seed=1)
    assert other.to_json()["usage"] != first.to_json()["usage"]


async def test_progress_counts_every_answer_of_every_system() -> None:
    told: list[tuple[int, int, str]] = []
    await table_of(Knowing(), on_progress=lambda *progress: told.append(progress))
    systems = [*NAMES, "random", "best_fixed", "oracle", "conductor"]
    assert told == [(done, QUESTIONS, name) for name in systems for done in range(1, QUESTIONS + 1)]


async def test_a_failure_of_the_conductors_provider_is_left_out_and_said() -> None:
    class Flaky(Knowing):
        async def complete(self, *arguments: object, **options: object) -> Completion:
            if "smudged" in str(arguments[0]):
                raise RateLimited("too many")
            return await super().complete(*arguments, **options)  # type: ignore[arg-type]

    table = await table_of(Flaky())
    smudged = sum(question.smudged for question in draw_questions("test", QUESTIONS, seed=SEED))
    assert table.masked == smudged
    assert table.levels["conductor"].problems == QUESTIONS - smudged
    assert table.validity == 1.0


@pytest.mark.parametrize("error", [RateLimited("too many"), AuthFailed("the key is wrong")])
async def test_a_provider_that_always_fails_is_an_error_and_no_table(error: Exception) -> None:
    async def fail(messages: list[Message]) -> str:
        raise error

    with pytest.raises(type(error)):
        await table_of(fail)


async def test_no_questions_are_refused() -> None:
    with pytest.raises(ConfigError, match="got 0"):
        await gym_table(Conductor(Knowing(), pool=gym_pool()), questions=0)
