"""What a pool could give, the best of several with and without luck.

The gym's table of the demo.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import pytest
from rows_of import record

from openconductor.conductor import Conductor
from openconductor.errors import AuthFailed, ConfigError, RateLimited
from openconductor.evaluation.gym_table import gym_table
from openconductor.evaluation.headroom import (
    best_single,
    corrected_oracle,
    headroom,
    outcome_matrix,
    questions_needed,
)
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Scores
from openconductor.gym.exact import oracle_workflow
from openconductor.gym.questions import draw_questions, read_question
from openconductor.gym.workers import PROFILES, gym_pool
from openconductor.prompt import PromptOptions, render_workflow
from openconductor.protocols import Provider
from openconductor.types import Completion, Message, Usage


def answers(rows: Mapping[str, Sequence[Sequence[bool | None]]]) -> list[Record]:
    """Return records of workers: for each the repeats of each question."""
    records: list[Record] = []
    for name, questions in rows.items():
        for number, repeats in enumerate(questions):
            for sample, correct in enumerate(repeats):
                mark = {True: "+", False: "-", None: "f"}[correct]
                place = {"system": f"worker:{name}", "kind": "", "usage": Usage(), "answer": None}
                records.append(record(mark, f"q{number:03}", sample, **place))
    return records


def coin(chance: Sequence[float], repeats: int, seed: str) -> list[list[bool]]:
    rng = random.Random(seed)
    return [[rng.random() < one for _ in range(repeats)] for one in chance]


def test_a_small_matrix_worked_out_by_hand() -> None:
    rows = {
        "a": [[True], [True], [False], [False]],
        "b": [[False], [True], [True], [False]],
        "c": [[False]] * 4,
    }
    found = headroom(answers(rows))
    assert found.best == "a"
    assert found.questions == 4
    assert found.repeats == 1
    assert found.masked == 0
    assert found.oracle_naive.value == 0.75
    assert found.best_naive.value == 0.5
    assert found.room_naive.value == 0.25
    assert found.oracle_corrected is found.room_corrected is None, (
        "single answers cannot be told from luck"
    )
    assert found.got_by == (1, 2, 1, 0)
    assert [one.name for one in found.workers] == ["a", "b", "c"]
    assert [one.only.value for one in found.workers] == [0.25, 0.25, 0.0]
    assert [one.loss.value for one in found.workers] == [0.25, 0.25, 0.0]
    assert found.complementary == ((0.0, 0.25, 0.5), (0.25, 0.0, 0.5), (0.0, 0.0, 0.0))
    patterns = {pattern.workers: pattern.questions for pattern in found.patterns}
    assert patterns == {("a",): 1, ("a", "b"): 1, ("b",): 1, (): 1}


def test_the_matrix_has_a_row_a_question_and_none_where_nothing_was_decided() -> None:
    found = outcome_matrix(answers({"a": [[True, False], [None]], "b": [[True, None], [False]]}))
    assert found["workers"] == ["a", "b"]
    assert found["questions"] == [("t", "q000", ""), ("t", "q001", "")]
    assert found["right"] == [[0.5, 1.0], [None, 0.0]]


def test_luck_is_no_headroom_once_it_is_corrected() -> None:
    """Four coins: the naive oracle finds a winner of each question.

    The corrected one finds nothing.
    """
    for seed in range(3):
        found = headroom(
            answers({f"w{w}": coin([0.5] * 120, 3, f"{seed}/{w}") for w in range(4)}), seed=seed
        )
        assert found is not None
        assert found.room_corrected is not None
        assert found.room_naive.low > 0.15
        assert abs(found.room_corrected.value) < 0.12


def test_specialists_have_a_headroom_and_each_is_needed_but_not_one_that_is_never_right() -> None:
    chances = {f"w{w}": [0.9 if n % 3 == w else 0.1 for n in range(240)] for w in range(3)}
    found = headroom(answers({name: coin(chance, 4, name) for name, chance in chances.items()}))
    assert found is not None
    assert found.room_corrected is not None
    assert found.room_corrected.value == pytest.approx(0.9 - 0.367, abs=0.08)
    assert [one.redundant for one in found.workers] == [False, False, False]
    found = headroom(
        answers({"good": coin([0.8] * 300, 3, "good"), "bad": coin([0.0] * 300, 3, "bad")})
    )
    assert {one.name: one.redundant for one in found.workers} == {"good": False, "bad": True}


def test_what_could_not_be_decided_is_left_out_and_counted() -> None:
    rows: dict[str, list[list[bool | None]]] = {"a": [[True], [None]], "b": [[False], [False]]}
    found = headroom(answers(rows))
    assert found.masked == 1
    assert found.workers[0].accuracy.value == 1.0
    assert found.workers[0].accuracy.masked == 1


def test_so_many_questions_show_the_gain_four_times_in_five() -> None:
    """Connor, Biometrics 43 (1987): two systems that differ on three questions in ten."""
    assert questions_needed(0.1, 0.3) == 234
    assert questions_needed(0.2, 0.3) == 57


# ── the best of several ───────────────────────────────────────────────────────────────────────────
def keyed(*by_problem: list[float]) -> Scores:
    return {("t", f"p{place:03}"): scores for place, scores in enumerate(by_problem) if scores}


def mean(scores: Scores) -> float:
    return fmean(fmean(of_one) for of_one in scores.values())


def test_a_question_is_scored_by_the_system_that_is_best_on_the_others() -> None:
    # Each is right on one of two questions: outside p000 the second is best, which is wrong on
    # p000; and so with p001.
    found = best_single({"first": keyed([1.0], [0.0]), "second": keyed([0.0], [1.0])})
    assert found.name == "first"
    assert mean(found.naive) == 0.5
    assert found.fitted == {("t", "p000"): [0.0], ("t", "p001"): [0.0]}
    assert found.chosen == {"first": 0.5, "second": 0.5}


def test_the_best_of_many_coins_looks_better_than_a_coin_and_cross_fitted_does_not() -> None:
    rng, found = random.Random(0), []
    for seed in range(40):
        coins = {
            f"coin {one}": keyed(*([float(rng.random() < 0.5)] for _ in range(60)))
            for one in range(8)
        }
        best = best_single(coins, seed=seed)
        found.append((mean(best.naive), mean(best.fitted)))
    assert fmean(naive for naive, _ in found) > 0.56
    assert fmean(fitted for _, fitted in found) == pytest.approx(0.5, abs=0.03)


def test_one_that_failed_on_all_but_an_easy_question_is_not_the_best() -> None:
    found = best_single({"broken": keyed([1.0]), "good": keyed(*[[1.0]] * 9, [0.0])})
    assert found.name == "good"
    assert mean(found.naive) == 0.9
    assert found.chosen == {"good": 1.0}


@pytest.mark.parametrize(
    ("scores", "corrected"),
    [
        # Repeat 0 is scored by who is best on repeats 1 and 2: a (1/2) over b (0): a's 1. Repeat 1:
        # a by 2/2: a's 0 ...
        ({"a": [1.0, 0.0, 1.0], "b": [0.0, 0.0, 0.0]}, 2 / 3),
        # Of equals each counts. Held out 0: both have 0 on the rest: the mean of 1 and 0. Held out
        # 1: a's 0.
        ({"a": [1.0, 0.0], "b": [0.0, 0.0]}, 0.25),
        ({"a": [0.0, 0.0], "b": [1.0]}, 0.0),  # with one decided repeat b is left out
    ],
)
def test_the_corrected_oracle_chooses_by_the_other_repeats(
    scores: dict[str, list[float]], corrected: float
) -> None:
    found = corrected_oracle({name: keyed(one) for name, one in scores.items()})
    assert found == {("t", "p000"): [pytest.approx(corrected)]}


# ── the gym's table ───────────────────────────────────────────────────────────────────────────────
NAMES = [profile.name for profile in PROFILES]
QUESTIONS, SEED = 48, 5


class Knowing(Provider):
    """A planner that writes the oracle's workflow.

    But no workflow at all for questions of one kind.
    """

    prompt_options = PromptOptions(template="compact")

    def __init__(self, fails_at: str = "") -> None:
        self._fails_at = fails_at

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        question = read_question(messages[-1].content.split("Question: ")[1].strip())
        text = (
            "pass"
            if question.kind == self._fails_at
            else render_workflow(oracle_workflow(question)[0])
        )
        return Completion(text, usage=Usage(input_tokens=10, output_tokens=5))


async def table_of(planner: object, **options: object) -> dict[str, Any]:
    conductor = Conductor(planner, pool=gym_pool(SEED))  # type: ignore[arg-type]
    return (await gym_table(conductor, questions=QUESTIONS, seed=SEED, **options)).to_json()  # type: ignore[arg-type]


async def test_a_conductor_that_writes_the_oracles_workflows_is_as_right_as_the_oracle() -> None:
    told: list[tuple[int, int, str]] = []
    table = await table_of(Knowing(), on_progress=lambda *progress: told.append(progress))
    assert (
        table["accuracy"]["conductor"]
        == table["accuracy"]["oracle"]
        == table["accuracy_given_valid"]
    )
    assert table["ci95"]["conductor"] == table["ci95"]["oracle"]
    assert table["validity"] == 1.0
    assert table["accuracy"]["best_worker"] == max(table["workers"].values())
    drawn = draw_questions("test", QUESTIONS, seed=SEED)
    assert table["mean_steps"] == pytest.approx(
        fmean(len(oracle_workflow(question)[0]) for question in drawn)
    )
    systems = [*NAMES, "random", "best_fixed", "oracle", "conductor"]
    assert told == [(done, QUESTIONS, name) for name in systems for done in range(1, QUESTIONS + 1)]


async def test_an_invalid_plan_counts_as_wrong_and_in_validity() -> None:
    table = await table_of(Knowing(fails_at="single"))
    singles = sum(
        question.kind == "single" for question in draw_questions("test", QUESTIONS, seed=SEED)
    )
    right = table["accuracy"]["conductor"]
    assert table["validity"] == pytest.approx(1 - singles / QUESTIONS)
    assert table["accuracy_given_valid"] == pytest.approx(right * QUESTIONS / (QUESTIONS - singles))
    assert table["mean_steps_by_kind"]["single"] is None
    assert table["masked"] == 0
    table = await table_of(lambda messages: "I would rather not.")
    assert table["accuracy"]["conductor"] == 0.0
    assert table["validity"] == 0.0
    assert table["accuracy_given_valid"] is None
    assert table["mean_steps"] is None
    assert table["routing_entropy_bits"] == 0.0
    assert dict(table["topology_share"]) == {}
    json.dumps(table)


async def test_a_failure_of_the_conductors_provider_is_left_out_and_said() -> None:
    class Flaky(Knowing):
        async def complete(self, *arguments: object, **options: object) -> Completion:
            if "smudged" in str(arguments[0]):
                raise RateLimited("too many")
            return await super().complete(*arguments, **options)  # type: ignore[arg-type]

    table = await table_of(Flaky())
    smudged = sum(question.smudged for question in draw_questions("test", QUESTIONS, seed=SEED))
    assert table["masked"] == smudged
    assert table["validity"] == 1.0


@pytest.mark.parametrize("error", [RateLimited("too many"), AuthFailed("the key is wrong")])
async def test_a_provider_that_always_fails_is_an_error_and_no_table(error: Exception) -> None:
    async def fail(messages: list[Message]) -> str:
        raise error

    with pytest.raises(type(error)):
        await table_of(fail)
    with pytest.raises(ConfigError, match="got 0"):
        await gym_table(Conductor(fail, pool=gym_pool()), questions=0)
