"""What a pool could give: by hand on a small matrix, and on planted pools whose headroom is known."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from openconductor.evaluation.headroom import headroom, outcome_matrix, questions_needed, visible_gain
from openconductor.evaluation.records import Record
from openconductor.types import Usage


def answers(rows: Mapping[str, Sequence[Sequence[bool | None]]]) -> list[Record]:
    """Records of workers: for each the repeats of each question."""
    return [
        Record(
            f"worker:{name}", "t", f"q{n:03}", k, "", one, "failed" if one is None else "graded", None, None, "", (), 1,
            Usage(), 0.0,
        )
        for name, questions in rows.items()
        for n, repeats in enumerate(questions)
        for k, one in enumerate(repeats)
    ]  # fmt: skip


def coin(chance: Sequence[float], repeats: int, seed: str) -> list[list[bool]]:
    rng = random.Random(seed)
    return [[rng.random() < one for _ in range(repeats)] for one in chance]


def test_a_small_matrix_worked_out_by_hand() -> None:
    rows = {"a": [[True], [True], [False], [False]], "b": [[False], [True], [True], [False]], "c": [[False]] * 4}
    found = headroom(answers(rows))
    assert found is not None
    assert (found.best, found.questions, found.repeats, found.masked) == ("a", 4, 1, 0)
    assert (found.oracle_naive.value, found.best_naive.value, found.room_naive.value) == (0.75, 0.5, 0.25)
    assert found.oracle_corrected is found.room_corrected is None, "single answers cannot be told from luck"
    assert found.got_by == (1, 2, 1, 0)
    assert [one.name for one in found.workers] == ["a", "b", "c"]
    assert [one.only.value for one in found.workers] == [0.25, 0.25, 0.0]
    assert [one.loss.value for one in found.workers] == [0.25, 0.25, 0.0]
    assert found.complementary == ((0.0, 0.25, 0.5), (0.25, 0.0, 0.5), (0.0, 0.0, 0.0))
    assert dict(found.patterns) == {("a",): 1, ("a", "b"): 1, ("b",): 1, (): 1}


def test_the_matrix_has_a_row_a_question_and_none_where_nothing_was_decided() -> None:
    found = outcome_matrix(answers({"a": [[True, False], [None]], "b": [[True, None], [False]]}))
    assert found.workers == ("a", "b")
    assert [one[1] for one in found.questions] == ["q000", "q001"]
    assert found.right == ((0.5, 1.0), (None, 0.0))


def test_luck_is_no_headroom_once_it_is_corrected() -> None:
    """Four coins: the naive oracle finds a winner of each question, the corrected one finds nothing."""
    naive = 0
    for seed in range(6):
        rows = {f"w{w}": coin([0.5] * 120, 3, f"{seed}/{w}") for w in range(4)}
        found = headroom(answers(rows), seed=seed)
        assert found is not None
        assert found.room_corrected is not None
        naive += found.room_naive.low > 0.15
        assert abs(found.room_corrected.value) < 0.12
    assert naive == 6


def test_specialists_have_a_headroom_and_each_is_needed() -> None:
    chances = {f"w{w}": [0.9 if n % 3 == w else 0.1 for n in range(240)] for w in range(3)}
    rows = {name: coin(chance, 4, name) for name, chance in chances.items()}
    found = headroom(answers(rows))
    assert found is not None
    assert found.room_corrected is not None
    assert found.room_corrected.value == pytest.approx(0.9 - 0.367, abs=0.08)
    assert [one.redundant for one in found.workers] == [False, False, False]


def test_a_worker_that_is_never_right_is_redundant() -> None:
    rows = {"good": coin([0.8] * 300, 3, "good"), "bad": coin([0.0] * 300, 3, "bad")}
    found = headroom(answers(rows))
    assert found is not None
    assert {one.name: one.redundant for one in found.workers} == {"good": False, "bad": True}


def test_few_questions_do_not_make_a_worker_redundant() -> None:
    rows = {name: coin([0.5] * 12, 2, name) for name in ("a", "b", "c")}
    found = headroom(answers(rows))
    assert found is not None
    assert all(one.redundant is not True for one in found.workers)


def test_what_could_not_be_decided_is_left_out_and_counted() -> None:
    rows: dict[str, list[list[bool | None]]] = {"a": [[True], [None]], "b": [[False], [False]]}
    found = headroom(answers(rows))
    assert found is not None
    assert (found.masked, found.workers[0].accuracy.value, found.workers[0].accuracy.masked) == (1, 1.0, 1)


def test_other_systems_and_empty_pools_are_no_pool() -> None:
    assert headroom([]) is None
    assert headroom(answers({"a": [[None]]})) is None


@pytest.mark.parametrize(("gain", "spread"), [(0.1, 0.3), (0.05, 0.2), (0.2, 0.3)])
def test_so_many_questions_show_the_gain_four_times_in_five(gain: float, spread: float) -> None:
    """Pairs of single answers that differ on a share ``spread`` of the questions, ``gain`` of them on balance."""
    count = questions_needed(gain, spread)
    differ = max(spread, gain)
    seen = 0
    for seed in range(300):
        rng = random.Random(f"{seed}/{gain}")
        draws = [rng.random() for _ in range(count)]
        better = sum(draw < (differ + gain) / 2 for draw in draws)
        worse = sum((differ + gain) / 2 <= draw < differ for draw in draws)
        seen += better - worse > 1.96 * (better + worse) ** 0.5
    assert 0.7 <= seen / 300 <= 0.9


def test_more_questions_show_smaller_gains() -> None:
    seen = [visible_gain(count, 0.3) for count in (50, 200, 1000)]
    known = [one for one in seen if one is not None]
    assert len(known) == 3
    assert known == sorted(known, reverse=True)
    assert questions_needed(known[-1], 0.3) <= 1000
    assert visible_gain(1, 0.3) is None


@pytest.mark.parametrize(("gain", "spread", "power"), [(0, 0.1, 0.8), (1.1, 0.1, 0.8), (0.1, -1, 0.8), (0.1, 0.1, 1.0)])
def test_what_makes_no_sense_is_refused(gain: float, spread: float, power: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        questions_needed(gain, spread, power=power)
