"""Frauds that are no orchestration gain, each with its cause named; and true gains that are.

Each is planted at 300 questions. Two seeds are played here, a hundred in the slow run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from planted_records import (
    FIXED,
    HONEST,
    POOL,
    ROUTED,
    Player,
    Skill,
    alone,
    always,
    flat,
    judged,
    planted_plays,
    play,
)

from openconductor.evaluation.records import Record
from openconductor.report import Judgement
from openconductor.types import Step, Workflow

GAIN = "orchestration gain"
N = 300
SEEDS = 100  # of the slow run


def planned(skill: float | Skill, **changes: Any) -> Player:
    return replace(HONEST, skill=skill if callable(skill) else flat(skill), **changes)


def played(player: Player, seed: int, **rivals: Player) -> list[Record]:
    return play({"conductor": player, **POOL, **FIXED, **rivals}, seed, questions=N)


# ── what a fraud writes ───────────────────────────────────────────────────────────────────────────
def says(rng: random.Random, kind: int, answer: str) -> Workflow:
    """The planner writes the answer, and some worker repeats it."""
    return Workflow([Step(ROUTED(rng, kind)[0], f"Reply with {answer}.")])


def decorated(rng: random.Random, kind: int, answer: str) -> Workflow:
    """Workers are shown off before one repeats the answer."""
    shown = [Step(worker, "Think about the question.") for worker in rng.sample(range(4), 2)]
    last = Step(ROUTED(rng, kind)[0], f"Look at both and report that it is {answer}.", "all")
    return Workflow([*shown, last])


def peeks(rng: random.Random, kind: int, answer: str) -> Workflow:
    return says(rng, kind, answer) if kind == 3 else Workflow([Step(0, "Solve it.")])


def shuffled_vote(rng: random.Random, _kind: int, _answer: str) -> Workflow:
    """The same four attempts and the same merge, in another order each time."""
    attempts = [Step(worker, "Solve it.") for worker in rng.sample(range(4), 4)]
    return Workflow([*attempts, Step(0, "Vote.", "all")])


def idle(_rng: random.Random, kind: int, _answer: str) -> Workflow:
    """One worker does it all; steps that nobody sees make it look as if work was spread by kind."""
    shown = [Step(1 + number % 3, "Consider it.") for number in range(kind, kind + 4)]
    return Workflow([*shown, Step(0, "Solve it.")])


def strong_at(skill: float, otherwise: float) -> Skill:
    """A skill of its own on the last kind."""
    return lambda kind: skill if kind == 3 else otherwise


# ── frauds ────────────────────────────────────────────────────────────────────────────────────────
FRAUDS: dict[str, tuple[Callable[[int], Judgement], str]] = {}
ITSELF = "of its plans bring the answer of their own one"


def plant(name: str, cause: str, player: Player, **rivals: Player) -> None:
    """Add a fraud: a Conductor that plays against the rivals, and the cause that is to be named."""
    FRAUDS[name] = lambda seed: judged(played(player, seed, **rivals)), cause


def plant_told(name: str, player: Player, follows: Skill) -> None:
    """Add a planner that answers itself: its plans bring their answers on other questions, too."""

    def judge(seed: int) -> Judgement:
        records = played(player, seed)
        return judged(records, plays=planted_plays(records, follows=follows))

    FRAUDS[name] = judge, ITSELF


def luckiest(seed: int) -> Judgement:
    """Ten planners of one skill, the best of them reported on."""
    ten = {f"planner:model{number}": planned(0.72) for number in range(10)}
    records = play({**ten, **POOL, **FIXED}, seed, questions=N)
    right = Counter(record.system for record in records if record.correct)
    return judged(records, system=max(ten, key=right.__getitem__))


def several_tasks(seed: int) -> Judgement:
    """Much better on one large task, a little worse on three small ones."""
    large = {"conductor": planned(0.95), **POOL, **FIXED}
    records = play(large, seed, questions=240, task="large")
    for task in "bcd":
        records += play(large | {"conductor": planned(0.45)}, seed, questions=20, task=task)
    return judged(records)


def flaky_best(seed: int) -> Judgement:
    """The best worker's calls fail on what it would get right."""
    flaky = alone(0, 0.85, fails=lambda right: 0.5 if right else 0.0)
    players = {**POOL, **FIXED, "worker:anna": flaky, "conductor": HONEST}
    return judged(play(players, seed, questions=N))


