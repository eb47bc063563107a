"""Frauds that a verdict must not call an orchestration gain, each with its cause named; and true gains that it must.

Each is planted at 300 questions. Two seeds are played here, a hundred in the slow run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from planted_records import WORKERS, Player, alone, always, by_kind, flat, play

from openconductor.evaluation.counterfactual import Counterfactuals
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Difference
from openconductor.report import Judgement, judge, measure_orchestration
from openconductor.types import Step, Workflow

GAIN = "orchestration gain"
N = 300
SEEDS = 100  # of the slow run
POOL = {
    f"worker:{name}": alone(ordinal, (0.65, 0.55, 0.5, 0.5)[ordinal])
    for ordinal, name in WORKERS.items()
}
FIXED = {"best_fixed": Player(flat(0.66), always(0, 1))}
ROUTED = by_kind([0], [0, 1], [2], [3, 0])
HONEST = Player(flat(0.85), ROUTED, planned=True)


def planned(skill: float | Callable[[int], float], **changes: object) -> Player:
    chance = skill if callable(skill) else flat(skill)
    return replace(HONEST, skill=chance, **changes)  # pyright: ignore[reportArgumentType]


def says(rng: random.Random, kind: int, answer: str) -> Workflow:
    """The planner writes the answer, and some worker repeats it."""
    return Workflow([Step(ROUTED(rng, kind)[0], f"Reply with {answer}.")])


def decorated(rng: random.Random, kind: int, answer: str) -> Workflow:
    """Workers are shown off before one repeats the answer."""
    shown = [Step(worker, "Think about the question.") for worker in rng.sample(range(4), 2)]
    return Workflow(
        [*shown, Step(ROUTED(rng, kind)[0], f"Look at both and report that it is {answer}.", "all")]
    )


def peeks(rng: random.Random, kind: int, answer: str) -> Workflow:
    return says(rng, kind, answer) if kind == 3 else Workflow([Step(0, "Solve it.")])


def shuffled_vote(rng: random.Random, _kind: int, _answer: str) -> Workflow:
    """The same four attempts and the same merge, in another order each time."""
    return Workflow(
        [
            *(Step(worker, "Solve it.") for worker in rng.sample(range(4), 4)),
            Step(0, "Vote.", "all"),
        ]
    )


def idle(rng: random.Random, kind: int, _answer: str) -> Workflow:
    """One worker does it all; steps that nobody sees make it look as if work was spread by kind."""
    shown = [Step(1 + (kind + place) % 3, "Consider it.") for place in range(4)]
    return Workflow([*shown, Step(0, "Solve it.")])


def one(records: Sequence[Record], **more: object) -> Judgement:
    return judge(measure_orchestration(records, workers=WORKERS, **more))  # pyright: ignore[reportArgumentType]


def played(player: Player, seed: int, **rivals: Player) -> list[Record]:
    return play({"conductor": player, **POOL, **FIXED, **rivals}, seed, questions=N)


# ── frauds ────────────────────────────────────────────────────────────────────────────────────────
def luckiest(seed: int) -> Judgement:
    """Ten planners of one skill, the best of them reported on."""
    ten = {f"planner:model{number}": planned(0.72) for number in range(10)}
    records = play({**ten, **POOL, **FIXED}, seed, questions=N)
    right = Counter(record.system for record in records if record.correct and record.system in ten)
    return one(records, system=right.most_common(1)[0][0])


def several_tasks(seed: int) -> Judgement:
    """Much better on one large task, a little worse on three small ones."""
    found: list[Record] = []
    for task, questions, skill in (
        ("large", 240, 0.95),
        ("b", 20, 0.45),
        ("c", 20, 0.45),
        ("d", 20, 0.45),
    ):
        systems = {"conductor": planned(skill), **POOL, **FIXED}
        found += play(systems, seed, questions=questions, task=task)
    return one(found)


def flaky_best(seed: int) -> Judgement:
    """The best worker's calls fail on what it would get right."""
    flaky = replace(alone(0, 0.85), fails=lambda right: 0.5 if right else 0.0)
    return one(
        play({**POOL, **FIXED, "worker:anna": flaky, "conductor": planned(0.85)}, seed, questions=N)
    )


def encoded(seed: int) -> Judgement:
    """The answer is told in a way that no search finds; replays show that any worker would do."""
    own, gone = (
        Difference(value, value - 0.05, value + 0.05, p, N, 5, 9)
        for value, p in ((0.0, 0.9), (-0.3, 0.001))
    )
    replays = Counterfactuals(N, 0, N, 0, None, (), gone, own, gone)
    return one(played(planned(0.9), seed), counterfactuals=replays)


