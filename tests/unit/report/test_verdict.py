"""The verdict on planted systems of known skill: it is not fooled, and sees what is there."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_records import (
    HONEST,
    POOL,
    ROUTED,
    WORKERS,
    Plan,
    Player,
    alone,
    always,
    by_kind,
    flat,
    judged,
    make_record,
    planted_plays,
    play,
)

from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import EvalConfig, TaskTable
from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.sheets import KeptQuestion
from openconductor.evaluation.statistics import Estimate, difference
from openconductor.report import Orchestration, measure_orchestration, verdict
from openconductor.report.answers import merge_questions
from openconductor.report.orchestration import Siblings
from openconductor.report.report import find_base, find_siblings
from openconductor.report.rivals import vote
from openconductor.report.verdict.plan_questions import DependsOnQuestion
from openconductor.report.verdict.rules import RULES, Finding, Question, Rules, leave_open
from openconductor.report.verdict.verdict_questions import (
    BetterAtEqualCost,
    BetterThanBest,
    Collapsed,
    SameForLess,
)

GAIN = "orchestration gain"
FOUR, FIVE, NOTHING = ("4", 1.0), ("5", 0.0), (None, 0.0)
NOT_ENOUGH = "undecided (not enough to compare with)"
FIXED = {"best_fixed": Player(flat(0.68), always(0, 1))}
SEEDS = range(100, 104)  # few, because each may fool the verdict one time in forty by its rules

MORE_CALLS = "gain by more calls only"


def labels_of(players: dict[str, Player], questions: int = 300, **before: Player) -> list[str]:
    """Return the verdicts on four seeds; ``before`` are players of the untrained system."""
    labels: list[str] = []
    for seed in SEEDS:
        earlier = play(before, seed, questions=questions)
        records = play(players, seed, questions=questions)
        labels.append(judged(records, before=earlier).label)
    return labels


def test_a_real_orchestrator_gains() -> None:
    assert labels_of(ORCHESTRATOR) == [GAIN] * 4


def test_one_that_also_fails_now_and_then_gains() -> None:
    assert labels_of(ORCHESTRATOR | conductor(0.85, fails=lambda _: 0.03)) == [GAIN] * 4


def test_one_that_learnt_form_and_skill_gains() -> None:
    assert labels_of(ORCHESTRATOR, **untrained(0.55)) == [GAIN] * 4


def test_plans_that_differ_for_show_where_a_fixed_one_is_better_gain_nothing() -> None:
    fixed = {"best_fixed": Player(flat(0.95), always(0, 1))}
    assert labels_of(ORCHESTRATOR | fixed, 400) == ["no gain"] * 4


def test_one_less_good_than_five_votes_of_the_best_worker_at_their_price_gains_by_calls() -> None:
    dear = conductor(0.85, by_kind([0], [0, 0, 1], [0, 0], [0, 3]), dollars="0.05")
    labels = labels_of({**POOL, **consensus(0.91), **FIXED, **dear}, 400)
    assert labels.count(MORE_CALLS) >= 3
    assert GAIN not in labels


"""Few, because each may fool the verdict one time in forty by its rules."""


def conductor(skill: float, plan: Plan = ROUTED, **changes: Any) -> dict[str, Player]:
    return {"conductor": replace(HONEST, skill=flat(skill), plan=plan, **changes)}


def consensus(skill: float) -> dict[str, Player]:
    return {"consensus:anna?n=5": alone(0, skill, dollars="0.05")}


def untrained(skill: float) -> dict[str, Player]:
    """The Conductor before its training: four in ten of its plans are not valid."""
    return conductor(skill, lambda rng, kind: None if rng.random() < 0.4 else ROUTED(rng, kind))


# ── planted cases, and ways to fool it ────────────────────────────────────────────────────────────
ORCHESTRATOR = {**conductor(0.85), **POOL, **FIXED}


def test_a_constant_that_is_lucky_on_these_questions_gains_nothing() -> None:
    """Hand in the best, on just these questions, of twelve equal constant plans."""
    constant = Player(flat(0.65), always(0, 1), planned=True)
    rivals = {f"rival{index}": constant for index in range(12)}
    for seed in SEEDS:
        records = play(rivals | POOL, seed)
        right = Counter(record.system for record in records if record.correct)
        luckiest = max(rivals, key=lambda name: right[name])
        kept: list[Record] = []
        for record in records:
            if record.system == luckiest:
                kept.append(replace(record, system="conductor"))
            elif record.system in POOL:
                kept.append(record)
        assert judged(kept).label in ("no gain", "undecided (n too small)")


def test_format_that_is_learnt_while_routing_collapses_is_told_as_both() -> None:
    records = play({**conductor(0.65, always(0)), **POOL}, 3, questions=300, repeats=3)
    found = judged(records, before=play(untrained(0.65), 4, questions=300, repeats=3))
    assert found.label == "format gain only"
    assert "routing collapsed, too" in found.line


@pytest.mark.parametrize(
    ("rivals", "dollars", "text"),
    [
        (consensus(0.68), "0.05", "against consensus:anna?n=5 at 1.00 of the cost"),
        ({}, "0.01", ""),  # the rival at equal cost is the best worker itself
    ],
)
def test_the_fair_lead_at_equal_cost_is_in_the_line(rivals, dollars: str, text: str) -> None:
    players = conductor(0.88, dollars=dollars) | POOL | rivals | FIXED
    verdict = judged(play(players, 1, questions=300))
    assert verdict.label == GAIN
    assert verdict.answers[BetterAtEqualCost.name] == "yes"
    assert text in verdict.line
    assert bool(text) == ("of the cost" in verdict.line)


def test_a_vote_that_is_the_workers_own_answers_is_not_asked_for_again() -> None:
    records = play(conductor(0.88, dollars="0.05") | POOL | FIXED, 1, questions=300)
    for record in [record for record in records if record.system == "worker:anna"]:
        usage = replace(record.usage, dollars=5 * record.usage.dollars)
        records.append(replace(record, system="consensus:anna?n=5", usage=usage))
    verdict = judged(records)
    assert verdict.answers[BetterAtEqualCost.name] == "unknown"
    assert "consensus:anna?n=5, the best worker's vote at equal cost, was evalua" in verdict.line
    assert verdict.missing is None or not verdict.missing.systems


@pytest.mark.parametrize(
    ("answers", "times", "share"),
    [
        ([FOUR, FIVE, FOUR], 3, 1.0),
        ([FIVE, FOUR], 2, 0.0),
        ([FOUR, FIVE, NOTHING], 2, 2 / 3),  # of three runs one begins with the wrong answer
        ([NOTHING, NOTHING, FOUR], 3, 1.0),
        ([NOTHING, NOTHING], 2, 0.0),
    ],
)
def test_a_vote_counts_answers_and_of_equals_takes_the_first(answers, times, share) -> None:
    assert vote(answers, times) == pytest.approx(share)


HOPELESS = {name: alone(ordinal, -1.0) for ordinal, name in enumerate(POOL)}


@pytest.mark.parametrize("questions", [1, 3, 8, 29])
@pytest.mark.parametrize(
    "players",
    [conductor(2.0) | HOPELESS, conductor(0.65, always(0)) | POOL, conductor(-1.0) | POOL],
)
def test_few_questions_decide_nothing(players: dict[str, Player], questions: int) -> None:
    verdict = judged(play(players, 0, questions=questions))
    assert verdict.label.startswith("undecided"), verdict.line
    assert f"too few questions to tell ({questions})" in " ".join(verdict.reasons)
    assert "does not" not in verdict.line, "what is open is not denied"


def test_never_fewer_questions_are_said_to_do_than_anything_is_said_on() -> None:
    found = judged(play({**conductor(2.0), **POOL, **FIXED}, 0, questions=12))
    assert found.label == "undecided (n too small)"
    assert "about 30 questions would show" in found.line


def test_a_question_that_is_added_to_the_table_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubt(Question):
        name = "beyond doubt"

        def ask(self, figures: Orchestration) -> Finding:
            return Finding("no", f"{figures.system} is doubted")

    monkeypatch.setattr(verdict, "QUESTIONS", (*verdict.QUESTIONS, Doubt()))
    found = judged(play(ORCHESTRATOR, 0, questions=300))
    assert (found.line, found.answers["beyond doubt"]) == ("no gain: conductor is doubted", "no")


# ── nothing to compare with ───────────────────────────────────────────────────────────────────────
WITHOUT_ANNA = {name: player for name, player in ORCHESTRATOR.items() if name != "worker:anna"}


@pytest.mark.parametrize(
    ("players", "text"),
    [
        (WITHOUT_ANNA, "anna"),
        (conductor(0.85), "no worker alone has a decided answer"),
    ],
)
def test_what_was_not_evaluated_is_named_and_nothing_is_claimed(players, text: str) -> None:
    """A worker that was not asked alone may be the best."""
    found = judged(play(players, 0, questions=400))
    assert found.label == NOT_ENOUGH
    assert text in found.line
    assert found.answers[BetterThanBest.name] == "unknown"


def test_without_plays_of_its_plans_nothing_is_called_a_gain_and_plays_are_asked_for() -> None:
    found = judged(play(ORCHESTRATOR, 0, questions=400), plays=False)
    assert found.label == NOT_ENOUGH
    assert "its plans were not replayed" in found.line
    assert found.missing is not None
    assert found.missing.replays


def test_a_worker_that_does_nearly_all_for_good_reason_is_no_collapse() -> None:
    """Nine tenths of the steps are dora's, not asked alone; some questions need another worker."""
    mostly = by_kind([3, 3, 3, 3, 3], [3, 3, 3, 3, 2], [3, 3, 3, 3], [3, 3, 3, 2, 3])
    without = {name: player for name, player in POOL.items() if name != "worker:dora"}
    found = judged(play({**conductor(0.85, mostly), **without, **FIXED}, 0, questions=300))
    assert (found.label, found.answers[Collapsed.name]) == (NOT_ENOUGH, "unknown")
    constant = play({**conductor(0.85, always(3)), **without}, 0, questions=300)
    assert judged(constant).label == "collapse"


