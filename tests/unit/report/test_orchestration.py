"""The figures of a report against numbers worked out by hand: of an evaluation, of a training, of what it changed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from planted_records import WORKERS, Player, alone, always, by_kind, flat, play

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

PLAYERS = {
    "conductor": Player(flat(0.8), by_kind([0], [0, 1], [2], [3, 0]), planned=True),
    "worker:anna": alone(0, 0.6),
    "worker:bert": alone(1, 0.5),
    "random": Player(flat(0.3), always(3)),
    "oracle": Player(flat(0.9), always(2)),
    "moa:anna": Player(flat(0.6), always(0, 1, 0)),
}


def test_levels_regret_and_the_share_of_headroom_are_what_they_are_called() -> None:
    records = play(PLAYERS, 1, questions=120)
    found = measure_orchestration(records, workers=WORKERS)
    right = {
        name: sum(one.correct is True for one in records if one.system == name) / 120
        for name in PLAYERS
    }
    oracle, best, won = found.oracle, found.best_single, found.captured
    assert (
        found.accuracy is not None
        and oracle is not None
        and oracle.lead is not None
        and best is not None
    )
    assert won is not None and won.low is not None and won.high is not None
    assert found.accuracy.value == pytest.approx(right["conductor"])
    assert oracle.lead.value == pytest.approx(right["conductor"] - right["oracle"])
    room = right["oracle"] - right["worker:anna"]
    assert won.value == pytest.approx((right["conductor"] - right["worker:anna"]) / room)
    assert won.low < won.value < won.high
    assert (best.system, found.unasked, set(found.workers)) == (
        "worker:anna",
        ("cora", "dora"),
        {"anna", "bert"},
    )
    assert [one.system for one in found.others] == ["moa:anna"]


def test_routing_is_counted_over_steps_and_by_kind() -> None:
    found = measure_orchestration(play(PLAYERS, 1, questions=120), workers=WORKERS).routing
    shares = {name: round(one.value, 6) for name, one in found.whole.workers.items()}
    assert shares == {
        "anna": 0.5,
        "bert": round(1 / 6, 6),
        "cora": round(1 / 6, 6),
        "dora": round(1 / 6, 6),
    }
    assert found.whole.entropy is not None and found.whole.steps is not None
    assert (found.whole.entropy.value, found.whole.steps.value) == pytest.approx((1.792481, 1.5))
    assert found.most_bits == 2.0
    assert [one.name for one in found.by_kind] == ["k0", "k1", "k2", "k3"]
    assert found.dependence is not None
    assert found.dependence.bits == pytest.approx(2.0)
    assert found.by_task == ()


def test_masked_answers_are_counted_and_a_lead_is_also_told_with_them_as_wrong() -> None:
    shy = replace(PLAYERS["conductor"], fails=lambda right: 0.0 if right else 1.0)
    found = measure_orchestration(
        play({**PLAYERS, "conductor": shy}, 1, questions=120), workers=WORKERS
    )
    best = found.best_single
    assert (
        found.accuracy is not None
        and best is not None
        and best.lead is not None
        and best.strict is not None
    )
    assert (found.accuracy.value, best.strict.problems) == (1.0, 120)
    assert found.masked > 10
    assert best.lead.value > best.strict.value + 0.1


def test_a_vote_of_a_worker_that_beats_the_best_one_alone_is_the_rival_at_equal_cost() -> None:
    rivals = {
        **PLAYERS,
        "conductor": replace(PLAYERS["conductor"], dollars="0.05"),
        "consensus:bert?n=5": alone(1, 0.75, dollars="0.05"),
        "consensus:anna?n=5": alone(0, 0.65, dollars="0.05"),
    }
    found = measure_orchestration(play(rivals, 1, questions=200), workers=WORKERS).effort
    assert found is not None
    assert (found.name, found.votes, found.unit) == ("consensus:bert?n=5", 0, "dollars")
    assert found.cost == pytest.approx(1.0)
    assert found.enough and found.fair


def test_without_prices_calls_are_what_costs() -> None:
    records = [
        replace(one, usage=replace(one.usage, unpriced_calls=1))
        for one in play(PLAYERS, 1, questions=40)
    ]
    by_system = {name: [one for one in records if one.system == name] for name in PLAYERS}
    found = find_effort(by_system, "conductor", "worker:anna")
    assert found is not None
    assert (found.unit, found.name) == (UNPRICED, "anna alone")
    assert found.cost == pytest.approx(1 / 2.5)
    assert found.wanted == pytest.approx(2.5)
    assert not found.enough


def test_a_conductor_of_which_nothing_was_decided_is_not_said_to_write_no_plans() -> None:
    unreached = replace(PLAYERS["conductor"], fails=lambda _right: 1.0)
    records = play({**PLAYERS, "conductor": unreached}, 1, questions=40)
    nothing = [replace(one, rounds=()) if one.system == "conductor" else one for one in records]
    found = measure_orchestration(nothing, workers=WORKERS)
    (form,) = [part for part in sections(report_of(found)) if part.title == "Form"]
    assert list(form.lines) == ["There is no validity: nothing was decided."]
    baseline = measure_orchestration(records, system="moa:anna", workers=WORKERS)
    (form,) = [part for part in sections(report_of(baseline)) if part.title == "Form"]
    assert list(form.lines) == ["There is no validity: moa:anna writes no plans in words."]


def test_a_vote_far_from_the_systems_cost_is_not_called_one_at_equal_cost() -> None:
    dear = {**PLAYERS, "conductor": replace(PLAYERS["conductor"], dollars="0.05")}
    for players, told in (
        (dear, "Of the best worker's votes the nearest in cost: anna"),
        (PLAYERS, "At equal cost: anna"),
    ):
        said = next(
            sections(
                report_of(measure_orchestration(play(players, 1, questions=120), workers=WORKERS))
            )
        ).lines
        assert any(line.startswith(told) for line in said)


def test_a_regret_of_nothing_has_no_sign() -> None:
    same = measure_orchestration(
        play({**PLAYERS, "oracle": PLAYERS["conductor"]}, 1, questions=40), workers=WORKERS
    )
    assert same.oracle is not None and same.oracle.lead is not None
    level = replace(
        same,
        oracle=replace(
            same.oracle, lead=replace(same.oracle.lead, value=1e-17, low=-0.1, high=0.1)
        ),
    )
    said = " ".join(line for part in sections(report_of(level)) for line in part.lines)
    assert "Regret to the oracle: 0.0 points (-10.0 to 10.0)." in said
    assert points(Estimate(-1e-17, 0, 0, 1)) == "+0.0"


def test_kinds_stand_from_easy_to_hard_in_their_tasks_order() -> None:
    kinds = dict(zip(("k0", "k1", "k2", "k3"), ("hard", "easy", "medium", "easy"), strict=True))
    records = [replace(one, kind=kinds[one.kind]) for one in play(PLAYERS, 1, questions=40)]
    other = [
        replace(one, task="algebra", kind=f"level {9 + (one.kind == 'easy')}") for one in records
    ]
    assert [
        one.name for one in measure_orchestration(records, workers=WORKERS).routing.by_kind
    ] == [
        "easy",
        "medium",
        "hard",
    ]
    names = [one.name for one in measure_orchestration(other, workers=WORKERS).routing.by_kind]
    assert names == ["level 9", "level 10"]
    both = measure_orchestration([*records, *other], workers=WORKERS).routing
    assert [one.name for one in both.by_task] == ["sums", "algebra"]
    assert [one.name for one in both.by_kind][-2:] == ["algebra / level 9", "algebra / level 10"]


@pytest.mark.parametrize(
    ("repeats", "whose", "luck"),
    [
        (1, "anna, the best worker on these questions", True),
        (3, "the worker that other questions would choose", False),
    ],
)
def test_a_pools_gain_is_said_with_both_levels_that_it_lies_between(
    repeats: int, whose: str, luck: bool
) -> None:
    """Over whom: what is without luck over a choice without luck, and what has luck in it over the best one seen."""
    room = headroom(play(PLAYERS, 1, questions=60, repeats=repeats), gains=(0.01, 0.025, 0.07))
    assert room is not None
    said = gain(room)
    found = re.fullmatch(
        r"(\S+) points over (.+) \((\S+) %\), to (\S+) % \(95 % interval .+\)", said
    )
    assert found is not None, said
    lead, single, oracle = (float(found[place]) for place in (1, 3, 4))
    assert lead == pytest.approx(oracle - single, abs=0.11)
    assert (found[2], "luck included" in said) == (whose, luck)
    assert single == pytest.approx(
        100 * (room.best_naive if luck else room.best_fitted).value, abs=0.06
    )
    lines = " ".join(line for part in pool_sections(room) for line in part.lines)
    assert re.search(r"power: 1 point .+; 2\.5 points .+; 7 points", lines)
    assert "plans of several steps may need it" in lines
    if room.room_corrected is not None:
        fewer = replace(room, room_corrected=replace(room.room_corrected, problems=41))
        assert "points on the 41 questions that both have decided over" in gain(fewer)


def report_of(found: Orchestration) -> Report:
    return Report("r", "unconstrained", 0, found, judge(found))


def test_a_system_that_is_not_there_is_an_error_that_says_which_are() -> None:
    with pytest.raises(ConfigError, match="expected one of conductor, worker:anna"):
        measure_orchestration(play(PLAYERS, 1, questions=2), system="conducter")


@pytest.mark.parametrize(
    "players",
    [PLAYERS, {"conductor": PLAYERS["conductor"]}, {"worker:anna": PLAYERS["worker:anna"]}],
)
@pytest.mark.parametrize(("questions", "repeats"), [(1, 1), (3, 2), (40, 3)])
def test_a_report_of_whatever_there_is_can_be_said_and_written(
    players: dict[str, Player], questions: int, repeats: int
) -> None:
    """Every section has cells for its columns, no figure that is not one, and plain values."""
    records = play(players, 2, questions=questions, repeats=repeats)
    system = next(iter(players))
    found = measure_orchestration(
        records, system=system, before=records[:: len(players)], workers=WORKERS
    )
    room = headroom(records)
    report = Report("r", "unconstrained", 0, found, judge(found), room)
    json.dumps(report.to_json(), allow_nan=False)
    parts = [*sections(report), *(pool_sections(room) if room is not None else ())]
    assert heading(report).startswith(system)
    assert {"Where it stands", "Form", "Who works, and how"} <= {part.title for part in parts}
    for part in parts:
        assert all(len(row) == len(part.head) for row in part.rows), part.title
        said = " ".join((*part.lines, *(cell for row in part.rows for cell in row)))
        assert not any(odd in said.split() for odd in ("nan", "inf", "None", "-inf")), said


# ── what a training changed ───────────────────────────────────────────────────────────────────────
def learner(skill: float, invalid: float) -> dict[str, Player]:
    def plan(rng: random.Random, _kind: int) -> Sequence[int] | None:
        return None if rng.random() < invalid else (0, 1)

    return {"conductor": Player(flat(skill), plan, planned=True)}


def by_hand(rows: Sequence[tuple[bool, bool]]) -> list[Record]:
    """Records of one question each: whether the plan was valid, and whether it was right."""
    return [
        replace(
            record,
            correct=right,
            status="graded" if valid else "invalid",
            rounds=record.rounds if valid else (replace(record.rounds[0], workflow=None),),
        )
        for record, (valid, right) in zip(
            play(learner(0.0, 0.0), 0, questions=len(rows)), rows, strict=True
        )
    ]


def test_the_two_parts_of_a_gain_are_the_textbooks_and_add_up_to_it() -> None:
    """Validity .5 to .75, right of the valid .5 to 2/3: form is .25 x 7/12, skill is 1/6 x .625."""
    before = by_hand([(True, True), (True, False), (False, False), (False, False)])
    after = by_hand([(True, True), (True, True), (True, False), (False, False)])
    found = measure_change(before, after, workers=2)
    assert found.by_form is not None and found.by_skill is not None
    assert found.accuracy is not None and found.given_valid is not None
    assert (found.by_form.value, found.by_skill.value) == pytest.approx(
        (0.25 * 7 / 12, 1 / 6 * 0.625)
    )
    assert (
        found.by_form.value + found.by_skill.value
        == pytest.approx(found.accuracy.value)
        == pytest.approx(0.25)
    )
    assert found.given_valid.problems == 2, "only where both wrote a valid plan"


def test_a_learner_of_form_gains_by_form_and_one_of_skill_by_skill() -> None:
    before = play(learner(0.6, 0.4), 1, questions=400)
    form = measure_change(before, play(learner(0.6, 0.0), 2, questions=400), workers=4)
    skill = measure_change(before, play(learner(0.9, 0.4), 3, questions=400), workers=4)
    assert form.by_form is not None and form.by_skill is not None
    assert form.by_form.low > 0.15
    assert form.by_skill.low < 0 < form.by_skill.high
    assert skill.by_form is not None and skill.by_skill is not None
    assert skill.by_skill.low > 0.08
    assert skill.by_form.low < 0 < skill.by_form.high


def test_only_what_both_were_asked_and_wrote_is_compared() -> None:
    before, after = (
        play(learner(0.6, 0.0), 1, asked=asked) for asked in (range(50), range(30, 100))
    )
    assert measure_change(before, after, workers=4).questions == 20
    unreached = [
        replace(one, correct=None, status="failed") for one in by_hand([(False, False)] * 10)
    ]
    found = measure_change(
        [*unreached[:5], *by_hand([(True, True)] * 10)[5:]], by_hand([(True, True)] * 10), workers=2
    )
    assert found.validity is not None, "a planner that could not be reached wrote no invalid plan"
    assert (found.validity.value, found.validity.problems) == (0.0, 5)
    found = measure_change(by_hand([(False, False)] * 8), by_hand([(True, True)] * 8), workers=2)
    assert found.by_form is found.by_skill is found.given_valid is None, (
        "without a valid plan there is no skill"
    )
    wide = {"conductor": Player(flat(0.5), lambda rng, _: (rng.randrange(4),), planned=True)}
    narrow = {"conductor": Player(flat(0.5), always(2), planned=True)}
    found = measure_change(play(wide, 1), play(narrow, 1), workers=4)
    assert found.entropy_before is not None and found.entropy_after is not None
    assert (found.entropy_before.value, found.entropy_after.value) == pytest.approx(
        (2.0, 0.0), abs=0.05
    )


# ── a training's curve ────────────────────────────────────────────────────────────────────────────
def curve(folder: Path, iterations: int) -> Path:
    """Validity from 50 to 100 %, accuracy given valid as it was, routing from 2 bits to none, ever fewer shapes."""
    lines: list[str] = []
    for number in range(iterations):
        part = number / (iterations - 1)
        line = {
            "iteration": number,
            "rollouts": 64,
            "masked": 0,
            "validity": 0.5 + 0.5 * part,
            "accuracy": 0.96 * (0.5 + 0.5 * part),
            "accuracy_given_valid": 0.96,
            "routing_entropy_bits": 2.0 * (1 - part),
            "worker_share": {"anna": 0.5 + 0.5 * part, "bert": 0.5 - 0.5 * part},
            "topology": {"single": 32 + round(32 * part), "chain": 32 - round(32 * part)},
        }
        lines.append(json.dumps(line) + "\n")
    (folder / "curves.jsonl").write_text("".join(lines))
    return folder


def test_format_that_is_learnt_while_skill_stays_is_seen_in_the_curve(tmp_path: Path) -> None:
    found = read_training(curve(tmp_path, 100))
    entropy, shapes = found.routing_entropy.end, found.shapes
    assert (
        found.validity.begin is not None and found.validity.end is not None and entropy is not None
    )
    assert found.validity.begin.high < found.validity.end.low
    assert found.given_valid.begin == found.given_valid.end
    assert entropy.value < 0.5
    assert shapes.begin is not None and shapes.end is not None
    assert shapes.begin.value == pytest.approx(2.0, abs=0.02)
    assert shapes.end.value < 1.8
    json.dumps(found.to_json(), allow_nan=False)


def test_one_iteration_has_a_level_and_no_interval(tmp_path: Path) -> None:
    report = replace(
        report_of(measure_orchestration(play(PLAYERS, 0, questions=5))),
        training=read_training(curve(tmp_path, 6)),
    )
    (part,) = [part for part in sections(report) if part.title == "The training"]
    assert part.rows[0] == ("valid plans, %", "50.0", "100.0")
