"""The best of several: what looks best, what choosing elsewhere reaches, and two coins that nothing can tell apart."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from openconductor.evaluation.selection import Scores, best_single, corrected_oracle, naive_oracle


def keyed(*by_problem: list[float]) -> Scores:
    return {("t", f"p{place:03}"): scores for place, scores in enumerate(by_problem) if scores}


def mean(scores: Scores) -> float:
    return fmean(fmean(of_one) for of_one in scores.values())


def coins(systems: int, questions: int, repeats: int, seed: int) -> dict[str, Scores]:
    rng = random.Random(seed)
    return {
        f"coin {system}": keyed(*([float(rng.random() < 0.5) for _ in range(repeats)] for _ in range(questions)))
        for system in range(systems)
    }


# ── the best single one ──────────────────────────────────────────────────────────────────────────────────────────────
def test_one_that_is_better_everywhere_is_chosen_everywhere_and_loses_nothing() -> None:
    found = best_single({"low": keyed(*[[0.0]] * 10), "high": keyed(*[[1.0]] * 10)})
    assert found is not None
    assert (found.name, mean(found.naive), mean(found.fitted)) == ("high", 1.0, 1.0)
    assert found.chosen == {"low": 0.0, "high": 1.0}


def test_a_question_is_scored_by_the_system_that_is_best_on_the_others() -> None:
    # Each is right on one of two questions: outside p000 the second is best, which is wrong on p000; and so with p001.
    found = best_single({"first": keyed([1.0], [0.0]), "second": keyed([0.0], [1.0])})
    assert found is not None
    assert (found.name, mean(found.naive)) == ("first", 0.5)
    assert found.fitted == {("t", "p000"): [0.0], ("t", "p001"): [0.0]}
    assert found.chosen == {"first": 0.5, "second": 0.5}


def test_the_best_of_many_coins_looks_better_than_a_coin_and_cross_fitted_does_not() -> None:
    naive: list[float] = []
    fitted: list[float] = []
    for seed in range(60):
        found = best_single(coins(8, 60, 1, seed), seed=seed)
        assert found is not None
        naive.append(mean(found.naive))
        fitted.append(mean(found.fitted))
    assert fmean(naive) > 0.56
    assert fmean(fitted) == pytest.approx(0.5, abs=0.03)


def test_the_same_seed_cuts_the_same_folds() -> None:
    systems = coins(4, 30, 2, 1)
    assert best_single(systems, seed=3) == best_single(systems, seed=3)


def test_a_single_question_is_scored_by_what_is_best_on_it_for_there_is_no_other() -> None:
    found = best_single({"low": keyed([0.0]), "high": keyed([1.0])})
    assert found is not None
    assert (found.name, found.fitted) == ("high", {("t", "p000"): [1.0]})


def test_where_nothing_was_decided_there_is_no_best() -> None:
    assert best_single({}) is None
    assert best_single({"a": {}, "b": {}}) is None


def test_what_the_chosen_one_has_not_decided_is_left_out() -> None:
    found = best_single({"good": keyed([1.0], [1.0], [], [1.0]), "bad": keyed([0.0], [0.0], [0.0], [0.0])})
    assert found is not None
    assert ("t", "p002") not in found.fitted
    assert mean(found.fitted) == 1.0


def test_one_that_failed_on_all_but_an_easy_question_is_not_the_best() -> None:
    found = best_single({"broken": keyed([1.0]), "good": keyed(*[[1.0]] * 9, [0.0])})
    assert found is not None
    assert (found.name, mean(found.naive), found.chosen) == ("good", 0.9, {"good": 1.0})


# ── the best of each question ────────────────────────────────────────────────────────────────────────────────────────
def test_the_naive_oracle_takes_the_best_mean_of_each_question() -> None:
    found = naive_oracle({"a": keyed([1.0, 0.0], [0.0]), "b": keyed([0.0, 0.0], [1.0], [0.0])})
    assert found == {("t", "p000"): [0.5], ("t", "p001"): [1.0], ("t", "p002"): [0.0]}


def test_the_corrected_oracle_chooses_by_the_other_repeats() -> None:
    # Repeat 0 is scored by who is best on repeats 1 and 2: a (1/2) over b (0): a's 1. Repeat 1: a by 2/2: a's 0 ...
    found = corrected_oracle({"a": keyed([1.0, 0.0, 1.0]), "b": keyed([0.0, 0.0, 0.0])})
    assert found == {("t", "p000"): [pytest.approx(2 / 3)]}


def test_of_equals_each_counts_the_same() -> None:
    # Held out 0: a has 0, b has 0 on the rest: the mean of 1 and 0. Held out 1: a has 1, b has 0: a's 0.
    found = corrected_oracle({"a": keyed([1.0, 0.0]), "b": keyed([0.0, 0.0])})
    assert found == {("t", "p000"): [0.25]}


def test_two_fair_coins_have_a_naive_oracle_of_three_quarters_and_a_corrected_one_of_a_half() -> None:
    systems = coins(2, 4000, 2, 5)
    single = {name: {key: of_one[:1] for key, of_one in scores.items()} for name, scores in systems.items()}
    assert mean(naive_oracle(single)) == pytest.approx(0.75, abs=0.02)
    corrected = corrected_oracle(systems)
    assert corrected is not None
    assert mean(corrected) == pytest.approx(0.5, abs=0.02)


def test_complementary_workers_keep_their_oracle_when_it_is_corrected() -> None:
    found = corrected_oracle({"a": keyed([1.0, 1.0], [0.0, 0.0]), "b": keyed([0.0, 0.0], [1.0, 1.0])})
    assert found is not None and mean(found) == 1.0


def test_single_answers_cannot_be_told_from_luck() -> None:
    assert corrected_oracle({"a": keyed([1.0], [0.0]), "b": keyed([0.0])}) is None
    assert corrected_oracle({}) is None


def test_a_system_with_one_decided_repeat_of_a_question_is_left_out_of_it() -> None:
    found = corrected_oracle({"a": keyed([0.0, 0.0]), "b": keyed([1.0])})
    assert found == {("t", "p000"): [0.0]}
