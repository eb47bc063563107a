"""The figures of a report against numbers worked out by hand."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_records import ROUTED, WORKERS, Player, alone, always, flat, make_record, play

from openconductor.errors import ConfigError
from openconductor.evaluation.headroom import headroom
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate
from openconductor.report import Orchestration, judge, measure_orchestration
from openconductor.report.report import Report
from openconductor.report.rivals import UNPRICED, find_effort, measure_change
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
ALL_WORKERS = ("anna", "bert", "cora", "dora")


def measured(questions: int = 120, **players: Player) -> Any:
    """The figures of the players, some of them changed."""
    return measure_orchestration(
        play({**PLAYERS, **players}, 1, questions=questions), workers=WORKERS
    )


def report_of(figures: Orchestration) -> Report:
    return Report("r", "unconstrained", 0, figures, judge(figures))


def lines_of(figures: Orchestration, title: str) -> list[str]:
    (part,) = [part for part in sections(report_of(figures)) if part.title == title]
    return list(part.lines)


# ── an evaluation ─────────────────────────────────────────────────────────────────────────────────
def test_levels_regret_and_the_share_of_headroom_are_what_they_are_called() -> None:
    records = play(PLAYERS, 1, questions=120)
    figures: Any = measure_orchestration(records, workers=WORKERS)
    correct = [record.system for record in records if record.correct]
    right = {name: correct.count(name) / 120 for name in PLAYERS}
    won, best = right["conductor"] - right["worker:anna"], figures.best_single
    assert figures.accuracy.value == pytest.approx(right["conductor"])
    assert figures.oracle.lead.value == pytest.approx(right["conductor"] - right["oracle"])
    room = right["oracle"] - right["worker:anna"]
    assert figures.captured.value == pytest.approx(won / room)
    assert figures.captured.low < figures.captured.value < figures.captured.high
    assert (best.system, figures.unasked) == ("worker:anna", ("cora", "dora"))
    assert set(figures.workers) == {"anna", "bert"}
    assert [level.system for level in figures.others] == ["moa:anna"]


def test_routing_is_counted_over_steps_and_by_kind() -> None:
    routing = measured().routing
    shares = [routing.whole.workers[name].value for name in ALL_WORKERS]
    assert shares == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    assert routing.whole.entropy.value == pytest.approx(1.792481)
    assert (routing.whole.steps.value, routing.most_bits) == (1.5, 2.0)
    assert [group.name for group in routing.by_kind] == ["k0", "k1", "k2", "k3"]
    assert routing.dependence.bits == pytest.approx(2.0)
    assert routing.by_task == ()


def test_masked_answers_are_counted_and_a_lead_is_also_told_with_them_as_wrong() -> None:
    shy = replace(CONDUCTOR, fails=lambda right: 0.0 if right else 1.0)
    figures = measured(conductor=shy)
    best = figures.best_single
    assert (figures.accuracy.value, best.strict.problems) == (1.0, 120)
    assert figures.masked > 10
    assert best.lead.value > best.strict.value + 0.1


def test_a_vote_of_a_worker_that_beats_the_best_one_alone_is_the_rival_at_equal_cost() -> None:
    votes = {
        "consensus:bert?n=5": alone(1, 0.75, dollars="0.05"),
        "consensus:anna?n=5": alone(0, 0.65, dollars="0.05"),
    }
    rival = measured(200, conductor=replace(CONDUCTOR, dollars="0.05"), **votes).effort
    assert (rival.name, rival.votes, rival.unit) == ("consensus:bert?n=5", 0, "dollars")
    assert rival.cost == pytest.approx(1.0)
    assert rival.enough and rival.fair


def test_without_prices_calls_are_what_costs() -> None:
    by_system: dict[str, list[Record]] = {name: [] for name in PLAYERS}
    for record in play(PLAYERS, 1, questions=40):
        usage = replace(record.usage, unpriced_calls=1)
        by_system[record.system].append(replace(record, usage=usage))
    rival = find_effort(by_system, "conductor", "worker:anna")
    assert rival is not None
    assert (rival.unit, rival.name, rival.enough) == (UNPRICED, "anna alone", False)
    assert (rival.cost, rival.wanted) == pytest.approx((1 / 2.5, 2.5))


def test_a_conductor_of_which_nothing_was_decided_is_not_said_to_write_no_plans() -> None:
    records = play(
        {**PLAYERS, "conductor": replace(CONDUCTOR, fails=lambda _: 1.0)}, 1, questions=40
    )
    unreached = [
        replace(record, rounds=()) if record.system == "conductor" else record for record in records
    ]
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


def test_a_regret_of_nothing_has_no_sign() -> None:
    same = measured(40, oracle=CONDUCTOR)
    lead = replace(same.oracle.lead, value=1e-17, low=-0.1, high=0.1)
    figures = replace(same, oracle=replace(same.oracle, lead=lead))
    line = lines_of(figures, "Where it stands")[0]
    assert line.startswith("Regret to the oracle: 0.0 points (-10.0 to 10.0).")
    assert points(Estimate(-1e-17, 0, 0, 1)) == "+0.0"


def test_kinds_stand_from_easy_to_hard_in_their_tasks_order() -> None:
    names = {"k0": "hard", "k1": "easy", "k2": "medium", "k3": "easy"}
    records = play(PLAYERS, 1, questions=40)
    graded = [replace(record, kind=names[record.kind]) for record in records]
    levels: list[Record] = []
    for record in graded:
        level = "level 10" if record.kind == "easy" else "level 9"
        levels.append(replace(record, task="algebra", kind=level))

    def names_of(some: Sequence[Record]) -> tuple[list[str], list[str]]:
        routing = measure_orchestration(some, workers=WORKERS).routing
        by_kind = [group.name for group in routing.by_kind]
        return [group.name for group in routing.by_task], by_kind

    assert names_of(graded) == ([], ["easy", "medium", "hard"])
    assert names_of(levels) == ([], ["level 9", "level 10"])
    tasks, kinds = names_of([*graded, *levels])
    assert tasks == ["sums", "algebra"]
    assert kinds[-2:] == ["algebra / level 9", "algebra / level 10"]


@pytest.mark.parametrize(
    ("repeats", "whose", "luck"),
    [
        (1, "anna, the best worker on these questions", True),
        (3, "the worker that other questions would choose", False),
    ],
)
def test_a_pools_gain_is_said_with_both_levels_that_it_lies_between(repeats, whose, luck) -> None:
    """Without luck on both sides, or with luck on both."""
    records = play(PLAYERS, 1, questions=60, repeats=repeats)
    room: Any = headroom(records, gains=(0.01, 0.025, 0.07))
    text = gain(room)
    parts: Any = re.fullmatch(
        r"(\S+) points over (.+) \((\S+) %\), to (\S+) % \(95 % interval .+\)", text
    )
    lead, single, oracle = (float(parts[place]) for place in (1, 3, 4))
    assert lead == pytest.approx(oracle - single, abs=0.11)
    assert (parts[2], "luck included" in text) == (whose, luck)
    expected = room.best_naive if luck else room.best_fitted
    assert single == pytest.approx(100 * expected.value, abs=0.06)
    lines = " ".join(line for part in pool_sections(room) for line in part.lines)
    assert re.search(r"power: 1 point .+; 2\.5 points .+; 7 points", lines)
    assert "plans of several steps may need it" in lines
    if not luck:
        fewer = replace(room, room_corrected=replace(room.room_corrected, problems=41))
        assert "points on the 41 questions that both have decided over" in gain(fewer)


def test_a_system_that_is_not_there_is_an_error_that_says_which_are() -> None:
    with pytest.raises(ConfigError, match="expected one of conductor, worker:anna"):
        measure_orchestration(play(PLAYERS, 1, questions=2), system="conducter")


@pytest.mark.parametrize("systems", [list(PLAYERS), ["conductor"], ["worker:anna"]])
def test_a_report_of_whatever_there_is_can_be_said_and_written(systems: list[str]) -> None:
    """Every section has cells for its columns, no figure that is not one, and plain values."""
    players = {name: PLAYERS[name] for name in systems}
    for questions, repeats in ((1, 1), (3, 2), (40, 3)):
        records = play(players, 2, questions=questions, repeats=repeats)
        before = records[:: len(players)]
        figures = measure_orchestration(records, system=systems[0], before=before, workers=WORKERS)
        room = headroom(records)
        report = Report("r", "unconstrained", 0, figures, judge(figures), room)
        json.dumps(report.to_json(), allow_nan=False)
        parts = [*sections(report), *(pool_sections(room) if room is not None else ())]
        assert heading(report).startswith(systems[0])
        assert {"Where it stands", "Form", "Who works, and how"} <= {part.title for part in parts}
        for part in parts:
            assert all(len(row) == len(part.head) for row in part.rows), part.title
            cells = [cell for row in part.rows for cell in row]
            words = set(" ".join((*part.lines, *cells)).split())
            assert words.isdisjoint({"nan", "inf", "None", "-inf"}), part.title


# ── what a training changed ───────────────────────────────────────────────────────────────────────
def learner(skill: float, invalid: float) -> dict[str, Player]:
    def plan(rng: random.Random, _kind: int) -> Sequence[int] | None:
        return None if rng.random() < invalid else (0, 1)

    return {"conductor": Player(flat(skill), plan, planned=True)}


def by_hand(*rows: tuple[bool, bool]) -> list[Record]:
    """Records of one question each: whether the plan was valid, and whether it was right."""
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


def test_a_learner_of_form_gains_by_form_and_one_of_skill_by_skill() -> None:
    before = play(learner(0.6, 0.4), 1, questions=400)
    form: Any = measure_change(before, play(learner(0.6, 0.0), 2, questions=400), workers=4)
    skill: Any = measure_change(before, play(learner(0.9, 0.4), 3, questions=400), workers=4)
    assert form.by_form.low > 0.15
    assert form.by_skill.low < 0 < form.by_skill.high
    assert skill.by_skill.low > 0.08
    assert skill.by_form.low < 0 < skill.by_form.high


def test_only_what_both_were_asked_and_wrote_is_compared() -> None:
    before = play(learner(0.6, 0.0), 1, asked=range(50))
    after = play(learner(0.6, 0.0), 1, asked=range(30, 100))
    assert measure_change(before, after, workers=4).questions == 20
    right = by_hand(*[RIGHT] * 10)
    unreached = [
        replace(record, correct=None, status="failed") for record in by_hand(*[INVALID] * 5)
    ]
    change: Any = measure_change([*unreached, *right[5:]], right, workers=2)
    # A planner that could not be reached wrote no invalid plan.
    assert (change.validity.value, change.validity.problems) == (0.0, 5)
    change = measure_change(by_hand(*[INVALID] * 10), right, workers=2)
    assert change.by_form is change.by_skill is change.given_valid is None, "there is no skill"
    wide = {"conductor": Player(flat(0.5), lambda rng, _: (rng.randrange(4),), planned=True)}
    narrow = {"conductor": Player(flat(0.5), always(2), planned=True)}
    change = measure_change(play(wide, 1), play(narrow, 1), workers=4)
    entropies = (change.entropy_before.value, change.entropy_after.value)
    assert entropies == pytest.approx((2.0, 0.0), abs=0.05)


# ── a training's curve ────────────────────────────────────────────────────────────────────────────
def curve(folder: Path, iterations: int) -> Path:
    """Validity from 50 to 100 %, skill as it was, routing from 2 bits to 0, ever fewer shapes."""
    lines: list[str] = []
    for number in range(iterations):
        part = number / (iterations - 1)
        validity, single = 0.5 + 0.5 * part, 32 + round(32 * part)
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
    report = replace(report_of(figures), training=read_training(curve(tmp_path, 6)))
    (part,) = [part for part in sections(report) if part.title == "The training"]
    assert part.rows[0] == ("valid plans, %", "50.0", "100.0")