def test_a_kind_for_every_question_is_no_proof_that_plans_do_not_depend_on_it() -> None:
    records = play(ORCHESTRATOR, 0, questions=300)
    fine = [replace(record, kind=record.problem) for record in records]
    found = judged(fine, plays=False)
    assert (found.answers[DependsOnQuestion.name], found.label) == ("unknown", NOT_ENOUGH)
    again = [*fine, *(replace(record, sample=1) for record in fine)]
    assert judged(again, plays=False).answers[DependsOnQuestion.name] == "yes", "repeats tell"


@pytest.mark.parametrize(
    ("shape", "words", "constant", "label"),
    [
        (0.4, 0.0, 0.4, GAIN),
        (0.0, 0.4, 0.4, GAIN),
        (0.0, 0.0, 0.4, "no gain"),
        (0.0, 0.0, 0.0, "gain by one workflow"),
    ],
)
def test_plays_of_whole_plans_stand_in_for_the_best_fixed_workflow(
    shape: float, words: float, constant: float, label: str
) -> None:
    records = play({**conductor(0.85), **POOL}, 0, questions=400)
    plays = planted_plays(records, shape=shape, words=words, constant=constant)
    assert judged(records, plays=plays).label == label


def test_where_nothing_was_decided_the_line_says_so_and_blames_nobody_else() -> None:
    masked = conductor(0.85, fails=lambda _: 1.0)
    found = judged(play({**ORCHESTRATOR, **masked}, 0, questions=50))
    reason = "none of 50 answers of conductor could be decided"
    assert found.line == f"undecided (too much left out): {reason}"
    assert "conductor and worker:anna have no decided question in common" in found.reasons
    assert "conductor and best_fixed have no decided question in common" in found.reasons


