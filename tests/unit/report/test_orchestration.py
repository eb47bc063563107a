"""The figures of the report, against numbers worked out by hand, and what becomes of figures that there are not."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planted_records import WORKERS, Player, alone, always, by_kind, flat, play

from openconductor.errors import ConfigError
from openconductor.evaluation.headroom import headroom
from openconductor.evaluation.statistics import Estimate
from openconductor.report import Orchestration, judge, orchestration
from openconductor.report.figures import gain, heading, pool_sections, sections
from openconductor.report.report import Report
from openconductor.report.rivals import effort
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
    found = orchestration(records, workers=WORKERS)
    right = {name: sum(one.correct is True for one in records if one.system == name) / 120 for name in PLAYERS}
    assert found.accuracy is not None
    assert found.oracle is not None and found.oracle.lead is not None
    assert found.best_single is not None and found.best_single.lead is not None
    assert found.captured is not None
    assert found.accuracy.value == pytest.approx(right["conductor"])
    assert found.oracle.lead.value == pytest.approx(right["conductor"] - right["oracle"])
    room = right["oracle"] - right["worker:anna"]
    assert found.captured.value == pytest.approx((right["conductor"] - right["worker:anna"]) / room)
    assert found.captured.low is not None and found.captured.high is not None
    assert found.captured.low < found.captured.value < found.captured.high
    assert found.best_single.system == "worker:anna"
    assert found.unasked == ("cora", "dora")
    assert [one.system for one in found.others] == ["moa:anna"]
    assert set(found.workers) == {"anna", "bert"}


def test_routing_is_counted_over_steps_and_by_kind() -> None:
    found = orchestration(play(PLAYERS, 1, questions=120), workers=WORKERS).routing
    shares = {name: round(one.value, 6) for name, one in found.whole.workers.items()}
    assert shares == {"anna": 0.5, "bert": round(1 / 6, 6), "cora": round(1 / 6, 6), "dora": round(1 / 6, 6)}
    assert found.whole.entropy is not None
    assert found.whole.entropy.value == pytest.approx(1.792481)
    assert found.whole.steps is not None
    assert found.whole.steps.value == 1.5
    assert found.most_bits == 2.0
    assert [one.name for one in found.by_kind] == ["k0", "k1", "k2", "k3"]
    assert found.dependence is not None
    assert found.dependence.bits == pytest.approx(2.0)
    assert found.by_task == ()


def test_masked_answers_are_counted_and_a_lead_is_also_told_with_them_as_wrong() -> None:
    shy = replace(PLAYERS["conductor"], fails=lambda right: 0.0 if right else 1.0)
    found = orchestration(play({**PLAYERS, "conductor": shy}, 1, questions=120), workers=WORKERS)
    assert found.accuracy is not None
    assert found.accuracy.value == 1.0
    assert found.masked > 10
    assert found.best_single is not None
    assert found.best_single.lead is not None
    assert found.best_single.strict is not None
    assert found.best_single.strict.problems == 120
    assert found.best_single.lead.value > found.best_single.strict.value + 0.1


def test_a_vote_of_a_worker_that_beats_the_best_one_alone_is_the_rival_at_equal_cost() -> None:
    rivals = {
        **PLAYERS,
        "conductor": replace(PLAYERS["conductor"], dollars="0.05"),
        "consensus:bert?n=5": alone(1, 0.75, dollars="0.05"),
        "consensus:anna?n=5": alone(0, 0.65, dollars="0.05"),
    }
    found = orchestration(play(rivals, 1, questions=200), workers=WORKERS).effort
    assert found is not None
    assert (found.name, found.votes, found.unit) == ("consensus:bert?n=5", 0, "dollars")
    assert found.cost == pytest.approx(1.0)
    assert found.enough and found.fair


def test_without_prices_calls_are_what_costs() -> None:
    records = [replace(one, usage=replace(one.usage, unpriced_calls=1)) for one in play(PLAYERS, 1, questions=40)]
    by_system = {name: [one for one in records if one.system == name] for name in PLAYERS}
    found = effort(by_system, "conductor", "worker:anna")
    assert found is not None
    assert (found.unit, found.name) == ("calls", "anna alone")
    assert found.cost == pytest.approx(1 / 2.5)
    assert found.wanted == pytest.approx(2.5)
    assert not found.enough


def test_a_conductor_of_which_nothing_was_decided_is_not_said_to_write_no_plans() -> None:
    unreached = replace(PLAYERS["conductor"], fails=lambda _right: 1.0)
    records = play({**PLAYERS, "conductor": unreached}, 1, questions=40)
    nothing = [replace(one, rounds=()) if one.system == "conductor" else one for one in records]
    found = orchestration(nothing, workers=WORKERS)
    (form,) = [part for part in sections(report_of(found)) if part.title == "Form"]
    assert list(form.lines) == ["There is no validity: nothing was decided."]
    baseline = orchestration(records, system="moa:anna", workers=WORKERS)
    (form,) = [part for part in sections(report_of(baseline)) if part.title == "Form"]
    assert list(form.lines) == ["There is no validity: moa:anna writes no plans in words."]


def test_a_vote_far_from_the_systems_cost_is_not_called_one_at_equal_cost() -> None:
    dear = {**PLAYERS, "conductor": replace(PLAYERS["conductor"], dollars="0.05")}
    for players, told in (
        (dear, "Of the best worker's votes the nearest in cost: anna"),
        (PLAYERS, "At equal cost: anna"),
    ):
        said = next(sections(report_of(orchestration(play(players, 1, questions=120), workers=WORKERS)))).lines
        assert any(line.startswith(told) for line in said)


def test_a_regret_of_nothing_has_no_sign() -> None:
    same = orchestration(play({**PLAYERS, "oracle": PLAYERS["conductor"]}, 1, questions=40), workers=WORKERS)
    assert same.oracle is not None and same.oracle.lead is not None
    level = replace(same, oracle=replace(same.oracle, lead=replace(same.oracle.lead, value=1e-17, low=-0.1, high=0.1)))
    said = " ".join(line for part in sections(report_of(level)) for line in part.lines)
    assert "Regret to the oracle: 0.0 points (-10.0 to 10.0)." in said
    assert points(Estimate(-1e-17, 0, 0, 1)) == "+0.0"


def test_kinds_stand_from_easy_to_hard_in_their_tasks_order() -> None:
    kinds = dict(zip(("k0", "k1", "k2", "k3"), ("hard", "easy", "medium", "easy"), strict=True))
    records = [replace(one, kind=kinds[one.kind]) for one in play(PLAYERS, 1, questions=40)]
    other = [replace(one, task="algebra", kind=f"level {9 + (one.kind == 'easy')}") for one in records]
    assert [one.name for one in orchestration(records, workers=WORKERS).routing.by_kind] == ["easy", "medium", "hard"]
    names = [one.name for one in orchestration(other, workers=WORKERS).routing.by_kind]
    assert names == ["level 9", "level 10"]
    both = orchestration([*records, *other], workers=WORKERS).routing
    assert [one.name for one in both.by_task] == ["sums", "algebra"]
    assert [one.name for one in both.by_kind][-2:] == ["algebra / level 9", "algebra / level 10"]


def test_a_gain_that_was_asked_for_in_half_points_is_said_so_and_one_point_is_no_points() -> None:
    room = headroom(play(PLAYERS, 1, questions=40), gains=(0.01, 0.025, 0.07))
    assert room is not None
    said = " ".join(line for part in pool_sections(room) for line in part.lines)
    assert re.search(r"power: 1 point .+; 2\.5 points .+; 7 points", said)
    assert "plans of several steps may need it" in said


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_pools_gain_is_said_with_both_levels_that_it_lies_between(repeats: int) -> None:
    """Over whom: what is without luck over a choice without luck, and what has luck in it over the best one seen."""
    room = headroom(play(PLAYERS, 1, questions=60, repeats=repeats))
    assert room is not None
    said = gain(room)
    found = re.fullmatch(r"(\S+) points over (.+) \((\S+) %\), to (\S+) % \(95 % interval .+\)", said)
    assert found is not None, said
    lead, single, oracle = (float(found[place]) for place in (1, 3, 4))
    assert lead == pytest.approx(oracle - single, abs=0.11)
    if repeats == 1:
        assert found[2] == f"{room.best}, the best worker on these questions" and "luck included" in said
        assert single == pytest.approx(100 * room.best_naive.value, abs=0.06)
    else:
        assert found[2] == "the worker that other questions would choose" and "luck" not in said
        assert single == pytest.approx(100 * room.best_fitted.value, abs=0.06)


def test_a_gain_on_fewer_questions_than_the_level_beside_it_says_on_how_many() -> None:
    room = headroom(play(PLAYERS, 1, questions=60, repeats=2))
    assert room is not None and room.room_corrected is not None
    fewer = replace(room, room_corrected=replace(room.room_corrected, problems=41))
    assert "points on the 41 questions that both have decided over" in gain(fewer)
    assert "both have decided" not in gain(room)


def report_of(found: Orchestration) -> Report:
    return Report("r", "unconstrained", 0, found, judge(found))


def test_a_system_that_is_not_there_is_an_error_that_says_which_are() -> None:
    with pytest.raises(ConfigError, match="expected one of conductor, worker:anna"):
        orchestration(play(PLAYERS, 1, questions=2), system="conducter")


@pytest.mark.parametrize(
    "players", [PLAYERS, {"conductor": PLAYERS["conductor"]}, {"worker:anna": PLAYERS["worker:anna"]}]
)
@pytest.mark.parametrize(("questions", "repeats"), [(1, 1), (3, 2), (40, 3)])
def test_a_report_of_whatever_there_is_can_be_said_and_written(
    players: dict[str, Player], questions: int, repeats: int
) -> None:
    """Every section has cells for its columns, no figure that is not one, and plain values."""
    records = play(players, 2, questions=questions, repeats=repeats)
    system = next(iter(players))
    found = orchestration(records, system=system, before=records[:: len(players)], workers=WORKERS)
    room = headroom(records)
    report = Report("r", "unconstrained", 0, found, judge(found), room)
    json.dumps(report.to_json(), allow_nan=False)
    parts = [*sections(report), *(pool_sections(room) if room is not None else ())]
    assert heading(report).startswith(system)
    assert {"Where it stands", "Form", "Who works, and how", "What was counted"} <= {part.title for part in parts}
    for part in parts:
        assert all(len(row) == len(part.head) for row in part.rows), part.title
        said = " ".join((*part.lines, *(cell for row in part.rows for cell in row)))
        assert not any(odd in said.split() for odd in ("nan", "inf", "None", "-inf")), said
