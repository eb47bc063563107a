"""Hard ones, and unlike each other: what is chosen of many."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from openconductor.tasks.items import Item
from openconductor.tasks.selection import POOL, select
from openconductor.types import Problem


def item(name: str, text: str = "", *, subject: str = "", difficulty: float | None = None) -> Item:
    return Item(Problem(name, text or name, "", "demo"), subject=subject, difficulty=difficulty)


def names(items: list[Item]) -> list[str]:
    return [one.problem.id for one in items]


def many(count: int = 200) -> list[Item]:
    words = (
        "sum",
        "product",
        "angle",
        "circle",
        "prime",
        "divisor",
        "matrix",
        "vector",
        "limit",
        "urn",
        "graph",
        "tree",
    )
    draw = random.Random(3)
    return [
        item(
            f"p{number}",
            " ".join(draw.choices(words, k=8)),
            subject=f"s{number % 5}",
            difficulty=draw.choice((None, 0.0, 0.25, 0.5, 0.75, 1.0)),
        )
        for number in range(count)
    ]


def test_the_same_seed_chooses_the_same_in_the_same_order_whatever_the_order_of_the_items() -> None:
    items = many()
    chosen = select(items, 20, seed=7)
    shuffled = list(items)
    random.Random(1).shuffle(shuffled)
    assert names(select(shuffled, 20, seed=7)) == names(chosen)
    assert names(select(items, 20, seed=8)) != names(chosen)
    assert len(set(names(chosen))) == 20


def test_all_are_chosen_where_there_are_no_more() -> None:
    items = many(7)
    assert set(names(select(items, 20, seed=0))) == set(names(items))
    assert select([], 3, seed=0) == []


def test_those_that_tie_with_the_last_go_on_with_it() -> None:
    easy = [item(f"easy{number}", difficulty=0.0) for number in range(50)]
    hard = [item(f"hard{number}", difficulty=1.0) for number in range(30)]
    found = {name for seed in range(40) for name in names(select(easy + hard, 3, seed=seed))}
    assert found <= {one.problem.id for one in hard}
    assert len(found) > POOL * 3  # a pool of exactly 12 would leave 18 of the 30 hard ones without a chance


def test_a_measured_pass_rate_counts_before_what_the_data_say() -> None:
    items = [item(f"p{number}", difficulty=number / 99) for number in range(100)]
    rates = {f"p{number}": 0.9 - number / 100 for number in range(20)}
    chosen = select(items, 3, seed=0, pass_rates=rates)
    assert set(names(chosen)) <= {f"p{number}" for number in range(20 - POOL * 3, 20)}


def test_what_nobody_solved_comes_late_and_what_all_solved_last() -> None:
    kinds = {"some": 0.5, "unmeasured": None, "none": 0.0, "all": 1.0}
    items = [item(f"{kind}{number}") for kind in kinds for number in range(POOL)]
    rates = {f"{kind}{n}": rate for kind, rate in kinds.items() if rate is not None for n in range(POOL)}
    left, order = list(items), []
    while left:  # the hardest of what is left, again and again: each pool is one kind
        found = {
            name.rstrip("0123456789")
            for seed in range(9)
            for name in names(select(left, 1, seed=seed, pass_rates=rates))
        }
        assert len(found) == 1
        order += found
        left = [one for one in left if one.problem.id.rstrip("0123456789") not in found]
    assert order == list(kinds)


@pytest.mark.parametrize("seed", range(5))
def test_subjects_take_turns(seed: int) -> None:
    items = [item(f"a{n}", subject="algebra") for n in range(30)]
    items += [item(f"b{n}", subject="biology") for n in range(6)] + [item("c", subject="chemistry")]
    counts = Counter(one.subject for one in select(items, 12, seed=seed))
    assert counts["chemistry"] == 1
    assert counts["biology"] >= 5
    assert sum(counts.values()) == 12


def test_near_duplicates_come_last() -> None:
    copies = [item(f"copy{n}", f"How many apples does Ann have after she eats {n} of them?") for n in range(10)]
    others = [
        item("circle", "Find the area of the circle."),
        item("prime", "Which prime divides the integer?"),
        item("matrix", "Invert this matrix over the reals."),
    ]
    for seed in range(10):
        chosen = names(select(copies + others, 4, seed=seed))
        assert {"circle", "prime", "matrix"} < set(chosen)
