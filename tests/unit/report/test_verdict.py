"""The verdict on planted systems whose skill is known: it must not be fooled, and it must see what is there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from planted_records import WORKERS, Plan, Player, alone, always, by_kind, flat, play

from openconductor.evaluation.counterfactual import Counterfactuals
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import (
    Difference,
    cautious_mean,
    difference,
    scores_by_problem,
)
from openconductor.report import (
    Judgement,
    Orchestration,
    judge,
    measure_orchestration,
    verdict as rules,
)
from openconductor.report.questions import (
    BetterAtEqualCost,
    BetterThanBest,
    Collapsed,
    DependsOnQuestion,
    Question,
)
from openconductor.report.rivals import vote
from openconductor.report.rules import Finding

ROUTED = by_kind([0], [0, 1], [2], [3, 0])
POOL = {
    f"worker:{name}": alone(ordinal, (0.65, 0.55, 0.5, 0.5)[ordinal])
    for ordinal, name in WORKERS.items()
}
FIXED = {"best_fixed": Player(flat(0.68), always(0, 1))}
SEEDS = range(100, 104)
"""Few, for each may fool the verdict one time in forty by its rules: the rate itself is tested at the end."""


def conductor(skill: float, plan: Plan = ROUTED, **changes: Any) -> dict[str, Player]:
    return {"conductor": Player(flat(skill), plan, planned=True, **changes)}


def consensus(skill: float) -> dict[str, Player]:
    return {"consensus:anna?n=5": alone(0, skill, dollars="0.05")}


def untrained(skill: float) -> dict[str, Player]:
    """The Conductor before its training: four in ten of its plans are not valid."""
    return conductor(skill, lambda rng, kind: None if rng.random() < 0.4 else ROUTED(rng, kind))


def verdict(records: Sequence[Record], **more: Any) -> Judgement:
    return judge(measure_orchestration(records, workers=WORKERS, **more))


# ── planted cases, and ways to fool it ────────────────────────────────────────────────────────────
ORCHESTRATOR = {**conductor(0.85), **POOL, **FIXED}
BOUGHT = conductor(0.85, by_kind([0], [0, 0, 1], [0, 0], [0, 3]), dollars="0.05")
CASES: dict[str, tuple[str, dict[str, Player], dict[str, Any]]] = {
    "a real orchestrator": ("orchestration gain", ORCHESTRATOR, {}),
    "one that also fails now and then": (
        "orchestration gain",
        {**ORCHESTRATOR, **conductor(0.85, fails=lambda _: 0.03)},
        {},
    ),
    "one that learnt form and skill": (
        "orchestration gain",
        ORCHESTRATOR,
        {"before": untrained(0.55)},
    ),
    "one worker for everything, as good as alone": (
        "collapse",
        {**ORCHESTRATOR, **conductor(0.65, always(0))},
        {},
    ),
    "a learner of format alone": (
        "format gain only",
        ORCHESTRATOR,
        {"before": untrained(0.85), "repeats": 3},
    ),
    "plans that differ for show, where a fixed one is better": (
        "no gain",
        {**ORCHESTRATOR, "best_fixed": Player(flat(0.95), always(0, 1))},
        {"questions": 400},
    ),
    "less good than five votes of the best worker, at the price of five": (
        "gain by more calls only",
        {**POOL, **consensus(0.91), **FIXED, **BOUGHT},
        {"questions": 400},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_planted_system_gets_the_verdict_that_it_deserves(name: str) -> None:
    label, players, options = CASES[name]
    sizes = {"questions": options.get("questions", 300), "repeats": options.get("repeats", 1)}
    found: Counter[str] = Counter()
    for seed in SEEDS:
        earlier = play(options["before"], seed, **sizes) if "before" in options else []
        found[verdict(play(players, seed, **sizes), before=earlier).label] += 1
    if label == "gain by more calls only":
        assert found[label] >= 3 and not found["orchestration gain"]
    else:
        assert found == {label: 4}


def test_a_constant_that_is_lucky_on_these_questions_gains_nothing() -> None:
    """Of twelve equal constant plans the one that does best on just these questions is handed in as the Conductor."""
    for seed in SEEDS:
        rivals = {
            f"rival{index}": Player(flat(0.65), always(0, 1), planned=True) for index in range(12)
        }
        records = play({**rivals, **POOL}, seed)
        ((luckiest, _),) = Counter(
            r.system for r in records if r.correct and r.system in rivals
        ).most_common(1)
        ours = [replace(one, system="conductor") for one in records if one.system == luckiest]
        workers = [one for one in records if one.system in POOL]
        assert verdict([*ours, *workers]).label in ("no gain", "undecided (n too small)")


def test_the_luckiest_worker_as_a_constant_router_gains_nothing() -> None:
    equal = {f"worker:{name}": alone(ordinal, 0.6) for ordinal, name in WORKERS.items()}
    for seed in SEEDS:
        records = play(equal, seed, questions=150)
        ((luckiest, _),) = Counter(one.system for one in records if one.correct).most_common(1)
        again = play(conductor(0.6, always(list(equal).index(luckiest))), seed)
        assert verdict([*again, *records]).label == "collapse"


def test_format_that_is_learnt_while_routing_collapses_is_told_as_both() -> None:
    records = play({**conductor(0.65, always(0)), **POOL}, 3, questions=300, repeats=3)
    found = verdict(records, before=play(untrained(0.65), 4, questions=300, repeats=3))
    assert found.label == "format gain only"
    assert "routing collapsed, too" in found.line


def test_a_lead_that_comes_from_what_was_left_out_is_not_a_gain() -> None:
    """Half of its wrong answers fail instead (long plans time out where they would be wrong), so they are masked."""
    shy = conductor(0.65, fails=lambda right: 0.0 if right else 0.5)
    for seed in SEEDS:
        records = play({**shy, **POOL}, seed, questions=400)
        ours, theirs = (
            [r for r in records if r.system == name] for name in ("conductor", "worker:anna")
        )
        found = difference(scores_by_problem(ours), scores_by_problem(theirs))
        assert found is not None and found.low > 0, "it seems better where both were decided"
        assert verdict(records).label != "orchestration gain"


@pytest.mark.parametrize(
    ("rivals", "dollars", "answer", "said"),
    [
        (consensus(0.68), "0.05", "yes", "against consensus:anna?n=5 at 1.00 of the cost"),
        ({}, "0.01", "yes", ""),  # the rival at equal cost is the best worker itself
    ],
)
def test_the_fair_lead_at_equal_cost_is_in_the_line(
    rivals: dict[str, Player], dollars: str, answer: str, said: str
) -> None:
    found = verdict(
        play({**conductor(0.88, dollars=dollars), **POOL, **rivals, **FIXED}, 1, questions=300)
    )
    assert (found.label, found.answers[BetterAtEqualCost.name]) == ("orchestration gain", answer)
    assert said in found.line if said else "of the cost" not in found.line


def test_a_vote_is_read_off_the_repeats_of_a_worker() -> None:
    """Right answers agree and wrong ones do not, so five of anna's votes are far better than one."""
    records = play({**conductor(0.8, dollars="0.05"), **POOL, **FIXED}, 1, questions=200, repeats=5)
    found = measure_orchestration(records, workers=WORKERS)
    assert found.effort is not None
    assert found.best_single is not None and found.best_single.accuracy is not None
    assert (found.effort.name, round(found.effort.cost, 6)) == ("anna, a vote of 5", 1.0)
    assert found.effort.accuracy.value > found.best_single.accuracy.value + 0.05


