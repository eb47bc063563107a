"""The exact levels of fixed rules over a table of recorded letters (benchmarks/replay.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.replay import Votes, find_cascades, read_run

from openconductor.providers.replay_pool import write_table
from openconductor.store import open_store

LETTERS = ("AAAB", "ABBC", "BBBA")  # the right one, then those of three models


@pytest.fixture
def votes(tmp_path: Path) -> Votes:
    rows: list[dict[str, str]] = []
    for number, letters in enumerate(LETTERS):
        cells = dict(zip(("answer", "x", "y", "z"), letters, strict=True))
        rows.append({"id": f"q/{number}", "category": "law", "split": "train", **cells})
    write_table(tmp_path / "table.csv.gz", rows)
    return Votes(tmp_path / "table.csv.gz", "train")


def test_a_tie_is_right_by_its_chance_and_a_vote_of_two_is_the_mean_of_all_pairs(
    votes: Votes,
) -> None:
    pair = votes.count(("x", "z"), weighted=False)
    assert [tally.right for tally in pair] == [0.5, 0.0, 0.5]
    assert votes.vote_of(2) == pytest.approx([2 / 3, 0.0, 2 / 3])


def test_a_weighted_vote_follows_the_better_model(votes: Votes) -> None:
    pair = votes.count(("x", "z"), weighted=True)
    assert [tally.right for tally in pair] == [1.0, 0.0, 1.0]


def test_a_cascade_asks_more_where_the_first_models_differ(votes: Votes) -> None:
    agreeing = votes.cascade(("x", "y"), ("z",))
    differing = votes.cascade(("y", "z"), ("x",))
    assert (agreeing.right, agreeing.calls) == (2 / 3, 2.0)
    assert (differing.right, differing.calls) == (2 / 3, 3.0)
    assert find_cascades(votes)[1.5].calls == 1.0


def test_a_run_is_graded_by_the_grader_of_today_but_for_what_could_not_be_decided(
    tmp_path: Path,
) -> None:
    (tmp_path / "results.json").write_text('{"greedy": {"answers": 2.5}}')
    with open_store(tmp_path / "journal.sqlite") as journal:
        for problem, answer, correct in (
            ("1", "vote: Answer: A (2 of 3)", False),
            ("2", "Answer: B", True),
            ("3", "Answer: A", None),
        ):
            record = {
                "training": "greedy",
                "problem": problem,
                "answer": answer,
                "correct": correct,
            }
            journal.put_record(f"greedy/{problem}", record)
    assert read_run(tmp_path, dict.fromkeys("123", "A")) == ({"1": 1.0, "2": 0.0}, 2.5)
