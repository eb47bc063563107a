"""Rewards of an iteration's completions."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.training.conftest import MakeSetup

import openconductor as oc
from openconductor.errors import (
    BudgetExceeded,
    ConfigError,
    GradingError,
    OpenConductorError,
    TrainingStopped,
    WorkerError,
    WorkflowError,
    WorkflowReason,
)
from openconductor.graders.freeform import FreeFormAnswer, FreeFormGrader
from openconductor.protocols import Grader
from openconductor.reward import Scored
from openconductor.store import open_store, read_store
from openconductor.testing import Scripted
from openconductor.traces import TracesTable, open_traces
from openconductor.training import run, scoring
from openconductor.training.completions import why_invalid
from openconductor.training.curves import Curve, Record
from openconductor.training.scoring import Rewards, Sampled, Scorer, check_masked
from openconductor.training.setup import Setup
from openconductor.training.train_config import TrainConfig
from openconductor.types import Completion, Episode, Grade, Problem, Round, Usage

pytestmark = pytest.mark.train

PLAN = 'model_id = [0]\nsubtasks = ["Answer."]\naccess_list = [[]]'
FREE = Problem("1", "What is it?", FreeFormAnswer("a quick automobile", "text"), "rlpr")
ATTEMPT = Sampled(FREE, Completion(PLAN), 0)
INVALID = WorkflowError(WorkflowReason.MISSING_LIST, "no plan")


def scored_as(reward: float | None, note: str = "") -> Scored:
    grade = Grade(None if reward is None else reward == 1.0, "2", note)
    return Scored(reward, Episode("What?", (), "2", None, Usage(), 0.0), grade)


def without_answer(error: OpenConductorError) -> Scored:
    return Scored(None, replace(scored_as(None).episode, answer=None, error=error), None)


# ── rewards ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("control", "expected"), [("none", [1.0, 0.5, 0.5, 0.0]), ("flipped", [0.0, 0.5, 0.5, 1.0])]
)
def test_the_controls_break_the_rewards_and_nothing_else(
    control: str, expected: list[float], tmp_path: Path, make_setup: MakeSetup
) -> None:
    lines: list[str] = []
    setup = make_setup(lines.append, reward={"control": control})
    rewards = Rewards(setup, [], Curve(tmp_path / "curves.jsonl", after=10))
    scored = [scored_as(reward) for reward in (1.0, 0.5, 0.5, 0.0)]
    kinds = ["math500", "math500", "mmlu", "mmlu"]
    assert rewards.finish(scored, kinds, [""] * 4, 10, group=2) == expected
    assert rewards.curve.records == []
    rewards.record(entropy=0.25)
    (record,) = rewards.curve.records
    assert record["entropy"] == 0.25
    assert rewards.record() == {}, "an iteration is recorded once"
    assert (record["iteration"], record["accuracy"]) == (10, 0.25)
    assert set(record["accuracy_by_kind"]) == {"math500", "mmlu"}
    assert lines[0].startswith("iteration 10 of 210: accuracy 0.250")


def test_imitation_learns_from_what_was_graded_right_whatever_else_it_is_worth(
    tmp_path: Path, make_setup: MakeSetup
) -> None:
    own = [0.2, 9.0, None]
    scored = [replace(scored_as(1.0), reward=value) for value in own]
    scored[1] = replace(scored_as(0.5), reward=9.0)
    rewards = Rewards(make_setup(), [], Curve(tmp_path / "curves.jsonl"))
    kinds = ["a", "b", "c"]
    keys = [""] * 3
    assert rewards.finish(scored, kinds, keys, 0, group=1, phase="imitate") == [1.0, 0.5, None]
    assert rewards.finish(scored, kinds, keys, 0, group=1) == own
    rewards.record()
    for record in rewards.curve.records:
        assert record["accuracy"] == pytest.approx(2 / 3)
        assert record["masked"] == 1


def test_an_iteration_that_is_mostly_masked_stops_the_run_and_says_why() -> None:
    right = [scored_as(1.0)] * 7
    check_masked([*right, scored_as(1.0), *[scored_as(None)] * 2])
    message = r"3 of 10 rewards .* reason \(3 times\): no verdict within 60 s"
    with pytest.raises(TrainingStopped, match=message):
        check_masked(right + [scored_as(None, "no verdict within 60 s")] * 3)


def test_a_start_that_could_not_be_measured_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_setup: MakeSetup
) -> None:
    class Away:
        def score(self, sampled: Sequence[Sampled], *, phase: str) -> list[Scored]:
            return [scored_as(None, "no connection")] * len(sampled)

    def complete(_model: object, _tokenizer: object, prompts: list[str], **_: object) -> object:
        return [Completion(PLAN)] * len(prompts)

    monkeypatch.setattr(run, "write_prompt", lambda *_: "")
    monkeypatch.setattr(run, "complete", complete)
    monkeypatch.setattr(run, "_load_alone", lambda *_: (None, None))
    setup = replace(make_setup(), scorer=Away())
    with pytest.raises(TrainingStopped, match=r"64 of 64 rewards are masked.*no connection"):
        run._measure_start(setup, None)
    assert not (tmp_path / "start.json").exists()


def play_second_rounds(setup: Setup, second: Scored) -> Record:
    """Measure held-out first rounds that are right, each followed by the same second round."""

    class TwoRounds:
        def score(self, sampled: Sequence[Sampled], *, phase: str) -> list[Scored]:
            played = Round(Completion(PLAN))
            first = scored_as(1.0)
            first = replace(first, episode=replace(first.episode, rounds=(played,)))
            scored = [first] * len(sampled)
            if phase == "greedy, round 1":
                scored[0] = second
            return scored

    setup = replace(setup, scorer=TwoRounds())
    return run._measure_plans(setup, None, None, "greedy", temperature=None)


@pytest.mark.parametrize(
    ("second", "masked", "accuracy"),
    [
        (scored_as(0.5), 0, 0.9),
        (scored_as(1.0), 0, 1.0),
        (without_answer(INVALID), 0, 1.0),
        (without_answer(WorkerError("away")), 1, 1.0),
    ],
    ids=["wrong", "right", "invalid", "failed by infrastructure"],
)
def test_a_held_out_second_round_that_infrastructure_failed_leaves_its_question_undecided(
    second: Scored,
    masked: int,
    accuracy: float,
    make_setup: MakeSetup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = [replace(ATTEMPT, sample=index) for index in range(10)]
    monkeypatch.setattr(run, "_plan_held_out", lambda *_, **__: plans)
    monkeypatch.setattr(run, "write_prompt", lambda *_: "")
    monkeypatch.setattr(run, "complete", lambda *_, **__: [Completion(PLAN)] * 10)
    record = play_second_rounds(make_setup(rollout={"rounds": 2, "questions": 2}), second)
    assert (record["masked"], record["accuracy"]) == (0, 1.0)
    assert record["rounds"]["masked"] == masked
    assert record["rounds"]["accuracy"] == accuracy


def test_what_stops_the_first_process_stops_the_others_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def be_process(*, first: bool) -> None:
        state = SimpleNamespace(num_processes=2, is_main_process=first)
        monkeypatch.setattr(scoring, "PartialState", lambda: state)

    def spend() -> None:
        raise BudgetExceeded("6 calls used", limit="calls")

    sent: list[list[object]] = []
    be_process(first=True)
    monkeypatch.setattr(scoring, "broadcast_object_list", sent.append)
    with pytest.raises(BudgetExceeded):
        scoring.on_first(spend)
    received = pickle.loads(pickle.dumps(sent[0]))

    def receive(shared: list[object]) -> None:
        shared[:] = received

    be_process(first=False)
    monkeypatch.setattr(scoring, "broadcast_object_list", receive)
    message = "the first process stopped: BudgetExceeded: 6 calls used"
    with pytest.raises(TrainingStopped, match=message):
        scoring.on_first(spend)


# ── the scorer ────────────────────────────────────────────────────────────────────────────────────
MakeScorer = Callable[..., Scorer]


def judge(messages: list[oc.Message]) -> str:
    return "Verdict: right" if "a fast car" in messages[-1].content else "Verdict: wrong"


@pytest.fixture
def make_scorer(tmp_path: Path) -> Iterator[MakeScorer]:
    """Scorers of recipes over a worker ``one`` and a worker ``judge``; they share a journal."""
    price = oc.Price(Decimal(1), Decimal(1))
    scorers: list[Scorer] = []
    with open_store(tmp_path / "journal.sqlite") as journal:

        def make(
            worker: Callable[..., str], *, grader: Grader | None = None, **tables: object
        ) -> Scorer:
            workers = {"one": worker, "judge": judge}
            pool = oc.WorkerPool(
                [oc.Worker(function, name=name, price=price) for name, function in workers.items()]
            ).replaying(journal)
            config = TrainConfig.model_validate(tables)
            scorers.append(Scorer(config, pool, grader or FreeFormGrader(), journal))
            return scorers[-1]

        yield make
        for scorer in scorers:
            scorer.close()


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
    make_scorer: MakeScorer,
) -> None:
    scorer = make_scorer(lambda _: rf"\boxed{{{answer}}}", reward=reward)
    (scored,) = scorer.score([ATTEMPT], phase="x")
    assert (scored.reward, scored.correct) == expected


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("accepted", f"{PLAN}\nThat is all.", (1.0, None)),
        ("invalid", f"{PLAN}\nThat is all.", (0.0, "too_long")),
        ("invalid", f"First a thought.\n```\n{PLAN}\n```\n", (1.0, None)),
        ("invalid", f"<think>{PLAN}\nOr else.</think>{PLAN}", (1.0, None)),
    ],
)
def test_text_after_the_three_lists_is_invalid_where_the_recipe_says_so(
    rule: str, text: str, expected: tuple[float, str | None], make_scorer: MakeScorer
) -> None:
    scorer = make_scorer(lambda _: r"\boxed{a quick automobile}", reward={"trailing_text": rule})
    (scored,) = scorer.score([replace(ATTEMPT, completion=Completion(text))], phase="x")
    assert scored.reward == expected[0]
    assert scorer._record(ATTEMPT, scored, "x")["invalid"] == expected[1]
    config = TrainConfig.model_validate({"reward": {"trailing_text": rule}})
    assert ("goes on" in why_invalid(Completion(text), config, [0])) == (expected[1] is not None)


THOUGHTS = Path(__file__).parents[2] / "golden" / "thoughts.jsonl"


@pytest.mark.parametrize("line", THOUGHTS.read_text("ascii").splitlines())
def test_the_start_counts_a_plan_behind_a_thought_as_its_reward_does(line: str) -> None:
    case = json.loads(line)
    why = why_invalid(Completion(case["text"]), TrainConfig(), [0, 1, 2])
    assert (why == "") == ("steps" in case["expect"]), case["why"]


def test_a_grader_that_fails_masks_whatever_the_recipe_says(make_scorer: MakeScorer) -> None:
    class Failing:
        async def grade(self, problem: Problem, answer: str) -> Grade:
            raise GradingError("the sandbox is gone")

    (scored,) = make_scorer(lambda _: "42", grader=Failing()).score([ATTEMPT], phase="x")
    assert scored.reward is None


def test_a_judge_that_fails_masks_whatever_the_recipe_says(make_scorer: MakeScorer) -> None:
    def fail_as_judge(messages: list[oc.Message]) -> str:
        if "Verdict" in messages[-1].content:
            raise WorkerError("away", retryable=False)
        return r"\boxed{a fast car}"

    scorer = make_scorer(fail_as_judge, reward={"judge": "one"})
    (scored,) = scorer.score([ATTEMPT], phase="x")
    assert scored.reward is None
    assert scored.grade is not None and "the judge failed" in scored.grade.note


def test_a_judge_without_a_verdict_masks_whatever_the_recipe_says(make_scorer: MakeScorer) -> None:
    scorer = make_scorer(lambda _: r"\boxed{a fast car}", reward={"judge": "one"})
    (scored,) = scorer.score([ATTEMPT], phase="x")
    assert (scored.reward, scored.grade and scored.grade.extracted) == (None, "a fast car")


def test_two_questions_of_one_id_are_graded_apart(make_scorer: MakeScorer) -> None:
    """As in the files of two splits, which both begin with question 1."""
    scorer = make_scorer(lambda _: r"\boxed{a quick automobile}")
    other = replace(FREE, question="And that?", reference=FreeFormAnswer("a slow boat", "text"))
    for problem, right in ((FREE, True), (other, False), (FREE, True)):
        (scored,) = scorer.score([replace(ATTEMPT, problem=problem)], phase=problem.question)
        assert scored.correct is right


def test_a_judge_must_be_a_worker_of_the_pool(make_scorer: MakeScorer) -> None:
    with pytest.raises(ConfigError, match="nobody"):
        make_scorer(lambda _: "42", reward={"judge": "nobody"})


def test_the_budget_of_a_training_stops_it_and_calls_of_the_journal_are_not_paid_again(
    make_scorer: MakeScorer,
) -> None:
    calls: list[object] = []

    def work(messages: object) -> str:
        calls.append(messages)
        return r"\boxed{a fast car}"

    scorer = make_scorer(work, budget={"calls": 6})
    sampled = [replace(ATTEMPT, sample=index) for index in range(10)]
    scorer.score(sampled[:3], phase="x")
    assert [scored.reward for scored in scorer.score(sampled[:3], phase="x")] == [0.5] * 3
    assert len(calls) == 3
    with pytest.raises(BudgetExceeded, match="6 allowed"):
        scorer.score(sampled[3:], phase="y")
    assert len(calls) == 6
    again = scorer.score(sampled[:3], phase="x")
    assert [scored.reward for scored in again] == [0.5] * 3, "what was paid needs no more budget"
    assert len(calls) == 6


def test_a_worker_without_a_price_is_refused_under_a_budget_of_dollars_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    pool = oc.WorkerPool([oc.Worker(judge, name="one")])
    config = TrainConfig.model_validate({"budget": {"dollars": 1}})
    refused = pytest.raises(ConfigError, match="'one' has no price")
    with open_store(tmp_path / "journal.sqlite") as journal, refused:
        Scorer(config, pool, FreeFormGrader(), journal)


def test_every_completion_stands_in_the_journal_with_why_it_is_no_workflow(
    make_scorer: MakeScorer, tmp_path: Path
) -> None:
    def fail(_: object) -> str:
        raise WorkerError("away", retryable=False)

    broken = replace(ATTEMPT, completion=Completion("no plan"))
    make_scorer(fail).score([ATTEMPT, broken], phase="iteration 4")
    with read_store(tmp_path / "journal.sqlite") as journal:
        first, second = [record.value for record in journal.records()]
    assert (first["training"], first["completion"]) == ("iteration 4", PLAN)
    assert first["invalid"] is first["reward"] is None
    assert (second["invalid"], second["reward"]) == ("missing_list", 0.0)


@pytest.mark.parametrize(
    ("repeatable", "budget", "kept"),
    [(True, {}, 0), (False, {}, 1), (True, {"calls": 9}, 1)],
)
def test_calls_that_repeat_for_nothing_are_not_journalled_unless_a_budget_counts_them(
    repeatable: bool, budget: dict[str, int], kept: int, tmp_path: Path
) -> None:
    worker = oc.Worker(Scripted("42", repeatable=repeatable), name="one")
    config = TrainConfig.model_validate({"budget": budget})
    with open_store(tmp_path / "journal.sqlite") as journal:
        scorer = Scorer(config, oc.WorkerPool([worker]), FreeFormGrader(), journal)
        scorer.score([ATTEMPT], phase="x")
        scorer.close()
        assert len(list(journal.calls())) == kept
        assert len(list(journal.records())) == 1


def test_rollouts_and_verdicts_are_traced_with_what_the_workers_used(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    pool = oc.WorkerPool(
        [
            oc.Worker(Scripted(r"\boxed{a fast car}", repeatable=True), name="one"),
            oc.Worker(Scripted("Verdict: right", repeatable=True), name="judge"),
        ]
    )
    config = TrainConfig.model_validate({"reward": {"judge": "judge"}})
    exporter = InMemorySpanExporter()
    with (
        open_store(tmp_path / "journal.sqlite") as journal,
        open_traces(TracesTable(), processor=SimpleSpanProcessor(exporter)) as traces,
    ):
        scorer = Scorer(config, pool, FreeFormGrader(), journal, traces)
        (scored,) = scorer.score([ATTEMPT], phase="x")
        scorer.close()
        (verdict,) = journal.episodes()
    spans = exporter.get_finished_spans()
    episodes = [span.name for span in spans if span.parent is None]
    assert episodes == ["invoke_workflow rollout", "invoke_workflow judge"]
    tokens = [(span.attributes or {}).get("gen_ai.usage.input_tokens", 0) for span in spans]
    assert sum(tokens) == scored.episode.usage.input_tokens + verdict.usage.input_tokens > 0