# ── false differences ─────────────────────────────────────────────────────────────────────────────


# ── thresholds ────────────────────────────────────────────────────────────────────────────────────
def test_the_thresholds_are_those_that_the_docs_promise() -> None:
    assert (
        Rules(
            alpha=0.05,
            fewest=30,
            skill_alpha=0.01,
            margin=0.01,
            form_margin=0.10,
            idle=0.05,
            told=0.02,
            unread=0.1,
            same=0.02,
            less=0.8,
            dependence_alpha=0.01,
            dependence_bits=0.1,
            dependence_questions=100,
            lessons=100,
            transplants=20,
            errors=0.25,
            astray=0.15,
            collapsed=0.8,
            paired=50,
        )
        == RULES
    )


@pytest.mark.parametrize(
    ("value", "problems", "reason"),
    [
        (0.0, 100, "too wide to tell; about 7,045 questions would exclude a gain of 1 point"),
        (0.0, 20, "too few questions to tell (20); about 1,409 questions would exclude"),
        (0.05, 100, "too wide to tell; about 815 questions would show a gain like this one"),
    ],
)
def test_an_open_answer_says_how_many_questions_might_do(
    value: float, problems: int, reason: str
) -> None:
    # The spread of a question is .051 x the root of their number. 7,045 questions make the half
    # width of a 90 % interval one point; 815 show five points in 80 of 100 tests at 5 %.
    lead = Estimate(value, value - 0.1, value + 0.1, problems)
    assert leave_open(lead, "it leads").reason.startswith(f"it leads: {reason}")