def by_format(seed: int) -> Judgement:
    """The same plans before and after, of which two in five were no workflows before."""

    def half_formed(rng: random.Random, kind: int) -> Sequence[int] | None:
        return None if rng.random() < 0.4 else ROUTED(rng, kind)

    unformed = planned(0.85, plan=half_formed)
    before = play({"conductor": unformed}, 1000 + seed, questions=N, repeats=3)
    after = play({"conductor": HONEST, **POOL, **FIXED}, seed, questions=N, repeats=3)
    return judged(after, before=before)


FRAUDS["wins one large task and loses three"] = several_tasks, "on b"
FRAUDS["the best worker is flaky"] = flaky_best, "the best worker is not known"
FRAUDS["the luckiest of ten planners"] = luckiest, "against planner:model"
FRAUDS["format only"] = by_format, "validity"
plant_told("answers itself", planned(0.9, written=says), flat(0.95))
plant_told("answers itself behind workers", planned(0.9, written=decorated), flat(0.8))
plant_told("answers itself, encoded", planned(0.9), flat(0.6))
plant(
    "answers as well alone",
    "against the planner alone",
    planned(0.9),
    planner_alone=alone(0, 0.9),
)
KNOWS = planned(strong_at(0.98, 0.66))
plant_told("peeks on one kind", replace(KNOWS, written=peeks), strong_at(0.95, 0.0))
KNOWS_BY_ITSELF = alone(0, strong_at(0.98, 0.2))
plant(
    "knows one kind by itself",
    "the planner where it answers, or the best worker",
    KNOWS,
    planner_alone=KNOWS_BY_ITSELF,
)


def shuffled_constant(seed: int) -> Judgement:
    """One vote for all, its attempts in another order each time; its plans were not played."""
    return judged(played(planned(0.8, written=shuffled_vote), seed), plays=False)


FRAUDS["a constant vote in shuffled order"] = (
    shuffled_constant,
    "always the same, but for the order of steps",
)
DEAR = planned(0.8, dollars="0.05")
VOTE = {"consensus:anna?n=5": alone(0, 0.8, dollars="0.05")}
plant("five times the calls", "consensus:anna?n=5", DEAR, **VOTE)
plant("five times the calls, and no vote asked", "no vote of the best worker at equal cost", DEAR)
EQUAL = {"moa:anna": Player(flat(0.8), always(0, 1, 2))}
plant("another system as good at the same cost", "against moa:anna", planned(0.8), **EQUAL)
COLLAPSED = planned(0.65, plan=always(0))
plant("a collapsed router", "anna gets 100% of the steps", COLLAPSED)
plant("idle steps", "of its steps cannot reach the answer", planned(0.7, written=idle))
SHY = planned(0.65, fails=lambda right: 0.0 if right else 0.5)
plant("masks what it would get wrong", "what could not be decided counts as wrong", SHY)


@pytest.mark.parametrize("name", FRAUDS)
def test_a_fraud_is_not_called_a_gain_and_its_cause_is_named(name: str) -> None:
    judge, cause = FRAUDS[name]
    for seed in (1, 2):
        verdict = judge(seed)
        assert verdict.label != GAIN
        assert cause in verdict.line


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", FRAUDS)
def test_a_fraud_is_called_a_gain_at_most_once_in_twenty_seeds(name: str) -> None:
    judge, cause = FRAUDS[name]
    verdicts = [judge(seed) for seed in range(SEEDS)]
    assert sum(verdict.label == GAIN for verdict in verdicts) <= SEEDS // 20
    assert sum(cause in verdict.line for verdict in verdicts) >= 0.9 * SEEDS


@pytest.mark.parametrize(
    ("name", "skill"), [("planner_alone", 0.9), ("best_fixed", 0.85), ("moa:anna", 0.85)]
)
def test_a_rival_that_fails_where_it_would_be_right_is_not_beaten(name: str, skill: float) -> None:
    shy = alone(0, skill, fails=lambda right: 0.6 if right else 0.0)
    verdict = judged(played(HONEST, 1, **{name: shy}))
    assert verdict.label != GAIN
    assert "could not be decided" in verdict.line


def test_wrong_answers_that_are_not_there_are_no_lead() -> None:
    for seed in (1, 2):
        kept: list[Record] = []
        for record in played(planned(0.65), seed):
            lost = random.Random(record.problem).random() >= 0.4
            if record.system != "conductor" or record.correct or not lost:
                kept.append(record)
        assert judged(kept).label == "undecided (too much left out)"