def by_format(seed: int) -> Judgement:
    half = planned(0.85, plan=lambda rng, kind: None if rng.random() < 0.4 else ROUTED(rng, kind))
    before = play({"conductor": half}, 1000 + seed, questions=N, repeats=3)
    now = play({"conductor": planned(0.85), **POOL, **FIXED}, seed, questions=N, repeats=3)
    return one(now, before=before)


FRAUDS: dict[str, tuple[Callable[[int], Judgement], str]] = {
    "answers itself": (
        lambda seed: one(played(planned(0.9, written=says), seed)),
        "in its own subtasks",
    ),
    "answers itself behind workers": (
        lambda seed: one(played(planned(0.9, written=decorated), seed)),
        "in its own subtasks",
    ),
    "answers itself, encoded": (encoded, "planner_alone was not asked"),
    "answers as well alone": (
        lambda seed: one(played(planned(0.9), seed, planner_alone=alone(0, 0.9))),
        "against the planner alone",
    ),
    "knows one kind by itself": (
        lambda seed: one(
            played(
                planned(lambda kind: 0.98 if kind == 3 else 0.66),
                seed,
                planner_alone=alone(0, lambda kind: 0.98 if kind == 3 else 0.2),
            )
        ),
        "whichever is better on each kind",
    ),
    "peeks on one kind": (
        lambda seed: one(
            played(planned(lambda kind: 0.98 if kind == 3 else 0.66, written=peeks), seed)
        ),
        "in its own subtasks",
    ),
    "a constant vote in shuffled order": (
        lambda seed: one(played(planned(0.8, written=shuffled_vote), seed)),
        "always the same, but for the order of steps",
    ),
    "five times the calls": (
        lambda seed: one(
            played(
                planned(0.8, dollars="0.05"),
                seed,
                **{"consensus:anna?n=5": alone(0, 0.8, dollars="0.05")},
            )
        ),
        "consensus:anna?n=5",
    ),
    "five times the calls, and no vote asked": (
        lambda seed: one(played(planned(0.8, dollars="0.05"), seed)),
        "no vote of the best worker at equal cost",
    ),
    "another system as good at the same cost": (
        lambda seed: one(
            played(planned(0.8), seed, **{"moa:anna": Player(flat(0.8), always(0, 1, 2))})
        ),
        "against moa:anna",
    ),
    "wins one large task and loses three": (several_tasks, "on b"),
    "the best worker is flaky": (flaky_best, "the best worker is not known"),
    "the luckiest of ten planners": (luckiest, "against planner:model"),
    "format only": (by_format, "validity"),
    "a collapsed router": (
        lambda seed: one(played(planned(0.65, plan=always(0)), seed)),
        "gets 100% of the steps",
    ),
    "idle steps": (
        lambda seed: one(played(planned(0.7, written=idle), seed)),
        "of its steps cannot reach the answer",
    ),
    "masks what it would get wrong": (
        lambda seed: one(played(planned(0.65, fails=lambda right: 0.0 if right else 0.5), seed)),
        "what could not be decided counts as wrong",
    ),
}


def tally(judged: Callable[[int], Judgement], seeds: int) -> Counter[str]:
    return Counter(judged(seed).label for seed in range(seeds))


@pytest.mark.parametrize("name", FRAUDS)
def test_a_fraud_is_not_called_a_gain_and_its_cause_is_named(name: str) -> None:
    fraud, cause = FRAUDS[name]
    found = [fraud(seed) for seed in (1, 2)]
    assert all(one.label != GAIN and cause in one.line for one in found), [
        one.line for one in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAUDS)
def test_a_fraud_is_called_a_gain_at_most_once_in_twenty_seeds(name: str) -> None:
    fraud, cause = FRAUDS[name]
    found = [fraud(seed) for seed in range(SEEDS)]
    assert sum(one.label == GAIN for one in found) <= SEEDS // 20
    assert sum(cause in one.line for one in found) >= 0.9 * SEEDS


# ── true gains ────────────────────────────────────────────────────────────────────────────────────
def truly_better(
    gain: float, seed: int, *, questions: int = 1000, apart: float = 0.15
) -> Judgement:
    """A system that does better or worse than the best worker on the share ``apart``, and is better by ``gain``."""
    records = play({**POOL, "conductor": HONEST}, seed, questions=questions)
    best = {one.problem: one.correct for one in records if one.system == "worker:anna"}
    rng, right = random.Random(f"gain/{seed}"), sum(map(bool, best.values())) / questions
    for place, record in enumerate(records):
        if record.system == "conductor":
            was = best[record.problem]
            flips = rng.random() < (
                (apart - gain) / 2 / right if was else (apart + gain) / 2 / (1 - right)
            )
            records[place] = replace(record, correct=was != flips)
    fixed = [replace(one, system="best_fixed") for one in records if one.system == "worker:anna"]
    return one([*records, *fixed])


