"""Rounds of imitation: what is drawn from one, and when they end; tests/learning has the rest."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from openconductor.training.imitation import (
    _kind_weights,
    _Lessons,
    _Written,
    choose_lessons,
    is_settled,
    lost_kinds,
    remember,
    settled_after,
)
from openconductor.training.train_config import ImitateConfig
from openconductor.types import Step, Workflow

pytestmark = pytest.mark.train

PLAN = Workflow([Step(0, "Answer.")])


def written(
    prompt: str,
    text: str,
    reward: float | None = 1.0,
    workflow: Workflow | None = PLAN,
    *,
    question: str = "",
    worth: float = 1.0,
) -> _Written:
    return _Written("replay", question or prompt, prompt, text, reward, worth, workflow)


def drawn(anchor: float) -> dict[str, float]:
    """Return the shares of texts drawn from a kind of which half of the questions is solved."""
    right = [written("q", "a"), written("q", "b")]
    others = [written("r", "c"), written("s", "d")]
    lessons = _Lessons(1.0, 0.5, right, others)
    rng = random.Random(0)
    counts = Counter[str]()
    for _ in range(8_000):
        lesson = lessons.draw(rng, anchor)
        counts["None" if lesson is None else lesson.text] += 1
    return {text: count / 8_000 for text, count in counts.items()}


def test_right_workflows_are_learnt_alike() -> None:
    assert drawn(0.0) == pytest.approx({"a": 0.25, "b": 0.25, "None": 0.5}, abs=0.02)


def test_a_question_without_a_right_workflow_is_learnt_from_by_the_anchor() -> None:
    shares = drawn(0.2)
    assert shares["c"] + shares["d"] == pytest.approx(0.1, abs=0.01)
    assert shares["None"] == pytest.approx(0.4, abs=0.02), "and another question is drawn"


def test_right_workflows_are_learnt_in_proportion_to_what_is_left_of_their_reward() -> None:
    right = [written("q", "dear", worth=0.6), written("q", "cheap", worth=0.9)]
    lessons = _Lessons(1.0, 1.0, right, [], priced=True)
    rng = random.Random(0)
    cheap = sum(lessons.draw(rng, 0.0) is right[1] for _ in range(8_000))
    assert cheap / 8_000 == pytest.approx(0.6, abs=0.02)


def test_second_rounds_behind_different_first_ones_are_of_one_question() -> None:
    seconds = [
        written("q? Before: A", "accept", question="q?"),
        written("q? Before: B", "accept", 0.5, question="q?"),
    ]
    (lessons,) = choose_lessons(seconds, {"replay": 1.0}, ImitateConfig(contested=True))
    assert lessons.right == seconds[:1]


def test_a_question_that_is_always_right_teaches_nothing_where_only_contested_ones_count() -> None:
    easy = [written("easy", "a"), written("easy", "b")]
    others = [written("contested", "a"), written("contested", "b", 0.5), written("hard", "b", 0.5)]
    contested = ImitateConfig(contested=True)
    weights = {"replay": 1.0}
    (every,) = choose_lessons([*easy, *others], weights, ImitateConfig())
    assert every.right == [*easy, others[0]]
    assert every.solved == pytest.approx(2 / 3)
    (some,) = choose_lessons([*easy, *others], weights, contested)
    assert some.right == others[:1]
    assert some.solved == 0.5
    assert choose_lessons(easy, weights, contested) == []


def test_right_workflows_of_earlier_rounds_are_learnt_too(tmp_path: Path) -> None:
    memory = tmp_path / "imitate_right.jsonl"
    for number, text in enumerate("abc"):
        lesson = written(f"question {text}", text, worth=0.5)
        earlier = remember(memory, number, [lesson], 2)
        assert [lesson.text for lesson in earlier] == list("abc"[:number])
    assert [lesson.text for lesson in remember(memory, 3, [], 2)] == ["b", "c"]
    remember(memory, 1, [written("question d", "d")], 2)  # a round that is played again
    (first, second) = remember(memory, 2, [], 9)
    assert (first.text, first.worth, second.text) == ("a", 0.5, "d")

    now = [written("new", "e"), written("hard", "f", 0.5)]
    other = written("other", "g")._replace(kind="gym")
    weights = {"replay": 1.0}
    (lessons,) = choose_lessons(now, weights, ImitateConfig(), earlier=[first, second, other])
    assert [lesson.text for lesson in lessons.right] == ["e", "a", "d"]
    assert lessons.solved == 0.5


def test_remembered_workflows_are_learnt_where_a_round_solves_nothing() -> None:
    now = [written("hard", "f", 0.5), written("harder", "g", 0.5)]
    earlier = [written("q", "a")]
    (lessons,) = choose_lessons(now, {"replay": 1.0}, ImitateConfig(anchor=0.0), earlier=earlier)
    assert lessons.solved == 0.5
    drawn_texts = {lessons.draw(random.Random(seed), 0.0) for seed in range(200)}
    assert drawn_texts == {earlier[0], None}


@pytest.mark.parametrize(
    ("share", "weight"), [(0.0, 1.0), (0.1, 1.0), (0.5, 1.0), (0.8, 0.4096), (1.0, 0.25)]
)
def test_a_kind_counts_fully_until_half_of_it_is_right_and_then_less(
    share: float, weight: float
) -> None:
    assert _kind_weights({"accuracy_by_kind": {"a": share}}) == {"a": pytest.approx(weight)}


def _records(**kinds: list[float | None]) -> list[dict[str, object]]:
    """The records of rounds with these accuracies by kind; None: the kind is missing."""
    records: list[dict[str, object]] = []
    for shares in zip(*kinds.values(), strict=True):
        by_kind = dict(zip(kinds, shares, strict=True))
        known = {kind: share for kind, share in by_kind.items() if share is not None}
        records.append({"accuracy_by_kind": known})
    return records


STILL = [0.9] * 16


@pytest.mark.parametrize(
    ("kinds", "settled"),
    [
        ({"single": [0.2, *[0.9] * 15, 0.91]}, True),
        ({"single": [0.9, 0.9, 0.88, 0.92, 0.9, 0.9, 0.93, 0.89] * 2}, True),
        ({"single": [*[0.7, 0.8] * 4, *[0.9] * 8]}, False),
        ({"single": STILL, "pair": [*[0.1] * 8, *[0.12, 0.13] * 4]}, False),
        ({"single": STILL, "pair": [0.1, *[0.01] * 15]}, False),
        ({"single": STILL, "pair": [0.01] * 16}, False),
        ({"single": STILL, "pair": [0.5] * 15 + [None]}, False),
        ({"single": STILL[1:]}, False),
    ],
    ids=[
        "no rise",
        "noise",
        "a rise",
        "another kind rises",
        "a kind is lost",
        "not yet solved",
        "masked",
        "too early",
    ],
)
def test_rounds_end_when_nothing_gets_better_and_nothing_is_lost(
    kinds: dict[str, list[float | None]], settled: bool
) -> None:
    assert is_settled(_records(**kinds)) is settled


@pytest.mark.parametrize(
    ("done", "rising", "still"),
    [(0, 24, 24), (15, 24, 24), (16, 24, 16), (17, 24, 16), (30, 24, 16)],
)
def test_the_last_rounds_begin_when_nothing_gets_better_or_when_it_is_time(
    done: int, rising: int, still: int
) -> None:
    settings = ImitateConfig(rounds=30, sharpen=6)
    better = _records(single=[0.03 * number for number in range(30)])
    same = _records(single=[0.9] * 30)
    assert settled_after(better[:done], settings) == rising
    assert settled_after(same[:done], settings) == still


def test_a_kind_is_lost_that_was_solved_once() -> None:
    records = _records(single=[0.5, 0.4], pair=[0.06, 0.01], triple=[0.03, 0.0])
    assert lost_kinds(records) == ["pair"]
    assert lost_kinds([]) == []