# ── true gains ────────────────────────────────────────────────────────────────────────────────────
def truly_better(gain: float, seed: int, *, questions: int = 1000, apart: float = 0.15) -> str:
    """Label a system that differs from the best worker on ``apart``, and is better by ``gain``."""
    records = play({**POOL, "conductor": HONEST}, seed, questions=questions)
    anna = [record for record in records if record.system == "worker:anna"]
    best = {record.problem: record.correct for record in anna}
    right = sum(map(bool, best.values())) / questions
    lost = (apart - gain) / 2 / right
    won = (apart + gain) / 2 / (1 - right)
    rng = random.Random(f"gain/{seed}")
    fixed = [replace(record, system="best_fixed") for record in anna]
    for place, record in enumerate(records):
        if record.system == "conductor":
            was = best[record.problem]
            flips = rng.random() < (lost if was else won)
            records[place] = replace(record, correct=was != flips)
    return judged([*records, *fixed]).label


def test_a_true_gain_is_seen() -> None:
    assert [truly_better(0.05, seed) for seed in range(3)] == [GAIN] * 3


@pytest.mark.slow
def test_a_true_gain_of_5_points_is_seen_nine_times_in_ten_and_one_of_2_5_is_not_denied() -> None:
    large = [truly_better(0.05, seed) for seed in range(SEEDS)]
    small = [truly_better(0.025, seed) for seed in range(SEEDS)]
    assert large.count(GAIN) >= 0.9 * SEEDS
    assert small.count("no gain") <= SEEDS // 20


@pytest.mark.slow
def test_no_gain_is_said_where_there_is_none_and_the_questions_are_many() -> None:
    labels = [truly_better(0.0, seed, questions=8000, apart=0.05) for seed in range(20)]
    assert labels.count(GAIN) <= 2
    assert labels.count("no gain") >= 10


# ── honest plans that look like frauds ────────────────────────────────────────────────────────────
NUMBERS = [str(number) for number in range(1, 17)]
YES_NO = ("yes", "no", "no")


def relabelled(record: Record, answers: Sequence[str], subtask: str = "") -> Record:
    """Return the record with a right answer drawn by its question, which the Conductor may tell."""
    right = answers[random.Random(record.problem).randrange(len(answers))]
    wrong = next(other for other in answers if other != right)
    answer = right if record.correct else wrong
    record = replace(record, answer=answer, extracted=answer)
    if not subtask or record.system != "conductor":
        return record
    told = Step(record.workflows[0].steps[-1].worker, subtask.format(answer))
    return replace(record, rounds=(replace(record.rounds[0], workflow=Workflow([told])),))


def drawn(record: Record) -> Record:
    """Return the record with a plan of the Conductor's that hangs on the question, not its kind."""
    if record.system != "conductor":
        return record
    place = random.Random(record.problem).randrange(4)
    worker = ROUTED(random.Random(), place)[0]
    plan = replace(record.rounds[0], workflow=Workflow([Step(worker, "Solve it.")]))
    return replace(record, rounds=(plan,))


@pytest.mark.parametrize(
    ("answers", "subtask"),
    [
        ("ABCD", "Solve it as a careful mathematician."),
        (YES_NO, "Solve it; no explanation is needed."),
        (NUMBERS, "1. Read it. 2. Solve it in 3 steps."),
        ("ABCD", "Which is right: (A) oak, (B) elm, (C) ash or (D) fir?"),
    ],
)
def test_words_that_are_answers_by_chance_are_not_told(answers, subtask: str) -> None:
    plans = [Workflow([Step(worker, subtask)]) for worker in range(4)]
    honest = planned(0.85, written=lambda _rng, kind, _answer: plans[kind])
    for seed in (1, 2):
        records = [relabelled(record, answers) for record in played(honest, seed)]
        assert judged(records).label == GAIN


@pytest.mark.parametrize(
    ("answers", "subtask"),
    [
        ("ABCD", "It is ({}). Options A, B, C and D were weighed."),
        (YES_NO, "The answer is {}. Reply yes or no."),
        (["7", "12", "1234", "0.5"], "Reply with \\boxed{{{}}}."),
        (["1234", "5678", "9999", "1000"], "Say _{}.0_, please."),
    ],
)
def test_nothing_is_certified_before_it_was_replayed(answers, subtask: str) -> None:
    for seed in (1, 2):
        records = [relabelled(record, answers, subtask) for record in played(planned(0.9), seed)]
        verdict = judged(records, plays=False)
        assert verdict.label == "undecided (not enough to compare with)"
        assert "its plans were not replayed" in verdict.line
        assert verdict.missing is not None
        assert verdict.missing.replays


def test_a_plan_may_depend_on_what_the_kind_does_not_name() -> None:
    """Asked once, nothing shows it, and nothing is denied; plays show it."""
    once = [drawn(record) for record in played(HONEST, 1)]
    assert judged(once, plays=False).label == "undecided (not enough to compare with)"
    assert judged(once).label == GAIN
