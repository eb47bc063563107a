"""The figures of a report against numbers worked out by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_records import (
    KINDS,
    ROUTED,
    WORKERS,
    Player,
    alone,
    always,
    flat,
    make_record,
    planted_plays,
    play,
)

from openconductor.errors import ConfigError
from openconductor.evaluation.headroom import headroom
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate
from openconductor.report import Orchestration, judge, measure_orchestration
from openconductor.report.report import Report
from openconductor.report.rivals import ANSWERS, count_answers, find_effort, measure_change
from openconductor.report.sections import gain, heading, pool_sections, sections
from openconductor.report.training import read_training
from openconductor.report.words import points

CONDUCTOR = Player(flat(0.8), ROUTED, planned=True)
PLAYERS = {
    "conductor": CONDUCTOR,
    "worker:anna": alone(0, 0.6),
    "worker:bert": alone(1, 0.5),
    "random": Player(flat(0.3), always(3)),
    "oracle": Player(flat(0.9), always(2)),
    "moa:anna": Player(flat(0.6), always(0, 1, 0)),
}


def measured(questions: int = 120, **players: Player) -> Any:
    """Measure the players, some of them changed."""
    records = play(PLAYERS | players, 1, questions=questions)
    return measure_orchestration(records, workers=WORKERS)


def lines_of(figures: Orchestration, title: str) -> list[str]:
    report = Report("r", "unconstrained", 0, figures, judge(figures))
    (part,) = [part for part in sections(report) if part.title == title]
    return list(part.lines)


# ── an evaluation ─────────────────────────────────────────────────────────────────────────────────
# ── an evaluation ─────────────────────────────────────────────────────────────────────────────────
def test_levels_regret_and_the_share_of_headroom_are_what_they_are_called() -> None:
    records = play(PLAYERS, 1, questions=120)
    figures: Any = measure_orchestration(records, workers=WORKERS)
    correct = Counter(record.system for record in records if record.correct)
    ours, anna, oracle = (correct[name] / 120 for name in ("conductor", "worker:anna", "oracle"))
    assert figures.accuracy.value == pytest.approx(ours)
    assert figures.oracle.lead.value == pytest.approx(ours - oracle)
    captured = figures.captured
    assert captured.value == pytest.approx((ours - anna) / (oracle - anna))
    assert captured.low < captured.value < captured.high
    assert figures.best_single.system == "worker:anna"
    assert figures.unasked == ("cora", "dora")
    assert set(figures.workers) == {"anna", "bert"}
    assert [level.system for level in figures.others] == ["moa:anna"]


def test_masked_answers_are_counted_and_a_lead_is_also_told_with_them_as_wrong() -> None:
    shy = replace(CONDUCTOR, fails=lambda right: 0.0 if right else 1.0)
    figures = measured(conductor=shy)
    best = figures.best_single
    assert figures.accuracy.value == 1.0
    assert figures.masked > 10
    assert best.strict.problems == 120
    assert best.lead.value > best.strict.value + 0.1


def test_without_prices_answers_are_what_costs() -> None:
    by_system: dict[str, list[Record]] = {}
    for record in play(PLAYERS, 1, questions=40):
        usage = replace(record.usage, unpriced_calls=1)
        calls = count_answers(record, ())
        counted = replace(record, usage=usage, calls=calls)
        by_system.setdefault(record.system, []).append(counted)
    rival: Any = find_effort(by_system, "conductor", "worker:anna")
    assert (rival.unit, rival.name, rival.enough) == (ANSWERS, "anna alone", False)
    assert (rival.cost, rival.wanted) == pytest.approx((1 / 1.5, 1.5))


def test_a_worker_without_a_model_and_a_trained_planner_give_no_answers_of_models() -> None:
    merged = make_record("conductor", "1", True, (0, 1, 2), planned=True, calls=4)
    assert count_answers(merged, ()) == 3
    assert count_answers(merged, {2}) == 2
    prompted = replace(merged, system="planner:openai:large")
    assert count_answers(prompted, {2}) == 3


def test_a_conductor_of_which_nothing_was_decided_is_not_said_to_write_no_plans() -> None:
    lost = replace(CONDUCTOR, fails=lambda _: 1.0)
    records = play(PLAYERS | {"conductor": lost}, 1, questions=40)
    unreached = [replace(record, rounds=()) for record in records]
    nothing = measure_orchestration(unreached, workers=WORKERS)
    baseline = measure_orchestration(records, system="moa:anna", workers=WORKERS)
    assert lines_of(nothing, "Form") == ["There is no validity: nothing was decided."]
    assert lines_of(baseline, "Form") == [
        "There is no validity: moa:anna writes no plans in words."
    ]


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        ("0.05", "Of the best worker's votes the nearest in cost: anna"),
        ("0.01", "At equal cost: anna"),
    ],
)
def test_a_vote_far_from_the_systems_cost_is_not_called_one_at_equal_cost(dollars, text) -> None:
    figures = measured(conductor=replace(CONDUCTOR, dollars=dollars))
    assert any(line.startswith(text) for line in lines_of(figures, "Where it stands"))


def test_what_whole_plans_are_worth_is_a_table_and_a_share_that_follows() -> None:
    records = play(PLAYERS, 1, questions=120)
    plays = planted_plays(records, follows=flat(0.5), shape=0.3)
    figures = measure_orchestration(records, workers=WORKERS, plays=plays)
    assert figures.plays is not None
    report = Report("r", "unconstrained", 0, figures, judge(figures))
    (part,) = [part for part in sections(report) if part.title == "What whole plans are worth"]
    assert part.rows[0][1] == points(figures.plays.shape)
    assert f"{100 * figures.plays.share:.1f} % of the plans" in part.lines[1]
    json.dumps(report.to_json(), allow_nan=False)


def test_a_regret_of_nothing_has_no_sign() -> None:
    same = measured(40, oracle=CONDUCTOR)
    lead = replace(same.oracle.lead, value=1e-17, low=-0.1, high=0.1)
    figures = replace(same, oracle=replace(same.oracle, lead=lead))
    line = lines_of(figures, "Where it stands")[0]
    assert line.startswith("Regret to the oracle: 0.0 points (-10.0 to 10.0).")
    assert points(Estimate(-1e-17, 0, 0, 1)) == "+0.0"


def in_kinds(task: str, *kinds: str) -> list[Record]:
    """Return the records of 40 questions, each of the four kinds renamed."""
    renamed = dict(zip(KINDS, kinds, strict=True))
    records = play(PLAYERS, 1, questions=40)
    return [replace(record, task=task, kind=renamed[record.kind]) for record in records]


def test_kinds_stand_from_easy_to_hard_in_their_tasks_order() -> None:
    def names_of(records: Sequence[Record]) -> tuple[list[str], list[str]]:
        routing = measure_orchestration(records, workers=WORKERS).routing
        by_task = [group.name for group in routing.by_task]
        return by_task, [group.name for group in routing.by_kind]

    graded = in_kinds("sums", "hard", "easy", "medium", "easy")
    levels = in_kinds("algebra", "level 9", "level 10", "level 9", "level 10")
    assert names_of(graded) == ([], ["easy", "medium", "hard"])
    assert names_of(levels) == ([], ["level 9", "level 10"])
    tasks, kinds = names_of(graded + levels)
    assert tasks == ["sums", "algebra"]
    assert kinds[-2:] == ["algebra / level 9", "algebra / level 10"]


GAIN = re.compile(
    r"at (?:most|least) (\S+) points over (.+) \((\S+) %\), to (\S+) % \(95 % interval .+\)"
)


@pytest.mark.parametrize(
    ("repeats", "whose", "luck", "bound"),
    [
        (1, "anna, the best worker on these questions", True, "at most"),
        (3, "the worker that other questions would choose", False, "at leas"),
    ],
)
def test_a_pools_gain_is_said_with_both_levels_that_it_lies_between(
    repeats, whose, luck, bound
) -> None:
    """Without luck on both sides, or with luck on both."""
    room: Any = headroom(play(PLAYERS, 1, questions=60, repeats=repeats))
    text = gain(room)
    parts: Any = GAIN.fullmatch(text)
    lead, single, oracle = (float(parts[place]) for place in (1, 3, 4))
    assert lead == pytest.approx(oracle - single, abs=0.11)
    assert (parts[2], "luck included" in text, text[:7]) == (whose, luck, bound)
    expected = room.best_naive if luck else room.best_fitted
    assert single == pytest.approx(100 * expected.value, abs=0.06)
    if not luck:
        fewer = replace(room, room_corrected=replace(room.room_corrected, problems=41))
        assert "points on the 41 questions that both have decided over" in gain(fewer)


def test_the_gains_that_so_many_questions_show_are_listed() -> None:
    room: Any = headroom(play(PLAYERS, 1, questions=60), gains=(0.01, 0.025, 0.07))
    lines = " ".join(line for part in pool_sections(room, {}) for line in part.lines)
    assert re.search(r"power: 1 point .+; 2\.5 points .+; 7 points", lines)
    assert "plans of several steps may need it" in lines


def test_a_system_that_is_not_there_is_an_error_that_says_which_are() -> None:
    with pytest.raises(ConfigError, match="expected one of conductor, worker:anna"):
        measure_orchestration(play(PLAYERS, 1, questions=2), system="conducter")


@pytest.mark.parametrize(("questions", "repeats"), [(1, 1), (3, 2), (40, 3)])
@pytest.mark.parametrize("systems", [list(PLAYERS), ["conductor"], ["worker:anna"]])
def test_a_report_of_whatever_there_is_can_be_said_and_written(
    systems: list[str], questions: int, repeats: int
) -> None:
    """Every section has cells for its columns, no figure that is not one, and plain values."""
    players = {name: PLAYERS[name] for name in systems}
    records = play(players, 2, questions=questions, repeats=repeats)
    before = records[:: len(players)]
    figures = measure_orchestration(records, system=systems[0], before=before, workers=WORKERS)
    room = headroom(records)
    report = Report("r", "unconstrained", 0, figures, judge(figures), room)
    json.dumps(report.to_json(), allow_nan=False)
    assert heading(report).startswith(systems[0])
    parts = [*sections(report), *(pool_sections(room, {}) if room is not None else ())]
    assert {"Where it stands", "Form", "Who works, and how"} <= {part.title for part in parts}
    for part in parts:
        text = list(part.lines)
        for row in part.rows:
            assert len(row) == len(part.head), part.title
            text += row
        assert {"nan", "inf", "None", "-inf"}.isdisjoint(" ".join(text).split()), part.title


# ── what a training changed ───────────────────────────────────────────────────────────────────────


# ── what a training changed ───────────────────────────────────────────────────────────────────────
def by_hand(*rows: tuple[bool, bool]) -> list[Record]:
    """Make records of one question each: whether the plan was valid, and whether it was right."""
    records: list[Record] = []
    for question, (valid, right) in enumerate(rows):
        plan = (0, 1) if valid else None
        records.append(make_record("conductor", question, right, plan, planned=True))
    return records


RIGHT, WRONG, INVALID = (True, True), (True, False), (False, False)


def test_the_two_parts_of_a_gain_are_the_textbooks_and_add_up_to_it() -> None:
    """Validity .5 to .75, right of the valid .5 to 2/3: form is .25 x 7/12, skill is 1/6 x .625."""
    before = by_hand(RIGHT, WRONG, INVALID, INVALID)
    change: Any = measure_change(before, by_hand(RIGHT, RIGHT, WRONG, INVALID), workers=2)
    form, skill = change.by_form.value, change.by_skill.value
    assert (form, skill) == pytest.approx((0.25 * 7 / 12, 1 / 6 * 0.625))
    assert form + skill == pytest.approx(change.accuracy.value) == pytest.approx(0.25)
    assert change.given_valid.problems == 2, "only where both wrote a valid plan"


def test_only_what_both_were_asked_and_wrote_is_compared() -> None:
    plain = {"conductor": Player(flat(0.6), always(0, 1), planned=True)}
    before = play(plain, 1, asked=range(50))
    after = play(plain, 1, asked=range(30, 100))
    assert measure_change(before, after, workers=4).questions == 20
    right = by_hand(*[RIGHT] * 10)
    unreached: list[Record] = []
    for record in by_hand(*[INVALID] * 5):
        unreached.append(replace(record, correct=None, status="failed"))
    change: Any = measure_change([*unreached, *right[5:]], right, workers=2)
    # A planner that could not be reached wrote no invalid plan.
    assert (change.validity.value, change.validity.problems) == (0.0, 5)


def test_without_a_valid_plan_before_there_is_no_part_of_skill() -> None:
    change = measure_change(by_hand(*[INVALID] * 10), by_hand(*[RIGHT] * 10), workers=2)
    assert change.by_form is change.by_skill is change.given_valid is None


def test_routing_that_collapses_in_training_loses_its_entropy() -> None:
    wide = {"conductor": Player(flat(0.5), lambda rng, _: (rng.randrange(4),), planned=True)}
    narrow = {"conductor": Player(flat(0.5), always(2), planned=True)}
    change: Any = measure_change(play(wide, 1), play(narrow, 1), workers=4)
    assert change.entropy_before.value == pytest.approx(2.0, abs=0.05)
    assert change.entropy_after.value == 0


# ── a training's curve ────────────────────────────────────────────────────────────────────────────
# ── a training's curve ────────────────────────────────────────────────────────────────────────────
def curve(folder: Path, iterations: int) -> Path:
    """Write a curve: validity from 50 to 100 %, skill as it was, routing from 2 bits to 0."""
    lines: list[str] = []
    for number in range(iterations):
        part = number / (iterations - 1)
        validity = 0.5 + 0.5 * part
        single = 32 + round(32 * part)
        line = {
            "iteration": number,
            "rollouts": 64,
            "masked": 0,
            "validity": validity,
            "accuracy": 0.96 * validity,
            "accuracy_given_valid": 0.96,
            "routing_entropy_bits": 2.0 * (1 - part),
            "worker_share": {"anna": validity, "bert": 1 - validity},
            "topology": {"single": single, "chain": 64 - single},
        }
        lines.append(json.dumps(line) + "\n")
    (folder / "curves.jsonl").write_text("".join(lines))
    return folder


def test_format_that_is_learnt_while_skill_stays_is_seen_in_the_curve(tmp_path: Path) -> None:
    training: Any = read_training(curve(tmp_path, 100))
    assert training.validity.begin.high < training.validity.end.low
    assert training.given_valid.begin == training.given_valid.end
    assert training.routing_entropy.end.value < 0.5
    assert training.shapes.begin.value == pytest.approx(2.0, abs=0.02)
    assert training.shapes.end.value < 1.8
    json.dumps(training.to_json(), allow_nan=False)


def test_one_iteration_has_a_level_and_no_interval(tmp_path: Path) -> None:
    figures = measure_orchestration(play(PLAYERS, 0, questions=5))
    training = read_training(curve(tmp_path, 6))
    report = Report("r", "unconstrained", 0, figures, judge(figures), training=training)
    (part,) = [part for part in sections(report) if part.title == "The training"]
    assert part.rows[0] == ("valid plans, %", "50.0", "100.0")