# ── what counts as a question, a rival and a cost ─────────────────────────────────────────────────
def test_one_text_under_two_names_is_one_question_that_was_asked_twice() -> None:
    records = [make_record("conductor", "1", True, task=task) for task in ("a", "b")]
    questions = {
        ("a", "1"): KeptQuestion("How many?\n(A) two\n(B) ten", "A"),
        ("b", "1"): KeptQuestion("how  many\n(A) ten\n(B) two", "B"),
        ("b", "2"): KeptQuestion("3 - 5", "-2"),
        ("b", "3"): KeptQuestion("3 + 5", "8"),
    }
    first, second = merge_questions(records, questions)
    assert first.key == second.key == ("a", "1")
    assert first.sample != second.sample
    others = [make_record("conductor", number, True, task="b") for number in "23"]
    assert list(merge_questions(others, questions)) == others, "signs alone tell sums apart"


def test_seeds_of_one_recipe_are_judged_together_and_none_may_be_left_out() -> None:
    seeds = {"planner:seed-2": HONEST, "planner:seed-3": HONEST}
    records = play({**ORCHESTRATOR, **seeds}, 1, questions=300)
    siblings = Siblings(tuple(seeds))
    assert judged(records).label != GAIN, "without a recipe they are rivals"
    found = judged(records, siblings=siblings)
    assert found.label == GAIN
    assert measure_orchestration(records, siblings=siblings).repeats == 3
    left_out = judged(records, siblings=replace(siblings, absent=("seed-4",)))
    assert left_out.label == NOT_ENOUGH
    assert "of the same study seed-4 were not evaluated" in left_out.line


