"""What TRL is given, and what is made of an iteration's completions."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import openconductor as oc
from openconductor.errors import (
    BudgetExceeded,
    ConfigError,
    GradingError,
    SandboxError,
    TrainingStopped,
    WorkerError,
)
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import CodeTests, IoTest
from openconductor.graders.freeform import FreeFormAnswer, FreeFormGrader
from openconductor.gym.sampling import phrases, write_index
from openconductor.gym.workers import gym_pool
from openconductor.pool import read_card
from openconductor.protocols import Grader
from openconductor.reward import Scored
from openconductor.store import Journal
from openconductor.tasks.paper_mix import MixGrader
from openconductor.tasks.simulated import find_simulation
from openconductor.training import run, scoring
from openconductor.training.checkpoint import build_tokenizer
from openconductor.training.curves import Curve
from openconductor.training.grpo import grpo_arguments, make_rows
from openconductor.training.sampling import _Explorer, draw_pool
from openconductor.training.scoring import Rewards, Sampled, Scorer, check_masked
from openconductor.training.setup import Questions, Setup
from openconductor.training.supervised import reading_row
from openconductor.training.train_config import TrainConfig, load_train_config
from openconductor.types import Completion, Episode, Grade, Problem, Usage

pytestmark = pytest.mark.train

RECIPE = Path(__file__).parents[3] / "recipes" / "gym.toml"
PLAN = 'model_id = [0]\nsubtasks = ["Answer."]\naccess_list = [[]]'


@pytest.mark.parametrize(
    ("overrides", "processes", "micro", "steps"),
    [
        ([], 1, 256, 1),
        (["optim.micro_batch=64"], 1, 64, 4),
        (["optim.micro_batch=64"], 2, 64, 2),
        (
            ["rollout.questions=4", "rollout.completions=4"],
            1,
            16,
            1,
        ),  # fewer than the recipe's micro batch of 256
        (["rollout.questions=4", "rollout.completions=4"], 2, 8, 1),
    ],
)
def test_an_update_sees_the_whole_batch_whatever_the_number_of_processes(
    overrides: list[str], processes: int, micro: int, steps: int, tmp_path: Path
) -> None:
    config = load_train_config(RECIPE, overrides)
    given = grpo_arguments(config, tmp_path, processes=processes)
    assert (given.per_device_train_batch_size, given.gradient_accumulation_steps) == (micro, steps)
    assert (
        micro * steps * processes
        == given.generation_batch_size
        == config.rollout.questions * config.rollout.completions
    )


@pytest.mark.parametrize(
    "overrides", [["optim.micro_batch=100"], ["rollout.rounds=2", "rollout.questions=2"]]
)
def test_a_batch_that_cannot_be_shared_out_is_refused(overrides: list[str], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"rollout\.questions x rollout\.completions: got .* over 3 processes"
    ):
        grpo_arguments(load_train_config(RECIPE, overrides), tmp_path, processes=3)


def test_the_engine_that_samples_reaches_trl(tmp_path: Path) -> None:
    wanted = [
        "rollout.engine=vllm_server",
        'rollout.vllm_url="http://10.0.0.5:8000"',
        'trackers=["tensorboard"]',
    ]
    given = grpo_arguments(load_train_config(RECIPE, wanted), tmp_path)
    assert (given.use_vllm, given.vllm_mode, given.vllm_server_base_url) == (
        True,
        "server",
        "http://10.0.0.5:8000",
    )
    assert given.report_to == ["tensorboard"]
    given = grpo_arguments(
        load_train_config(RECIPE, ["rollout.engine=vllm", "rollout.vllm_memory=0.4"]),
        tmp_path,
    )
    assert (given.vllm_mode, given.vllm_gpu_memory_utilization) == ("colocate", 0.4)


# ── the data set ──────────────────────────────────────────────────────────────────────────────────
def setup_of(
    tmp_path: Path,
    scorer: Scorer | None = None,
    said: Callable[[str], None] = print,
    **values: object,
) -> Setup:
    sizes = {"questions": 2, "completions": 2}
    given = {"pool": "gym", "data": {"task": "gym"}, **values}
    given["rollout"] = {**sizes, **given.get("rollout", {})}  # type: ignore[dict-item]
    config = TrainConfig.model_validate(given)
    return Setup(
        config,
        tmp_path,
        gym_pool(),
        Questions(FreeFormGrader(), find_simulation("gym")),
        scorer,
        said,
    )


def test_a_reference_of_any_type_is_learnt_from_because_no_row_holds_it(tmp_path: Path) -> None:
    from datasets import Dataset

    problems = [
        Problem("1", "What is 1 + 1?", FreeFormAnswer("2"), "rlpr"),
        Problem("2", "Print 7.", object(), "livecodebench"),
    ]
    rows = Dataset.from_list(make_rows(problems, setup_of(tmp_path)))
    assert [(row["problem"], row["round"]) for row in rows] == [(0, 0), (1, 0)]


def test_a_question_offers_a_drawn_subset_of_the_workers_whose_ordinals_stay(
    tmp_path: Path,
) -> None:
    problems = [Problem(str(index), f"What is {index}?", "1", "gym") for index in range(50)]
    setup = setup_of(tmp_path, rollout={"offered": [2, 3]})
    rows = make_rows(problems, setup)
    assert rows == make_rows(problems, setup), "a resumed run offers the same"
    shown = [
        re.findall(r"^Model (\d+)$", row["prompt"][0]["content"], re.MULTILINE) for row in rows
    ]
    assert {len(each) for each in shown} == {2, 3}
    assert {ordinal for each in shown for ordinal in each} == set("01234567")


def test_drawn_workers_are_others_for_each_question_and_shown_with_their_cards(
    tmp_path: Path,
) -> None:
    problems = [Problem(str(index), f"What is {index}?", "1", "gym") for index in range(8)]
    setup = setup_of(tmp_path, pool="gym:drawn", prompt={"template": "compact", "cards": True})
    rows = make_rows(problems, setup)
    assert rows == make_rows(problems, setup), "a resumed run draws the same"
    pools = [row["prompt"][0]["content"].split("Question: ")[0] for row in rows]
    assert len(set(pools)) == 8
    for index, shown in enumerate(pools):
        cards = draw_pool(setup.config, setup.pool, str(index)).cards
        assert shown == "".join(f"Model {ordinal}: {card}\n" for ordinal, card in cards.items())


def test_an_exercise_in_reading_asks_nothing_and_says_who_is_listed(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, pool="gym:drawn", prompt={"template": "compact", "cards": True})
    tokenizer = build_tokenizer(phrases(cards=True))
    prompt, said = reading_row(tokenizer, setup, "1")
    cards = draw_pool(setup.config, setup.pool, "1").cards
    asked = "".join(f"Model {ordinal}: {card}\n" for ordinal, card in cards.items())
    assert tokenizer.decode(prompt) == f"{asked}Question: ?\n"
    assert tokenizer.decode(said, skip_special_tokens=True) == write_index(cards)
    entries = sum(len(read_card(card)) for card in cards.values())
    assert len(said) == 2 * entries + 1, "a category and a worker are a token each"


def test_a_number_that_comes_first_is_explored_in_some_rows_and_slips_are_not() -> None:
    likely, words = [0.9, 0.0699, 0.00005, 0.03005], [0.3, 0.1, 0.0, 0.6]
    chances = torch.tensor([likely, likely, words])
    numbers = torch.tensor([True, True, True, False])
    explored = _Explorer(torch.tensor([[True], [False], [True]]), 7, numbers, temperature=2.0)
    first = explored(torch.zeros(3, 7), chances.log()).softmax(-1)
    assert first[0].tolist() == pytest.approx([0.782, 0.218, 0.0, 0.0], abs=0.001)
    assert first[1].tolist() == pytest.approx(likely, abs=0.001), "another row"
    assert first[2].tolist() == pytest.approx(words, abs=0.001), "mostly no number"
    assert explored(torch.zeros(3, 8), chances.log()).equal(chances.log()), "a later token"


def test_in_recursion_each_question_has_two_rows(tmp_path: Path) -> None:
    problems = [Problem("1", "What?", "1", "gym"), Problem("2", "Why?", "2", "gym")]
    rows = make_rows(problems, setup_of(tmp_path, rollout={"rounds": 2}))
    assert [(row["problem"], row["round"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]


# ── scores ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("control", "expected"), [("none", [1.0, 0.5, 0.5, 0.0]), ("flipped", [0.0, 0.5, 0.5, 1.0])]
)
def test_the_controls_break_the_rewards_and_nothing_else(
    control: str, expected: list[float], tmp_path: Path
) -> None:
    said: list[str] = []
    setup = setup_of(tmp_path, said=said.append, reward={"control": control})
    problems = [
        Problem("1", "What is 1 + 1?", "2", "math500"),
        Problem("1", "Which one?", "B", "mmlu"),
    ]
    rewards = Rewards(setup, problems, Curve(tmp_path / "curves.jsonl", after=10))
    scored = [scored_as(reward) for reward in (1.0, 0.5, 0.5, 0.0)]
    assert rewards.finish(scored, ["math500", "math500", "mmlu", "mmlu"], 10, group=2) == expected
    (record,) = rewards.curve.records
    assert (record["iteration"], record["accuracy"], set(record["accuracy_by_kind"])) == (
        10,
        0.25,
        {"math500", "mmlu"},
    )
    assert said[0].startswith("iteration 10 of 210: accuracy 0.250")


def test_imitation_learns_from_what_was_graded_right_whatever_else_it_is_worth(
    tmp_path: Path,
) -> None:
    scored = [
        replace(scored_as(right), reward=own)
        for right, own in ((1.0, 0.2), (0.5, 9.0), (1.0, None))
    ]
    rewards = Rewards(setup_of(tmp_path), [], Curve(tmp_path / "curves.jsonl"))
    assert rewards.finish(scored, ["a", "b", "c"], 0, group=1, phase="imitate") == [1.0, 0.5, None]
    assert rewards.finish(scored, ["a", "b", "c"], 0, group=1) == [0.2, 9.0, None]
    assert [(one["accuracy"], one["masked"]) for one in rewards.curve.records] == [
        (pytest.approx(2 / 3), 1)
    ] * 2


def scored_as(reward: float | None, note: str = "") -> Scored:
    grade = Grade(None if reward is None else reward == 1.0, "2", note)
    return Scored(reward, Episode("What?", (), "2", None, Usage(), 0.0), grade)


def test_an_iteration_that_is_mostly_masked_stops_the_run_and_says_why() -> None:
    check_masked([scored_as(1.0)] * 8 + [scored_as(None)] * 2)
    with pytest.raises(
        TrainingStopped, match=r"3 of 10 rewards .* reason \(3 times\): no verdict within 60 s"
    ):
        check_masked([scored_as(1.0)] * 7 + [scored_as(None, "no verdict within 60 s")] * 3)


def test_a_start_that_could_not_be_measured_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away:
        def score(self, sampled: Sequence[Sampled], *, phase: str) -> list[Scored]:
            return [scored_as(None, "no connection")] * len(sampled)

    monkeypatch.setattr(run, "write_prompt", lambda *_: "")
    monkeypatch.setattr(
        run, "complete", lambda _model, _tokenizer, prompts, **_: [Completion(PLAN)] * len(prompts)
    )
    with pytest.raises(TrainingStopped, match=r"64 of 64 rewards are masked.*no connection"):
        run._measure_start(setup_of(tmp_path, Away()), None, None)  # type: ignore[arg-type]
    assert not (tmp_path / "start.json").exists()


def test_what_stops_the_first_process_stops_the_others_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(scoring, "broadcast_object_list", sent.append)
    monkeypatch.setattr(
        scoring, "PartialState", lambda: SimpleNamespace(num_processes=2, is_main_process=True)
    )

    def spend() -> None:
        raise BudgetExceeded("6 calls used", limit="calls")

    with pytest.raises(BudgetExceeded):
        scoring.on_first(spend)
    (told,) = sent
    over = pickle.loads(pickle.dumps(told))
    monkeypatch.setattr(
        scoring, "broadcast_object_list", lambda box: box.__setitem__(slice(None), over)
    )
    monkeypatch.setattr(
        scoring, "PartialState", lambda: SimpleNamespace(num_processes=2, is_main_process=False)
    )
    with pytest.raises(
        TrainingStopped, match="the first process stopped: BudgetExceeded: 6 calls used"
    ):
        scoring.on_first(spend)


@pytest.fixture
def scorer(tmp_path: Path) -> Iterator[Callable[..., Scorer]]:
    made: list[Scorer] = []
    journals: list[Journal] = []

    def make(
        worker: Callable[..., str], *, grader: Grader | None = None, **values: object
    ) -> Scorer:
        price = oc.Price(Decimal(1), Decimal(1))
        pool = oc.WorkerPool(
            [
                oc.Worker(worker, name="one", price=price),
                oc.Worker(judge, name="judge", price=price),
            ]
        )
        journal = Journal(tmp_path / f"journal-{len(journals)}.sqlite")
        journals.append(journal)
        config = TrainConfig.model_validate(values)
        made.append(Scorer(config, pool.replaying(journal), grader or FreeFormGrader(), journal))
        return made[-1]

    yield make
    for one in made:
        one.close()
    for journal in journals:
        journal.close()


def judge(messages: list[oc.Message]) -> str:
    return "Verdict: right" if "a fast car" in messages[-1].content else "Verdict: wrong"


FREE = Problem("1", "What is it?", FreeFormAnswer("a quick automobile", "text"), "rlpr")


@pytest.mark.parametrize(
    ("reward", "answer", "expected"),
    [
        ({}, "a fast car", (0.5, False)),
        ({"undecided": "masked"}, "a fast car", (None, None)),
        ({"judge": "judge"}, "a fast car", (1.0, True)),
        ({"judge": "judge"}, "a slow car", (0.5, False)),
        ({}, "a quick automobile", (1.0, True)),
    ],
)
def test_what_the_rules_cannot_decide_is_wrong_masked_or_judged_as_the_recipe_says(
    reward: dict[str, object],
    answer: str,
    expected: tuple[object, object],
    scorer: Callable[..., Scorer],
) -> None:
    (scored,) = scorer(lambda _: rf"\boxed{{{answer}}}", reward=reward).score(
        [Sampled(FREE, Completion(PLAN), 0)], phase="x"
    )
    assert (scored.reward, scored.correct) == expected


def test_a_grader_that_fails_masks_whatever_the_recipe_says(scorer: Callable[..., Scorer]) -> None:
    class Failing:
        async def grade(self, problem: Problem, answer: str) -> Grade:
            raise GradingError("the sandbox is gone")

    (scored,) = scorer(lambda _: "42", grader=Failing()).score(
        [Sampled(FREE, Completion(PLAN), 0)], phase="x"
    )
    assert scored.reward is None


def test_a_judge_that_fails_and_a_sandbox_that_fails_mask_whatever_the_recipe_says(
    scorer: Callable[..., Scorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(messages: list[oc.Message]) -> str:
        if "Verdict" in messages[-1].content:
            raise WorkerError("away", retryable=False)
        return r"\boxed{a fast car}"

    (judged,) = scorer(away, reward={"judge": "one"}).score(
        [Sampled(FREE, Completion(PLAN), 0)], phase="x"
    )
    assert (
        judged.reward is None
        and judged.grade is not None
        and "the judge failed" in judged.grade.note
    )

    async def broken(*_: object) -> str:
        raise SandboxError("no user namespaces")

    monkeypatch.setattr(CodeGrader, "_run_outside", broken)
    grader = MixGrader({"code": CodeGrader()})
    program = Problem("2", "Print 42.", CodeTests((IoTest("", "42"),)), "code")
    (run_,) = scorer(lambda _: "```python\nprint(42)\n```", grader=grader).score(
        [Sampled(program, Completion(PLAN), 0)], phase="x"
    )
    assert (
        run_.reward is None and run_.grade is not None and "no user namespaces" in run_.grade.note
    )


def test_a_judge_must_be_a_worker_of_the_pool(scorer: Callable[..., Scorer]) -> None:
    with pytest.raises(ConfigError, match="nobody"):
        scorer(lambda _: "42", reward={"judge": "nobody"})


def test_the_budget_of_a_training_stops_it_and_calls_of_the_journal_are_not_paid_again(
    scorer: Callable[..., Scorer],
) -> None:
    calls: list[object] = []

    def work(messages: object) -> str:
        calls.append(messages)
        return r"\boxed{a fast car}"

    made = scorer(work, budget={"calls": 6})
    sampled = [Sampled(FREE, Completion(PLAN), index) for index in range(10)]
    made.score(sampled[:3], phase="x")
    assert [one.reward for one in made.score(sampled[:3], phase="x")] == [0.5] * 3
    assert len(calls) == 3
    with pytest.raises(BudgetExceeded, match="6 allowed"):
        made.score(sampled[3:], phase="y")
    assert len(calls) == 6
    assert [one.reward for one in made.score(sampled[:3], phase="x")] == [0.5] * 3, (
        "what was paid needs no more budget"
    )
    assert len(calls) == 6


def test_a_worker_without_a_price_is_refused_under_a_budget_of_dollars_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    pool = oc.WorkerPool([oc.Worker(judge, name="one")])
    with (
        Journal(tmp_path / "journal.sqlite") as journal,
        pytest.raises(ConfigError, match="'one' has no price"),
    ):
        Scorer(
            TrainConfig.model_validate({"budget": {"dollars": 1}}), pool, FreeFormGrader(), journal
        )


def test_every_completion_stands_in_the_journal_with_why_it_is_no_workflow(
    scorer: Callable[..., Scorer], tmp_path: Path
) -> None:
    def fail(_: object) -> str:
        raise WorkerError("away", retryable=False)

    scorer(fail).score(
        [Sampled(FREE, Completion(text), 0) for text in (PLAN, "no plan")], phase="iteration 4"
    )
    with Journal.reading(tmp_path / "journal-0.sqlite") as journal:
        first, second = (record.value for record in journal.records())
    assert (first["training"], first["completion"], first["invalid"], first["reward"]) == (
        "iteration 4",
        PLAN,
        None,
        None,
    )
    assert (second["invalid"], second["reward"]) == ("missing_list", 0.0)