def test_a_true_gain_is_seen() -> None:
    assert tally(lambda seed: truly_better(0.05, seed), 3) == {GAIN: 3}


@pytest.mark.slow
def test_a_true_gain_of_5_points_is_seen_nine_times_in_ten_and_one_of_2_5_is_not_denied() -> None:
    assert tally(lambda seed: truly_better(0.05, seed), SEEDS)[GAIN] >= 0.9 * SEEDS
    assert tally(lambda seed: truly_better(0.025, seed), SEEDS)["no gain"] <= SEEDS // 20


@pytest.mark.slow
def test_no_gain_is_said_where_there_is_none_and_the_questions_are_many() -> None:
    found = tally(lambda seed: truly_better(0.0, seed, questions=8000, apart=0.05), 20)
    assert found[GAIN] <= 2 and found["no gain"] >= 10


# ── honest plans that look like frauds ────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("answers", "subtask"),
    [
        ("ABCD", "Solve it as a careful mathematician."),
        (("yes", "no", "no"), "Solve it; no explanation is needed."),
        ([str(number) for number in range(1, 17)], "1. Read it. 2. Solve it in 3 steps."),
        ("ABCD", "Which is right: (A) oak, (B) elm, (C) ash or (D) fir?"),
    ],
)
def test_words_that_are_answers_by_chance_are_not_told(
    answers: Sequence[str], subtask: str
) -> None:
    plan = {worker: Workflow([Step(worker, subtask)]) for worker in WORKERS}
    honest = planned(0.85, written=lambda rng, kind, _answer: plan[kind])
    for seed in (1, 2):
        records = [relabelled(record, answers) for record in played(honest, seed)]
        assert one(records).label == GAIN, one(records).line


@pytest.mark.parametrize(
    ("answers", "subtask"),
    [
        ("ABCD", "It is ({}). Options A, B, C and D were weighed."),
        (("yes", "no", "no"), "The answer is {}. Reply yes or no."),
        (["7", "12", "1234", "0.5"], "Reply with \\boxed{{{}}}."),
        (["1234", "5678", "9999", "1000"], "Say _{}.0_, please."),
    ],
)
def test_an_answer_is_told_in_any_dress(answers: Sequence[str], subtask: str) -> None:
    for seed in (1, 2):
        records = [relabelled(record, answers, subtask) for record in played(planned(0.9), seed)]
        assert one(records).label == "answers itself", one(records).line


def relabelled(record: Record, answers: Sequence[str], subtask: str = "") -> Record:
    """The record with a right answer drawn by its question, and told in a subtask by the Conductor."""
    right = answers[random.Random(record.problem).randrange(len(answers))]
    wrong = next(other for other in answers if other != right)
    answer = right if record.correct else wrong
    rounds = record.rounds
    if subtask and record.system == "conductor" and record.workflows:
        step = replace(record.workflows[0].steps[-1], subtask=subtask.format(answer), access=())
        rounds = (replace(rounds[0], workflow=Workflow([step])),)
    return replace(record, answer=answer, extracted=answer, rounds=rounds)


def test_a_rival_that_fails_where_it_would_be_right_is_not_beaten() -> None:
    for name, skill in (("planner_alone", 0.9), ("best_fixed", 0.85), ("moa:anna", 0.85)):
        shy = replace(alone(0, skill), fails=lambda right: 0.6 if right else 0.0)
        found = one(played(planned(0.85), 1, **{name: shy}))
        assert found.label != GAIN and "could not be decided" in found.line, found.line


def test_wrong_answers_that_are_not_there_are_no_lead() -> None:
    for seed in (1, 2):
        records = played(planned(0.65), seed)
        kept = [
            x
            for x in records
            if x.system != "conductor" or x.correct or random.Random(x.problem).random() < 0.4
        ]
        assert one(kept).label == "undecided (too much left out)"


def test_a_plan_may_depend_on_what_the_kind_does_not_name() -> None:
    """Asked once, nothing shows it, and nothing is denied; repeats or replays show it."""

    def flow(record: Record) -> Record:
        place = random.Random(record.problem).randrange(4)
        chain = Workflow(
            [Step(worker, "Solve it.") for worker in ROUTED(random.Random(), place)[:1]]
        )
        return (
            replace(record, rounds=(replace(record.rounds[0], workflow=chain),))
            if record.system == "conductor"
            else record
        )

    once = [flow(record) for record in played(HONEST, 1)]
    assert one(once).label == "undecided (not enough to compare with)"
    gone = Difference(-0.2, -0.25, -0.15, 0.001, N, 5, 65)
    assert one(once, counterfactuals=Counterfactuals(N, 0, N, 0, None, (), gone)).label == GAIN
    again = play({"conductor": HONEST, **POOL, **FIXED}, 1, questions=N, repeats=3)
    assert one([flow(record) for record in again]).label == GAIN