def test_a_vote_counts_answers_and_of_equals_takes_the_first() -> None:
    four, five, nothing = ("4", 1.0), ("5", 0.0), (None, 0.0)
    assert vote([four, five, four], 3) == 1.0
    assert vote([five, four], 2) == 0.0
    assert vote([four, five, nothing], 2) == pytest.approx(2 / 3), (
        "of three runs one begins with the wrong answer"
    )
    assert vote([nothing, nothing, four], 3) == 1.0
    assert vote([nothing, nothing], 2) == 0.0


@pytest.mark.parametrize("questions", [1, 3, 8, 20, 29])
def test_few_questions_decide_nothing(questions: int) -> None:
    hopeless = {name: alone(ordinal, -1.0) for ordinal, name in enumerate(POOL)}
    for players in (
        {**conductor(2.0), **hopeless},
        {**conductor(0.65, always(0)), **POOL},
        {**conductor(-1.0), **POOL},
    ):
        found = verdict(play(players, 0, questions=questions))
        assert found.label.startswith("undecided"), found.line
        assert f"too few questions to tell ({questions})" in " ".join(found.reasons), found.reasons
        assert "does not" not in found.line, "what is open is not denied"


def test_never_fewer_questions_are_said_to_do_than_anything_is_said_on() -> None:
    found = verdict(play({**conductor(2.0), **POOL, **FIXED}, 0, questions=12))
    assert found.label == "undecided (n too small)"
    assert "about 30 questions would show" in found.line


def test_a_question_that_is_added_to_the_table_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubt(Question):
        name = "beyond doubt"

        def ask(self, figures: Orchestration) -> Finding:
            return Finding("no", f"{figures.system} is doubted")

    monkeypatch.setattr(rules, "QUESTIONS", (*rules.QUESTIONS, Doubt()))
    found = verdict(play(ORCHESTRATOR, 0, questions=300))
    assert (found.line, found.answers["beyond doubt"]) == ("no gain: conductor is doubted", "no")


# ── nothing to compare with ───────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("players", "said"),
    [
        ({name: one for name, one in ORCHESTRATOR.items() if name != "worker:anna"}, "anna"),
        ({**conductor(0.85), **POOL}, "best_fixed"),
        (conductor(0.85), "no worker alone has a decided answer"),
    ],
)
def test_what_was_not_evaluated_is_named_and_nothing_is_claimed(
    players: dict[str, Player], said: str
) -> None:
    """A worker that was never asked alone may be the best; a plan that varies may win by what is constant in it."""
    found = verdict(play(players, 0, questions=400))
    assert found.label == "undecided (not enough to compare with)"
    assert said in found.line
    assert found.answers[BetterThanBest.name] == ("yes" if said == "best_fixed" else "unknown")