def test_siblings_are_found_by_the_recipes_of_their_trainings(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        run = tmp_path / f"seed-{number}"
        (run / "conductor").mkdir(parents=True)
        rate = 1 if number < 3 else 2
        (run / "config.toml").write_text(f"seed = {number}\nrate = {rate}\n")
    first, second, third = (f"planner:{tmp_path}/seed-{number}" for number in (1, 2, 3))

    def found(*systems: str) -> Siblings:
        config = EvalConfig(systems=systems, task=(TaskTable("gym"),))
        return find_siblings(Results.of_records(config, (), workers={}), systems[0])

    assert found(first, f"{second}/conductor", third) == Siblings((f"{second}/conductor",))
    assert found(first, third) == Siblings()
    (tmp_path / "seed-3/config.toml").write_text("seed = 3\nrate = 1\n")
    assert found(first, second).absent == ("seed-3",)


@pytest.mark.parametrize(("skill", "label"), [(0.95, "no gain"), (0.6, GAIN)])
def test_a_system_without_a_part_is_no_rival_unless_it_is_better(skill: float, label: str) -> None:
    without = replace(HONEST, skill=flat(skill))
    for name in ("conductor?subtasks=false", "conductor?access=none&subtasks=false"):
        records = play({**ORCHESTRATOR, name: without}, 1, questions=300)
        found = judged(records)
        assert found.label == label
        assert ("as good without" in found.line) == (label != GAIN)


@pytest.mark.parametrize("options", ["rounds=3", "rounds=unlimited&calls=40"])
def test_a_system_with_more_rounds_denies_the_plain_one_nothing(options: str) -> None:
    longer = replace(HONEST, skill=flat(0.95))
    records = play({**ORCHESTRATOR, f"conductor?{options}": longer}, 1, questions=300)
    assert judged(records).label == GAIN


def test_other_options_of_a_conductor_make_a_rival() -> None:
    records = play({**ORCHESTRATOR, "conductor?cards=true": HONEST}, 1, questions=300)
    assert judged(records).label == "undecided (n too small)"


def play_cheap(lost: float, questions: int, seed: int) -> list[Record]:
    """Play a Conductor at a fifth of the best worker's price that loses a share of its answers."""
    records = play(
        {**POOL, "worker:anna": alone(0, 0.7, dollars="0.05")}, seed, questions=questions
    )
    ours: list[Record] = []
    rng = random.Random(f"cheap/{seed}")
    (plan,) = {record.rounds for record in records if record.system == "worker:bert"}
    for record in records:
        if record.system == "worker:anna":
            flips = rng.random() < (
                (0.08 + lost / 2) / 0.7 if record.correct else (0.08 - lost / 2) / 0.3
            )
            right = record.correct != flips
            made = replace(record, system="conductor", correct=right, usage=CHEAP, rounds=plan)
            ours += [made, replace(record, system="best_fixed")]
    return [*records, *ours]


def cheap(lost: float, questions: int, seed: int) -> str:
    return judged(play_cheap(lost, questions, seed)).label


CHEAP = make_record("conductor", "1", True).usage


def test_as_good_for_a_fifth_of_the_price_is_the_same_for_less() -> None:
    assert cheap(0.0, 3000, 2) == "same for less"
    assert cheap(0.025, 3000, 1) != "same for less"
    assert cheap(0.0, 200, 1) != "same for less", "too few questions to exclude a loss of 2 points"


def test_a_still_cheaper_worker_that_is_shown_to_be_worse_denies_no_same_for_less() -> None:
    figures = measure_orchestration(play_cheap(0.0, 600, 2), workers=WORKERS)
    anna, bert = figures.workers["anna"], figures.workers["bert"]
    assert anna.lead is not None
    as_good = replace(anna, cost=5.0, lead=replace(anna.lead, low=-0.01, high=0.01, value=0.0))
    near = replace(bert, accuracy=anna.accuracy, cost=1.0)
    workers = {"anna": as_good, "bert": near}
    known = replace(figures, workers=workers, best_single=as_good, best_fixed=None, random=None)
    assert SameForLess().ask(known).answer == "yes", "it is better than bert"
    level = replace(near, lead=as_good.lead)
    denied = SameForLess().ask(replace(known, workers={**workers, "bert": level}))
    assert denied.reason == "bert costs no more for certain"
    better = replace(as_good, cost=1.0, lead=near.lead)
    beaten = replace(known, best_single=better, workers={"anna": better})
    assert SameForLess().ask(beaten).answer == "no", "a gain at a higher price is no saving"


def test_a_vote_whose_answers_are_all_the_workers_own_is_no_vote() -> None:
    dear = conductor(0.8, dollars="0.05")
    records = play({**POOL, **FIXED, **dear}, 1, questions=300)
    own = [record for record in records if record.system == "worker:anna"]
    usage = records[0].usage
    same = [replace(record, system="consensus:anna?n=5", usage=usage) for record in own]
    found = judged([*records, *same])
    assert found.answers[BetterAtEqualCost.name] == "unknown"


def test_the_planner_alone_counts_only_where_it_can_be_read() -> None:
    dumb = alone(0, 0.99)
    records = play({**ORCHESTRATOR, "planner_alone": dumb}, 1, questions=300)
    assert judged(records).label == "answers itself"
    unread: list[Record] = []
    for record in records:
        if record.system == "planner_alone":
            unread.append(replace(record, correct=False, status="unparsed"))
        else:
            unread.append(record)
    assert judged(unread).label == GAIN


def test_the_model_that_it_was_trained_from_must_be_asked_and_be_beaten() -> None:
    base = "planner_alone:transformers:small"
    siblings = Siblings(base=base)
    records = play(ORCHESTRATOR, 1, questions=300)
    unasked = judged(records, siblings=siblings)
    assert unasked.missing is not None
    assert (unasked.label, unasked.missing.systems) == (NOT_ENOUGH, (base,))
    for skill, label in ((0.3, GAIN), (0.99, "answers itself")):
        asked = play({**ORCHESTRATOR, base: alone(0, skill)}, 1, questions=300)
        assert judged(asked, siblings=siblings).label == label


def test_the_base_of_a_training_is_that_of_the_first_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for run, base in ((first, "hub/small"), (second, str(first))):
        (run / "conductor").mkdir(parents=True)
        (run / "config.toml").write_text(f"[model]\nbase = {base!r}\n")
    system = f"planner:{second}/conductor"
    config = EvalConfig(systems=(system,), task=(TaskTable("gym"),))
    results = Results.of_records(config, (), workers={})
    assert find_base(results, system, {}) == "planner_alone:transformers:hub/small"
    assert find_base(results, "worker:jack", {}) == ""
    (first / "environment.json").write_text('{"base": "ab12"}')
    elsewhere = {"weights": {"transformers:copies/model": "ab12", "transformers:hub/small": ""}}
    known = find_base(results, system, elsewhere)
    assert known == "planner_alone:transformers:copies/model", "by its weights, whatever its name"
    unasked = find_base(results, system, {"weights": {"transformers:other": "cd34"}})
    assert unasked == "planner_alone:transformers:hub/small"
    swapped = {"weights": {"transformers:hub/small": "cd34"}}
    with pytest.raises(ConfigError, match="got weights 'cd34', expected 'ab12'"):
        find_base(results, system, swapped)
    for damaged in ('{"base": "ab', "[]"):
        (first / "environment.json").write_text(damaged)
        with pytest.raises(ConfigError, match=r"first/environment\.json: .* expected an object"):
            find_base(results, system, elsewhere)


def test_plans_whose_errors_any_worker_makes_are_no_gain_however_the_code_is_hidden() -> None:
    records = play(ORCHESTRATOR, 1, questions=300)
    plays = planted_plays(records)
    wrong = [key for key, (score,) in plays.own.items() if not score]
    assert judged(records, plays=replace(plays, errors=dict.fromkeys(wrong, 0.0))).label == GAIN
    told = judged(records, plays=replace(plays, errors=dict.fromkeys(wrong, 1.0)))
    assert told.label == NOT_ENOUGH
    assert "other workers make the errors of its plans" in told.line


def test_several_tasks_are_pooled_by_what_they_tell_where_they_agree() -> None:
    first = {("large", str(number)): [float(number % 10 != 0)] for number in range(400)}
    second = {("large", str(number)): [float(number % 10 > 1)] for number in range(400)}
    small = {("small", str(number)): [float(number % 5 > 0)] for number in range(20)}
    lower = {("small", str(number)): [float(number % 5 > 1)] for number in range(20)}
    alike = difference(first | small, second | lower)
    pooled = difference(first | small, second | lower, pooled=True)
    assert alike is not None
    assert pooled is not None
    assert alike.value == pytest.approx((0.1 + 0.2) / 2)
    assert 0.1 < pooled.value < 0.12
    assert pooled.p < alike.p
    lost = {("lost", str(number)): [float(number % 2)] for number in range(20)}
    never = {key: [0.0] for key in lost}
    alike = difference(first | never, second | lost)
    assert difference(first | never, second | lost, pooled=True) == alike, "it outvotes nobody"
    right = {key: [float(int(key[1]) < 5)] for key in lost}
    behind = {key: [float(5 <= int(key[1]) < 11)] for key in lost}
    chance = difference(first | right, second | behind, pooled=True)
    assert chance is not None
    assert chance.value > 0.05, "one question that was lost by chance does not hide the rest"


def test_the_best_of_many_equal_workers_is_not_the_rival_by_its_luck() -> None:
    many = {f"worker:w{number}": alone(number, 0.6) for number in range(40)}
    names = dict(enumerate(name.removeprefix("worker:") for name in many))
    records = play({**many, **conductor(0.7)}, 3, questions=300)
    figures: Any = measure_orchestration(records, workers=names)
    assert figures.best_single.lead.low <= 0 < figures.best_fitted.lead.low
    assert BetterThanBest().ask(figures).answer == "yes"


def test_a_worker_that_could_not_be_read_counts_as_it_does_in_the_conductors_words() -> None:
    records: list[Record] = []
    for record in play(ORCHESTRATOR, 1, questions=300):
        shy = record.system == "worker:anna" and int(record.problem[1:]) % 3 == 0
        if shy:
            records.append(replace(record, correct=False, status="unparsed", answer=None))
        else:
            records.append(record)
    found = judged(records)
    assert found.label == NOT_ENOUGH
    assert "too many answers of anna could not be decided or read" in found.line
    plays = planted_plays(records)
    keys = {record.key for record in records}

    def again(right: float) -> str:
        in_form = {"worker:anna": {key: [right] for key in keys}}
        return judged(records, plays=replace(plays, in_form=in_form)).label

    assert again(0.0) == GAIN, "it is no better in other words"
    assert again(1.0) == "no gain"


def test_a_fixed_workflow_that_learnt_from_few_questions_is_no_rival_to_beat() -> None:
    records = play(ORCHESTRATOR, 1, questions=300)
    assert judged(records, lessons=40).label == NOT_ENOUGH
    assert judged(records, lessons=100).label == GAIN