def test_a_worker_that_does_nearly_all_and_was_not_asked_alone_is_no_collapse_where_plans_fit_their_questions() -> (
    None
):
    """Nine tenths of the steps are dora's, for good reason: two kinds of question need another worker once."""
    mostly = by_kind([3, 3, 3, 3, 3], [3, 3, 3, 3, 2], [3, 3, 3, 3], [3, 3, 3, 2, 3])
    without = {name: player for name, player in POOL.items() if name != "worker:dora"}
    found = verdict(play({**conductor(0.85, mostly), **without, **FIXED}, 0, questions=300))
    assert (found.label, found.answers[Collapsed.name]) == (
        "undecided (not enough to compare with)",
        "unknown",
    )
    assert (
        verdict(play({**conductor(0.85, always(3)), **without}, 0, questions=300)).label
        == "collapse"
    )


def test_a_kind_for_every_question_is_no_proof_that_plans_do_not_depend_on_it() -> None:
    fine = [replace(one, kind=one.problem) for one in play(ORCHESTRATOR, 0, questions=300)]
    found = verdict(fine)
    assert (found.answers[DependsOnQuestion.name], found.label) == (
        "unknown",
        "undecided (not enough to compare with)",
    )
    again = [*fine, *(replace(one, sample=1) for one in fine)]
    assert verdict(again).answers[DependsOnQuestion.name] == "yes", "repeats tell"


@pytest.mark.parametrize(
    ("lost", "wide", "p", "label"),
    [
        (-0.3, 0.05, 0.001, "orchestration gain"),
        (-0.001, 0.008, 0.4, "no gain"),
        (-0.005, 0.091, 0.4, "undecided (not enough to compare with)"),
    ],
)
def test_replays_with_another_questions_plan_stand_in_for_the_best_fixed_workflow(
    lost: float, wide: float, p: float, label: str
) -> None:
    shuffled = Difference(lost, lost - wide, lost + wide, p, 300, 10, 100)
    replayed = Counterfactuals(300, 0, 600, 0, None, (), shuffled)
    records = play({**conductor(0.85), **POOL}, 0, questions=300)
    assert verdict(records, counterfactuals=replayed).label == label


def test_where_nothing_was_decided_the_line_says_so_and_blames_nobody_else() -> None:
    found = verdict(play({**ORCHESTRATOR, **conductor(0.85, fails=lambda _: 1.0)}, 0, questions=50))
    assert (
        found.line
        == "undecided (too much left out): none of 50 answers of conductor could be decided"
    )
    assert "conductor and worker:anna have no decided question in common" in found.reasons
    assert "conductor and best_fixed have no decided question in common" in found.reasons


def test_a_worker_reported_on_by_itself_has_no_gain() -> None:
    assert verdict(play(POOL, 0, questions=100), system="worker:anna").label in (
        "collapse",
        "no gain",
    )


# ── false differences ─────────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
def test_two_systems_of_equal_skill_differ_falsely_at_most_65_times_in_1000() -> None:
    """Of the paired test, and of the verdict in its worst case: one worker, and all other conditions of a gain hold."""
    players = {**conductor(0.6), "worker:anna": alone(0, 0.6)}
    shown = Counterfactuals(1, 0, 0, 0, None, (), Difference(-0.3, -0.4, -0.2, 0.001, 100, 0, 30))
    false_tests = false_gains = 0
    for seed in range(1000):
        records = play(players, seed, questions=100)
        found = _difference(*(scores_by_problem(records[side::2]) for side in (0, 1)), seed)
        if found is not None:
            false_tests += found.p < 0.05
            if found.low > 0:  # without this no gain is claimed, as rule 3 has it
                label = judge(
                    measure_orchestration(
                        records, workers={0: "anna"}, seed=seed, counterfactuals=shown
                    )
                ).label
                false_gains += label == "orchestration gain"
    assert false_tests <= 65
    assert 0 < false_gains <= 65, "and it is put to the test"


def test_the_fewest_questions_on_which_anything_is_said_are_not_more_often_wrong() -> None:
    false = 0
    for seed in range(1000):
        rng = random.Random(f"few/{seed}")
        scores: list[dict[tuple[str, str], list[float]]] = [{}, {}]
        for number in range(30):
            chance = 0.6 + rng.uniform(-0.1, 0.1)
            for side in scores:
                side["t", str(number)] = [float(rng.random() < chance)]
        found = _difference(scores[0], scores[1], seed)
        false += found is not None and found.p < 0.05
    assert false <= 65


def _difference(first: Any, second: Any, seed: int) -> Difference | None:
    """The difference where the bootstrap is worth its time: its p is never below that of ``cautious_mean``."""
    apart = [one - other for (one,), (other,) in zip(first.values(), second.values(), strict=True)]
    cautious = cautious_mean(apart)[2] if any(apart) else 1.0
    if cautious >= 0.05 and seed % 10:
        return None
    found = difference(first, second, seed)
    assert found is not None
    assert not any(apart) or found.p >= cautious
    return found
